"""What of a file of prices a run has never seen, and how a policy's figures on it are told.

A file that continues the run's data, or that is the run's own file grown longer, is traded from its first new
bar on, and features know the run's past. Any other file is a market of its own: features warm up in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from proxima.core.errors import ProximaError
from proxima.domains.trading import metrics
from proxima.domains.trading.arriving import ANY_GAP, Batch, duration, times
from proxima.domains.trading.market import spacing_of
from proxima.domains.trading.overall import Year
from proxima.domains.trading.splits import day_of
from proxima.domains.trading.stepping import T
from proxima.domains.trading.use import Bars, Operations, R, Usable, past_of
from proxima.report.numbers import brief

OTHER_LENGTH = 1.5  # times the usual distance of two bars, or its inverse: bars of another length
# How many times the largest move of the run's closes a file opens with that continues them.
USUAL_JUMP = 2.0
SHARES = ("total_return", "max_drawdown", "win_rate")
COUNTS = ("trades",)


class Stretch(NamedTuple):
    """New bars with what came before them."""

    bars: pl.DataFrame  # the run's past, where they continue it, and the new ones
    first: int  # row of the first decision
    past: str  # "run" or "none"
    notes: tuple[str, ...]
    where: Callable[[int], str]  # which of the new ones, from 0 → where it is in the file

    @property
    def to_follow(self) -> Bars:
        """The new bars as a policy follows them: without a past its features warm up in the first."""
        return Bars(self.bars, 0 if self.past == "none" else self.first, self.where)


def find_stretch(usable: Usable[R, T], path: Path) -> Stretch:
    """The new bars of a file, after the run's past where they continue it."""
    operations = usable.operations
    batch = operations.read_file(path)
    try:
        past = past_of(usable)
    except ProximaError as failure:
        past, why = operations.no_bars, f"the run's own data cannot be read ({failure})"
    else:
        why = "the bars do not continue those of the run"
    if not past.is_empty() and _continues(operations, past, batch):
        new = operations.new_bars(past, batch, None, ANY_GAP)
        known = batch.frame.height - new.height
        if new.is_empty():
            raise ProximaError(f"{path}: has no bar that the run has not seen")
        notes = (f"left out: {known:,} bars of the run's own data",) if known else ()
        note = f"features know the run's past: the bars follow {day_of(times(past)[-1])}"
        whole = pl.concat([past, new]).rechunk()
        notes = (note, *notes)
        return Stretch(whole, past.height, "run", notes, lambda row: batch.bar(known + row))
    new = operations.new_bars(None, batch, None, ANY_GAP)
    first = operations.first_seen(new)
    if first >= new.height:
        raise ProximaError(
            f"{path}: {new.height:,} bars are too few for the features, which need "
            f"{operations.recipe.bars:,} before a first decision; take more bars"
        )
    note = f"features warm up over the first {first:,} bars: {why}"
    return Stretch(new, first, "none", (note, *batch.notes), batch.bar)


def _continues(operations: Operations[T], past: pl.DataFrame, batch: Batch) -> bool:
    """Whether bars are the run's own and later ones, or follow them as one bar does another."""
    last, first = times(past)[-1], times(batch.frame)[0]
    if first <= last:
        try:
            operations.new_bars(past, batch, None, ANY_GAP)
        except ProximaError:
            return False
        return True
    spacing = spacing_of(times(past))
    step = int((first - last).astype(np.int64))
    closes = past.select(operations.closes).to_numpy()
    largest = np.abs(np.diff(np.log(closes), axis=0)).max(axis=0, initial=0.0)
    opens = batch.frame.select(operations.first_prices).head(1).to_numpy()[0]
    jumps = np.abs(np.log(opens / closes[-1]))
    usual = bool((jumps <= USUAL_JUMP * largest).all())
    return spacing is not None and step <= spacing.longest and usual


def year_for(operations: Operations[T], stretch: Stretch) -> tuple[Year, tuple[str, ...]]:
    """Bars in a year as the run has them, unless these bars are of another length."""
    recipe = operations.recipe
    stamps = times(stretch.bars)[max(0, stretch.first - 1) :]
    if stretch.past == "run" or len(stamps) < 3:
        return Year(recipe.periods_per_year, recipe.periods_from), ()
    run, here = _usual_spacing(operations), float(np.median(np.diff(stamps).astype(np.int64)))
    if run is None or 1 / OTHER_LENGTH <= here / run <= OTHER_LENGTH:
        return Year(recipe.periods_per_year, recipe.periods_from), ()
    note = (
        f"a bar every {duration(here)}, and every {duration(run)} in training: the policy was not made "
        "for such bars; a year is counted in theirs"
    )
    return Year(metrics.bars_per_year(stamps), "the times of the file"), (note,)


def _usual_spacing(operations: Operations[T]) -> float | None:
    """Microseconds between two bars of the run, by its span where its data is gone."""
    data = operations.recipe.data
    if data.rows < 2:
        return None
    ends = np.array([stamp.removesuffix("+00:00") for stamp in (data.first, data.last)], "M8[us]")
    return float((ends[1] - ends[0]).astype(np.int64)) / (data.rows - 1)


def check_decisions(path: Path, stretch: Stretch, steps: int, fill: str) -> None:
    """An error where new bars leave nothing to decide."""
    if steps < 1:
        raise ProximaError(
            f"{path}: leaves no bar to trade on: {stretch.bars.height - stretch.first:,} after the past, and "
            f"a decision that is filled ({fill}) and held needs three; take more bars"
        )


class Figures(NamedTuple):
    """What is told of a policy and of others on the same bars."""

    shown: Mapping[str, str]  # metrics, and what they are called
    agent: Mapping[str, Any]
    others: Mapping[str, Mapping[str, Any]]  # by what they are called
    chance: float | None  # log return of random decisions
    too_good: Sequence[str]


def figure_lines(content: Mapping[str, Any], figures: Figures) -> Iterator[str]:
    """A table of the policy and the others, and what is to be said of it."""
    yield f"{content['data']}: {content['decisions']:,} decisions, {_span(content)}"
    yield from content["notes"]
    shown, agent = figures.shown, figures.agent
    rows = [["", *shown.values()], ["policy", *_cells(shown, agent)]]
    rows += [[name, *_cells(shown, sheet)] for name, sheet in figures.others.items()]
    rows.append(["chance", brief(figures.chance), *[""] * (len(shown) - 1)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        yield "  ".join(cells).rstrip()
    low, high = agent["log_return_low"], agent["log_return_high"]
    if low is not None and high is not None:
        yield f"95 % interval of the policy's log return over bars: {brief(low)} … {brief(high)}"
    for alarm in figures.too_good:
        yield f"Too good to be true? {alarm}."


def _cells(shown: Mapping[str, str], sheet: Mapping[str, Any]) -> list[str]:
    cells = []
    for name in shown:
        value = sheet[name]
        if value is None:
            cells.append("–")
        elif name in SHARES:
            cells.append(f"{100 * value:.1f} %")
        else:
            cells.append(f"{value:,.0f}" if name in COUNTS else f"{value:.3g}")
    return cells


def _span(content: Mapping[str, Any]) -> str:
    return f"{day_of(np.datetime64(content['first']))} … {day_of(np.datetime64(content['last']))}"
