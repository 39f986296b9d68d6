"""What a person sees of a search: its plan, how far it is, and what came out."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from proxima.report.numbers import brief
from proxima.report.statistics import aggregate, interval_words
from proxima.run.screen import bar, time_left
from proxima.scenario.search import Value
from proxima.terminal import PLAIN, ProgressLine, in_notebook, open_screen
from proxima.tune.lineage import last_settings
from proxima.tune.method import Settings
from proxima.tune.plan import Plan, Standing, Watch
from proxima.tune.results import Confirmed, SearchResult

PHASES = {"search": "", "choosing": "  choosing among the best"}


def shown_standing(name: str, standing: Standing) -> ProgressLine:
    """Configurations done, the best so far with its settings, speed, and the time left."""
    fraction = standing.fraction
    ended = standing.done == standing.total
    percent = f"{math.floor(100 * fraction):>3} %"
    left = "" if ended else time_left(standing.seconds, fraction)
    facts = "  ".join(_facts(standing))
    line = bar(name, fraction)
    line.append(f"  {percent}{PHASES[standing.phase]}")
    line.append(left, style="dim")
    details = Text(f"  {facts}", style="dim", no_wrap=True, overflow="ellipsis")
    plain = f"{name}  {percent}{PHASES[standing.phase]}  {facts}{left}"
    return ProgressLine(standing.phase, fraction, ended, plain, line, details)


def _facts(standing: Standing) -> Iterator[str]:
    yield f"{standing.done} of {standing.total} configurations"
    if standing.steps:
        yield f"{standing.steps / max(standing.seconds, 1e-9):,.0f} steps/s"
    if standing.best is not None and standing.settings is not None:
        yield f"best {brief(standing.best)} ({short_settings(standing.settings)})"


def short_settings(settings: Settings) -> str:
    """Settings by the last part of their path, numbers with few digits."""
    return ", ".join(
        f"{path.rpartition('.')[2]} {_short(value)}" for path, value in settings.items()
    )


def _short(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value}"


@contextmanager
def watching(console: Console, name: str) -> Iterator[Watch]:
    """Shows a search in the way that suits the console, until it ends."""
    screen = open_screen(console, "Preparing: building and compiling the program…")
    try:
        yield Watch(screen.say, lambda standing: screen.show(shown_standing(name, standing)))
    finally:
        screen.close()


@contextmanager
def shown_search(name: str, progress: bool) -> Iterator[Watch]:
    """For a program: on standard error, in a notebook below the cell, or nothing at all."""
    if not progress:
        yield Watch(lambda text: None, lambda standing: None)
        return
    stream = sys.stdout if in_notebook() else sys.stderr
    with watching(Console(file=stream, **PLAIN), name) as watch:
        yield watch


def plan_words(plan: Plan) -> str:
    """The plan in a sentence or two."""
    times = f" × {plan.seeds} seeds" if plan.seeds > 1 else ""
    words = f"{plan.configs:,} configurations{times} by {plan.method}"
    if plan.lanes is None:
        return f"{words}, one after the other."
    words += f", {plan.lanes} side by side"
    if plan.programs is not None:
        words += f" in {plan.programs} program{'s' * (plan.programs > 1)}"
    seconds = plan.steps / plan.speed
    again = f" and {plan.again:,} more to confirm the best" if plan.again else ""
    return (
        f"{words}: about {plan.steps:,.0f} environment steps{again}. "
        f"At {plan.speed:,.0f} steps/s, as just measured, that takes {_duration(seconds)}."
    )


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s"


def result_lines(result: SearchResult) -> Iterator[str]:
    """What came out, in sentences."""
    tried = len(result.configurations)
    broken = sum(each.state == "broken" for each in result.configurations)
    if broken:
        yield f"{broken} of {tried} configurations broke down (a loss that is no number) and count as worst."
    if result.chosen is None:
        yield "Every configuration broke down: lower the learning rates of the space."
        return
    chosen = result.configurations[result.chosen]
    settings = short_settings(last_settings(result, chosen))
    yield f"Chosen among {tried} configurations: number {chosen.number}: {settings}"
    if result.copies:
        yield "Those are its last settings; they changed on the way, as the report shows."
    for confirmed in result.test:
        yield f"{_who(confirmed)}: {interval(confirmed)}"
    if not result.test and chosen.value is not None:
        yield (
            f"Its value in the search is {brief(chosen.value)}: too good, as the best of many is; "
            "run it on other seeds"
        )


def interval(confirmed: Confirmed) -> str:
    """The interquartile mean over seeds and its interval."""
    numbers = aggregate([math.nan if v is None else v for v in confirmed.values])
    if numbers["iqm"] is None:
        return "broke down"
    spread = ""
    if numbers["low"] is not None and numbers["high"] is not None:
        spread = f" [{brief(numbers['low'])}, {brief(numbers['high'])}]"
    return (
        f"{brief(numbers['iqm'])}{spread} ({interval_words(int(numbers['n'] or 0))}, unseen seeds)"
    )


def _who(confirmed: Confirmed) -> str:
    return "The scenario's own settings" if confirmed.number is None else "These settings"
