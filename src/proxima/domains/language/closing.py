"""What a person reads when a language run has ended: figures before and after, alarms, where to look."""

from proxima.domains.domain import Closing
from proxima.domains.language.stages import FIGURES, POLICY
from proxima.run.results import Change, Summary


def closing(summary: Summary) -> Closing:
    """The figures before and after, alarms, and where everything is."""
    trials, stages = len(summary.trials), summary.trials[0].stages
    rows = [
        (figure.title, *_cells(summary.figures[name], figure.form))
        for name, figure in FIGURES.items()
        if name in summary.figures
    ]
    lines = [
        f"Alarm ({f'trial {alarm.trial}, ' if trials > 1 else ''}since update {alarm.step}): {alarm.text}"
        for alarm in summary.alarms
    ]
    seconds = (f"{name} {stage.training_seconds:.0f}" for name, stage in stages.items())
    lines.append(f"Training of trial 0: {', '.join(seconds)} s")
    pointers = {}
    if POLICY in stages:
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
    values = (change.before.iqm, change.after.iqm, change.after.low, change.after.high)
    before, after, low, high = ("–" if value is None else form.format(value) for value in values)
    return before, after, "–" if change.after.low is None else f"{low} … {high}"
