"""What a person sees while a run trains, at the command line, in a script or in a notebook."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from proxima.run.display import Display, View, silent
from proxima.scenario import Scenario
from proxima.terminal import PLAIN, ProgressLine, in_notebook, open_screen

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
        screen.show(
            ProgressLine((view.name, view.stage.trials), view.fraction, ended, line, states)
        )

    def working(what: str, done: int, total: int) -> None:
        text = _bar(scenario.name, done / total)
        text.append(f"  {what}" + (f" {done + 1} of {total}" if total > 1 else ""), style="dim")
        screen.show(ProgressLine(what, done / total, False, text))

    return Display(screen.say, progress, working, screen.close)


@contextmanager
def shown_progress(
    scenario: Scenario, display: Display | None, progress: bool
) -> Iterator[Display]:
    """The display that a program gave, one of our own if it asked for progress, or none at all.

    Ours writes to standard error, as results may be going to standard output; a notebook would print
    that in red.
    """
    if display is not None or not progress:
        yield display or silent()
        return
    stream = sys.stdout if in_notebook() else sys.stderr
    ours = live_display(Console(file=stream, **PLAIN), scenario)
    try:
        yield ours
    finally:
        ours.close()


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
    done = view.fraction - view.begun_at  # of the budget, by this process
    if done > 0:
        text.append(f"  {view.seconds * (1 - view.fraction) / done:.0f} s left", style="dim")
    return text


def _mean(key: str, rows: Sequence[Mapping[str, float]]) -> float | None:
    values = [row[key] for row in rows if key in row]
    return sum(values) / len(values) if values else None


def _bar(name: str, fraction: float) -> Text:
    width = 24
    filled = round(width * fraction)
    bar = ("━" * filled, "green"), ("━" * (width - filled), "dim")
    return Text.assemble((f"{name}  ", "bold"), *bar)


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
