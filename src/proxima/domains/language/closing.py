"""What a person reads when a language run has ended: figures before and after, alarms, where to look."""

from proxima.domains.domain import Closing
from proxima.run.results import Change, Summary

# Figures of the stages, by what a person calls them, and how they are written.
ROWS = {
    "sft/perplexity": ("perplexity of held-out texts after sft", "{:.1f}"),
    "reward_model/accuracy": ("reward model: held-out pairs told apart", "{:.1%}"),
    "ppo/reward": ("reward on held-out prompts", "{:+.3f}"),
    "ppo/judge": ("independent judge", "{:+.3f}"),
    "ppo/kl": ("KL from the reference (nats a completion)", "{:.2f}"),
    "ppo/eos_rate": ("completions that end by themselves", "{:.0%}"),
    "ppo/length": ("tokens per completion", "{:.1f}"),
    "ppo/entropy": ("entropy (nats a token)", "{:.2f}"),
    "ppo/distinct_2": ("different bigrams", "{:.0%}"),
}


def closing(summary: Summary) -> Closing:
    """The figures before and after, alarms, and where everything is."""
    trials, stages = len(summary.trials), summary.trials[0].stages
    rows = [
        (words, *_cells(summary.figures[key], form))
        for key, (words, form) in ROWS.items()
        if key in summary.figures
    ]
    lines = [
        f"Alarm ({f'trial {alarm.trial}, ' if trials > 1 else ''}since update {alarm.step}): {alarm.text}"
        for alarm in summary.alarms
    ]
    seconds = ", ".join(f"{name} {each.training_seconds:.0f}" for name, each in stages.items())
    lines.append(f"Training of trial 0: {seconds} s")
    pointers = {}
    if "ppo" in stages:
        pointers = {
            "Samples, token by token": summary.paths["samples"],
            "The model": summary.paths["model"],
            "Talk to it": f"proxima chat {summary.run_id}",
        }
    return Closing(
        title=f"{summary.scenario} · {trials} trial(s)",
        columns=("", "before", "after", "95 % over trials"),
        rows=rows,
        lines=lines,
        pointers=pointers,
    )


def _cells(change: Change, form: str) -> tuple[str, str, str]:
    before, after, low, high = (
        change.before.iqm,
        change.after.iqm,
        change.after.low,
        change.after.high,
    )
    cells = tuple("–" if value is None else form.format(value) for value in (before, after))
    interval = "–" if low is None else f"{form.format(low)} … {form.format(high)}"
    return cells[0], cells[1], interval
