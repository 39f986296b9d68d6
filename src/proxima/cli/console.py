"""What a person sees: lines, tables, and what is said when a run has ended."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a list of commands should not wait for them
    from rich.console import Console

    from proxima.run.results import Summary

MOST_ROWS = 12  # of the table of trials


def write(console: "Console", text: str, style: str | None = None) -> None:
    """A line as it is: no markup, no colours of its own, no line breaks."""
    console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True, style=style)


def say(text: str, style: str | None = None) -> None:
    """A line on standard output."""
    from proxima.terminal import plain_console

    write(plain_console(), text, style)


def show_table(table: Any) -> None:
    """A table on standard output."""
    from proxima.terminal import plain_console

    plain_console().print(table)


def print_json(content: Any) -> None:
    """JSON on standard output, for programs."""
    print(json.dumps(content, indent=2))


def print_summary(console: "Console", summary: "Summary") -> None:
    """What the domain says of the run, what was registered, and where everything is."""
    from rich.table import Table
    from rich.text import Text

    from proxima.build import domain

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
    write(console, _time_line(summary), style="dim")
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


def _time_line(summary: "Summary") -> str:
    """Where the wall time went, and the memory it took."""
    spent = dict(summary.time)
    total = spent.pop("total")
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in spent.items() if seconds >= 0.05)
    line = f"{total:.1f} s: {parts}; memory at most {summary.memory_peak_mb:,.0f} MB"
    phases = dict(summary.trials[0].phases or {})
    if not phases:
        return line
    whole = phases.pop("rollout") + phases["learn"]
    phases.pop("update", None)
    shares = [f"{part} {100 * seconds / whole:.0f} %" for part, seconds in phases.items()]
    return f"{line}; of an update {', '.join(shares)}"
