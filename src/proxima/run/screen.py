"""What a person sees while a run trains, at the command line, in a script or in a notebook."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from proxima.report.numbers import brief
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
BAR = 24  # its width
Seen = dict[tuple[Any, ...], float]  # the last value of each figure of a stage, and of a trial


def live_display(console: Console, scenario: Scenario) -> Display:
    """How far a run is, its speed, its figures and the time left, and the state of each trial."""
    screen = open_screen(console, "Preparing: building and compiling the program…")
    seen: Seen = {}

    def progress(view: View) -> None:
        screen.show(shown_line(view, scenario, seen))

    def working(what: str, done: int, total: int) -> None:
        count = f" {done + 1} of {total}" if total > 1 else ""
        line = bar(scenario.name, 1.0)  # training is over
        line.append(f"  {what}{count}", style="dim")
        plain = f"{scenario.name}  {what}"
        # a log has one line for it, whatever the count
        screen.show(ProgressLine(what, 0.0, False, plain, line, is_busy=True))

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


def shown_line(view: View, scenario: Scenario, seen: Seen) -> ProgressLine:
    """Where a stage stands; figures that this chunk does not say stay as they were last `seen`."""
    stage, of = view.stage, (view.name, view.stage.trials)
    ended = not view.report.progress.active.any()
    facts = "  ".join(_facts(view, scenario, seen))
    left = "" if ended else time_left(view.seconds, view.fraction)
    percent = f"{math.floor(100 * view.fraction):>3} %"
    line = bar(scenario.name, view.fraction)
    line.append(f"  {percent}")
    line.append(left, style="dim")
    details = Text(f"  {facts}", style="dim", no_wrap=True, overflow="ellipsis")
    if len(stage.trials) > 1:
        details = Text("\n").join([details, trial_states(view, seen)])
    if view.note:
        details = Text("\n").join([details, Text(f"  {view.note}", "dim", no_wrap=True)])
    plain = f"{scenario.name}  {percent}  {facts}{left}"
    return ProgressLine(of, view.fraction, ended, plain, line, details)


def _facts(view: View, scenario: Scenario, seen: Seen) -> Iterator[str]:
    """Steps, speed, figures, memory."""
    progress, stage = view.report.progress, view.stage
    if view.name:
        trial = f"trial {stage.trials[0]} " if scenario.trials > 1 else ""
        yield f"{trial}{view.name.replace('_', ' ')}"
    budget = f" / {stage.schedule.max_steps:,}" if stage.schedule.max_steps else ""
    yield f"{progress.steps:,}{budget} {stage.unit}"
    rows = [row for row in view.report.rows if row is not None]
    if stage.unit == "steps":
        total = sum(book.steps for book in progress.books)
        yield f"{total / max(view.seconds, 1e-9):,.0f} steps/s"
    scores = [score.figures for score in view.report.scores or [] if score is not None]
    for key, name in stage.figures.items():
        mean = _last_known(seen, (view.name, stage.trials, key), _mean(key, [*rows, *scores]))
        if mean is not None:
            yield f"{name} {brief(mean)}"
    memory = _mean("memory/rss_mb", rows)
    if memory:
        yield f"{memory:,.0f} MB"


def time_left(spent: float, fraction: float) -> str:
    """How long the rest will take, if it goes on as it went so far; nothing where that is not known."""
    if fraction == 0:
        return ""
    seconds = math.ceil(spent * (1 - fraction) / fraction)
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"  {seconds / size:.0f} {unit} left"
    return f"  {seconds} s left"


def _mean(key: str, rows: Sequence[Mapping[str, float]]) -> float | None:
    values = [row[key] for row in rows if key in row]
    return sum(values) / len(values) if values else None


def _last_known(seen: Seen, key: tuple[Any, ...], value: float | None) -> float | None:
    if value is not None:
        seen[key] = value
    return seen.get(key)


def bar(name: str, fraction: float) -> Text:
    """A name, and how far it is; what is to come looks otherwise also where there are no colours."""
    filled = math.floor(BAR * fraction)
    bar = ("━" * filled, "green"), ("─" * (BAR - filled), "dim")
    return Text.assemble((f"{name}  ", "bold"), *bar, no_wrap=True, overflow="ellipsis")


def trial_states(view: View, seen: Seen) -> Text:
    """One word per trial, or how many there are in each state."""
    books, text = view.report.progress.books, Text()
    if len(books) > MOST_STATES:
        states = [STATES[book.stopped] for book in books]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        return Text("  " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    figure = next(iter(view.stage.figures))
    for lane, book in enumerate(books):
        row, trial = view.report.rows[lane], view.stage.trials[lane]
        value = _last_known(seen, (view.name, trial, figure), row.get(figure) if row else None)
        number = f" {brief(value)}" if value is not None and not book.stopped else ""
        style = {"converged": "green", "nan": "red"}.get(book.stopped or "", "")
        text.append(f"  trial {trial}: {STATES[book.stopped]}{number}", style)
    return text
