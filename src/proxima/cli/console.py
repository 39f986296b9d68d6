"""What a person sees when a run has ended."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxima.build import domain
from proxima.run.results import Summary


def write(console: Console, text: str, style: str | None = None) -> None:
    """A line as it is: no markup, no colours of its own, no line breaks."""
    console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True, style=style)


MOST_ROWS = 12  # of the table of trials


def print_summary(console: Console, summary: Summary) -> None:
    """What the domain says of the run, what was registered, and where everything is."""
    closing = domain(summary.domain).closing(summary)
    table = Table(title=Text(closing.title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in closing.columns:
        left = name in ("", "state")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    rows = closing.rows if len(closing.rows) <= MOST_ROWS else closing.rows[: MOST_ROWS - 2]
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    if len(rows) < len(closing.rows):
        write(console, f"… and {len(closing.rows) - len(rows)} more, in summary.json", style="dim")
    for line in closing.lines:
        write(console, line)
    write(console, time_line(summary), style="dim")
    for model in summary.registered:
        where = f"mlflow.pyfunc.load_model({model.uri!r})"
        write(console, f"Registered {model.name} version {model.version}:  {where}")
    if summary.tracking_error:
        write(console, f"Tracking failed: {summary.tracking_error}", style="yellow")
    pointers = {
        "Results, plots and checkpoints": summary.paths["run"],
        "The report, one page": summary.paths["report"],
        **closing.pointers,
    }
    if summary.mlflow_run_id:
        pointers["Look at it in the browser"] = "proxima dashboard"
    for what, where in pointers.items():
        write(console, f"{what + ':':<33}{where}")


def time_line(summary: Summary) -> str:
    """Where the wall time went, and the memory it took."""
    spent: dict[str, Any] = dict(summary.time)
    total = spent.pop("total")
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in spent.items() if seconds >= 0.05)
    line = f"{total:.1f} s: {parts}; memory at most {summary.memory_peak_mb:,.0f} MB"
    phases = summary.trials[0].phases
    if phases is None:
        return line
    whole = phases["rollout"] + phases["learn"]
    shares = [
        f"{part} {100 * phases[part] / whole:.0f} %"
        for part in phases
        if part not in ("rollout", "update")
    ]
    return f"{line}; of an update {', '.join(shares)}"
