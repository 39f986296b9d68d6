"""What a person sees when a language run has ended."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

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


def print_language_summary(console: Console, summary: dict[str, Any]) -> None:
    """The figures before and after, alarms, and where everything is."""
    trials = len(summary["trials"])
    table = Table(
        title=f"{summary['scenario']} · {trials} trial(s)",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for name in ("", "before", "after", "95 % over trials"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for key, (words, form) in ROWS.items():
        if key in summary["figures"]:
            table.add_row(words, *_cells(summary["figures"][key], form))
    console.print(table)
    for alarm in summary["alarms"]:
        trial = f"trial {alarm['trial']}, " if trials > 1 else ""
        console.print(
            Text.assemble(
                ("Alarm", "red"), f" ({trial}since update {alarm['step']}): {alarm['text']}"
            ),
            soft_wrap=True,
        )
    spent = summary["time"]
    stages = summary["trials"][0]["stages"]
    parts = ", ".join(f"{name} {each['training_seconds']:.0f}" for name, each in stages.items())
    console.print(
        f"{spent['total']:.0f} s in all; training of trial 0: {parts} s; "
        f"memory at most {summary['memory_peak_mb']:,.0f} MB",
        style="dim",
        soft_wrap=True,
    )
    if summary.get("tracking_error"):
        failed = Text.assemble(("Tracking failed: ", "yellow"), summary["tracking_error"])
        console.print(failed, soft_wrap=True)
    paths = summary["paths"]
    lines = {"Results, plots and checkpoints": paths["run"]}
    if "ppo" in stages:
        lines |= {"The report, one page": paths["report"]}
        lines |= {"Samples, token by token": paths["samples"], "The model": paths["model"]}
        lines |= {"Talk to it": f"proxima chat {summary['run_id']}"}
    if summary.get("mlflow_run_id"):
        lines["Look at it in the browser"] = "proxima dashboard"
    for words, where in lines.items():
        console.print(f"{words + ':':<33}{where}", soft_wrap=True)


def _cells(figure: dict[str, Any], form: str) -> tuple[str, str, str]:
    before, after = figure["before"]["iqm"], figure["after"]["iqm"]
    low, high = figure["after"]["low"], figure["after"]["high"]
    told = tuple("–" if value is None else form.format(value) for value in (before, after))
    interval = "–" if low is None else f"{form.format(low)} … {form.format(high)}"
    return told[0], told[1], interval
