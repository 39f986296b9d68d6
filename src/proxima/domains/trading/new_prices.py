"""A trained policy on prices that its run has never seen: the figures of a closing evaluation.

A file that continues the run's data, or that is the run's own file grown longer, is traded from its first new
bar on, and features know the run's past. Any other file is a market of its own: features warm up in it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from proxima.core.errors import ProximaError
from proxima.domains.domain import DataFigures
from proxima.domains.trading import metrics
from proxima.domains.trading.arriving import (
    Batch,
    duration,
    new_bars,
    times,
)
from proxima.domains.trading.judge import (
    Year,
    account_of,
    account_trades,
    assess,
    returns_of,
    stretch_references,
)
from proxima.domains.trading.market import Market, spacing_of
from proxima.domains.trading.ohlcv import read_bars
from proxima.domains.trading.recipe import see
from proxima.domains.trading.results import SplitReferences, SplitResult
from proxima.domains.trading.rollouts import REFERENCES
from proxima.domains.trading.splits import day_of
from proxima.domains.trading.trade_state import NO_BARS
from proxima.domains.trading.trader import Trader
from proxima.domains.trading.use import Bars, Usable, answers, load_usable, past_of
from proxima.report.numbers import brief
from proxima.run.results import to_json

OTHER_LENGTH = 1.5  # times the usual distance of two bars, or its inverse: bars of another length
USUAL_JUMP = (
    2.0  # times the largest move of the run's closes that a file which continues them opens with
)
SHOWN = {
    "log_return": "log return",
    "total_return": "return",
    "sharpe": "Sharpe",
    "max_drawdown": "drawdown",
    "trades": "trades",
    "win_rate": "win rate",
    "turnover": "turnover",
}
SHARES = ("total_return", "max_drawdown", "win_rate")


class Stretch(NamedTuple):
    """New bars with what came before them."""

    bars: pl.DataFrame  # the run's past, where they continue it, and the new ones
    first: int  # row of the first decision
    past: str  # "run" or "none"
    notes: tuple[str, ...]


def evaluate_prices(directory: Path, path: Path) -> DataFigures:
    """An exported policy on a file of prices, beside others on the same bars."""
    usable = load_usable(directory)
    env = usable.reader.account
    stretch = _stretch(usable, path)
    year, notes = _year(usable, stretch)
    notes = (*stretch.notes, *notes)
    market = _market(stretch, env.window)
    steps = len(returns_of(market, env)) if len(market.close) > 2 else 0
    if steps < 1:
        raise ProximaError(
            f"{path}: leaves no bar to trade on: {stretch.bars.height - stretch.first:,} after the past, and "
            f"a decision that is filled ({env.fill}) and held needs three; take more bars"
        )
    before = 0 if stretch.past == "none" else stretch.first
    bars = Bars(stretch.bars, before, str(path), 0)
    followed = answers(usable.reader, usable.act, Trader(1.0), bars)
    targets = [answer.target for _, answer in followed if answer.target is not None]
    done = account_of(market, env, np.array(targets[:steps]))
    compared = stretch_references(market, env, year)
    sheet = metrics.tear_sheet(done, account_trades(market, env, done), year.bars)
    result = assess(done, sheet, False, compared)
    span = {
        "policy": str(usable.directory),
        "data": str(path),
        "decisions": steps,
        "first": str(market.time[env.window - 1]),
        "last": str(market.time[-1]),
        "past": stretch.past,
        "notes": list(notes),
        "periods_per_year": year.bars,
    }
    content = span | to_json(result) | {"references": to_json(compared)}
    return DataFigures(content, list(_lines(content, result, compared)))


def _stretch(usable: Usable, path: Path) -> Stretch:
    """The new bars of a file, after the run's past where they continue it."""
    bars = read_bars(path)
    batch = Batch(str(path), 0, bars.frame, bars.has_volume)
    try:
        past = past_of(usable)
    except ProximaError as failure:
        past, why = NO_BARS, f"the run's own data cannot be read ({failure})"
    else:
        why = "the bars do not continue those of the run"
    if not past.is_empty() and _continues(usable, past, batch):
        new = new_bars(past, batch, None, usable.reader.needs_volume)
        known = bars.frame.height - new.height
        if new.is_empty():
            raise ProximaError(f"{path}: has no bar that the run has not seen")
        notes = (f"left out: {known:,} bars of the run's own data",) if known else ()
        note = f"features know the run's past: the bars follow {day_of(times(past)[-1])}"
        return Stretch(pl.concat([past, new]).rechunk(), past.height, "run", (note, *notes))
    new = new_bars(None, batch, None, usable.reader.needs_volume)
    first = see(usable.reader, new).ready
    if first >= new.height:
        raise ProximaError(
            f"{path}: {new.height:,} bars are too few for the features, which need "
            f"{usable.reader.recipe.bars:,} before a first decision; take more bars"
        )
    note = f"features warm up over the first {first:,} bars: {why}"
    return Stretch(new, first, "none", (note, *bars.notes))


def _continues(usable: Usable, past: pl.DataFrame, batch: Batch) -> bool:
    """Whether bars are the run's own and later ones, or follow them as one bar does another."""
    last, first = times(past)[-1], times(batch.frame)[0]
    if first <= last:
        try:
            new_bars(past, batch, None, usable.reader.needs_volume)
        except ProximaError:
            return False
        return True
    spacing = spacing_of(times(past))
    step = int((first - last).astype(np.int64))
    closes = past["close"].to_numpy()
    largest = np.abs(np.diff(np.log(closes))).max(initial=0.0)
    jump = abs(np.log(batch.frame["open"][0] / closes[-1]))
    return spacing is not None and step <= spacing.longest and jump <= USUAL_JUMP * largest


def _market(stretch: Stretch, window: int) -> Market:
    """The new bars from the first decision's window on; nothing here looks at features."""
    start = stretch.first - window + 1
    frame = stretch.bars.slice(start)
    prices = {name: frame[name].to_numpy() for name in frame.columns if name != "time"}
    empty = np.zeros((frame.height, 0), np.float32)
    return Market(time=times(frame), **prices, features=empty)


def _year(usable: Usable, stretch: Stretch) -> tuple[Year, tuple[str, ...]]:
    """Bars in a year as the run has them, unless these bars are of another length."""
    recipe = usable.reader.recipe
    stamps = times(stretch.bars)[max(0, stretch.first - 1) :]
    if stretch.past == "run" or len(stamps) < 3:
        return Year(recipe.periods_per_year, recipe.periods_from), ()
    run, here = _usual_spacing(usable), float(np.median(np.diff(stamps).astype(np.int64)))
    if run is None or 1 / OTHER_LENGTH <= here / run <= OTHER_LENGTH:
        return Year(recipe.periods_per_year, recipe.periods_from), ()
    note = (
        f"a bar every {duration(here)}, and every {duration(run)} in training: the policy was not made "
        "for such bars; a year is counted in theirs"
    )
    return Year(metrics.bars_per_year(stamps), "the times of the file"), (note,)


def _usual_spacing(usable: Usable) -> float | None:
    """Microseconds between two bars of the run, by its span where its data is gone."""
    data = usable.reader.recipe.data
    if data.rows < 2:
        return None
    ends = np.array([stamp.removesuffix("+00:00") for stamp in (data.first, data.last)], "M8[us]")
    return float((ends[1] - ends[0]).astype(np.int64)) / (data.rows - 1)


def _lines(
    content: dict[str, Any], result: SplitResult, compared: SplitReferences
) -> Iterator[str]:
    """A table of the policy and the others, and what is to be said of it."""
    yield f"{content['data']}: {content['decisions']:,} decisions, {_span(content)}"
    yield from content["notes"]
    rows = [["", *SHOWN.values()], ["policy", *_cells(result.agent)]]
    rows += [
        [name.replace("perfect ", ""), *_cells(compared[key])]
        for key, name in REFERENCES.items()
        if compared[key] is not None
    ]
    chance = compared.random["log_return"]
    rows.append(["chance", brief(chance.mean), *[""] * (len(SHOWN) - 1)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        yield "  ".join(cells).rstrip()
    low, high = result.agent["log_return_low"], result.agent["log_return_high"]
    if low is not None and high is not None:
        yield f"95 % interval of the policy's log return over bars: {brief(low)} … {brief(high)}"
    for alarm in result.too_good:
        yield f"Too good to be true? {alarm}."


def _cells(sheet: Any) -> list[str]:
    cells = []
    for name in SHOWN:
        value = sheet[name]
        if value is None:
            cells.append("–")
        elif name in SHARES:
            cells.append(f"{100 * value:.1f} %")
        else:
            cells.append(f"{value:,.0f}" if name == "trades" else f"{value:.3g}")
    return cells


def _span(content: dict[str, Any]) -> str:
    return f"{day_of(np.datetime64(content['first']))} … {day_of(np.datetime64(content['last']))}"
