"""What a person sees while a run trains and when it has ended."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxima.build import domain
from proxima.cli.terminal import Progress, open_screen
from proxima.run.display import Display, View
from proxima.run.results import Summary
from proxima.scenario import Scenario

STATES = {
    None: "running",
    "converged": "converged",
    "budget": "done",
    "nan": "NaN: stopped",
    "alarm": "alarm: stopped",
    "callback": "stopped",
}
MOST_STATES = 8  # trials whose state is shown one by one


def live_display(console: Console, scenario: Scenario) -> Display:
    """A progress line with steps, speed, figures and time left, and the state of each trial."""
    screen = open_screen(console, "Preparing: building and compiling the program…")

    def progress(view: View) -> None:
        ended = not view.report.progress.active.any()
        states = trial_states(view) if len(view.stage.trials) > 1 else Text()
        line = progress_line(view, scenario)
        screen.show(Progress((view.name, view.stage.trials), view.fraction, ended, line, states))

    def working(what: str, done: int, total: int) -> None:
        text = _bar(scenario.name, done / total)
        text.append(f"  {what}" + (f" {done + 1} of {total}" if total > 1 else ""), style="dim")
        screen.show(Progress(what, done / total, False, text))

    return Display(screen.say, progress, working, screen.close)


def progress_line(view: View, scenario: Scenario) -> Text:
    """How far a stage is, its speed, its figures, time left."""
    progress, stage = view.report.progress, view.stage
    budget = f" / {stage.schedule.max_steps:,}" if stage.schedule.max_steps else ""
    text = _bar(scenario.name, view.fraction)
    if view.name:
        trial = f"trial {stage.trials[0]} " if scenario.trials > 1 else ""
        text.append(f"  {trial}{view.name.replace('_', ' ')}")
    text.append(f"  {progress.steps:,}{budget} {stage.unit}")
    rows = [row for row in view.report.rows if row is not None]
    if stage.unit == "steps":
        total = sum(book.steps for book in progress.books)
        text.append(f"  {total / max(view.seconds, 1e-9):,.0f} steps/s", style="cyan")
    scores = [score.figures for score in view.report.scores or [] if score is not None]
    for key, name in stage.figures.items():
        mean = _mean(key, [*rows, *scores])
        if mean is not None:
            text.append(f"  {name} {shown(mean)}")
    memory = _mean("memory/rss_mb", rows)
    text.append(f"  {memory:,.0f} MB" if memory else "", style="dim")
    left = _left(view)
    text.append(f"  {left:.0f} s left" if math.isfinite(left) else "", style="dim")
    return text


def _left(view: View) -> float:
    """Seconds to the end of the budget, by what this process has done of it."""
    done = view.fraction - view.begun_at
    return view.seconds * (1 - view.fraction) / done if done > 0 else math.nan


def _mean(key: str, rows: Sequence[Mapping[str, float]]) -> float | None:
    values = [row[key] for row in rows if key in row]
    return sum(values) / len(values) if values else None


def _bar(name: str, fraction: float) -> Text:
    width = 24
    filled = round(width * fraction)
    text = Text()
    text.append(f"{name}  ", style="bold")
    text.append("━" * filled, style="green")
    text.append("━" * (width - filled), style="dim")
    return text


def trial_states(view: View) -> Text:
    """One word per trial, or how many there are in each state."""
    books, text = view.report.progress.books, Text()
    if len(books) > MOST_STATES:
        states = [STATES[book.stopped] for book in books]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        return Text("  " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    figure = next(iter(view.stage.figures))
    for lane, book in enumerate(books):
        row = view.report.rows[lane]
        number = f" {shown(row[figure])}" if row and figure in row and not book.stopped else ""
        style = {"converged": "green", "nan": "red"}.get(book.stopped or "", "")
        text.append(f"  trial {view.stage.trials[lane]}: {STATES[book.stopped]}{number}", style)
    return text


def shown(value: float) -> str:
    """A figure with as many digits as its size asks for: 493.6, but 0.0312."""
    return f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


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
