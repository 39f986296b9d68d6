"""Synthetic prices: a pattern's closes made into bars, the same for the same pattern, rows, seed and params.

    generate("sine_wave", 500, 0, {"amplitude": 5_000.0})

A bar opens where the last one closed. Within it the log price takes a Brownian bridge from open to
close, whose extremes are the high and the low. Volume is log-normal and says nothing about the price.
"""

import math
import operator
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from annotated_types import Interval
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.environments import suggestion
from proxima.domains.trading.patterns import PATTERNS, Param

GENERATOR_VERSION = 1  # goes up when the same settings would give other prices

ROWS, SEED = Param(0, "Bars.", Interval(ge=2)), Param(0, "Of the prices.", Interval(ge=0))
LIMITS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
START = datetime(2000, 1, 1, tzinfo=UTC)
DAY, MINUTE = 86_400, 60
DAILY_ROWS = 2_900_000  # as many daily bars end before the year 9999, the last that dates can have
SUB_TICKS = 8  # prices within a bar, besides its open
MEAN_VOLUME, VOLUME_SPREAD = 1_000.0, 0.5


def generate(
    pattern: str, rows: int, seed: int, params: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """`rows` bars: time (UTC), open, high, low, close, volume in float64.

    Daily from 2000-01-01; by the minute where so many days would not fit into the calendar.
    """
    rows, seed = int(_checked("data.rows", rows, ROWS)), int(_checked("data.seed", seed, SEED))
    resolved = pattern_params(pattern, params or {})
    # a stream each, so that the closes do not depend on how bars are drawn around them
    price, inside, amount = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    with np.errstate(over="ignore", invalid="ignore"):
        path = PATTERNS[pattern].closes(rows, resolved, price)
    bad = ~(np.isfinite(path) & (path > 0))
    if bad.any():
        bar = int(np.argmax(bad))
        raise ProximaError(
            f"data.params: with these, {pattern} has the price {path[bar]:g} at bar {bar}, which is "
            "no price; bring it back with the drift, slope, amplitude or volatility, or fewer rows"
        )
    high, low = _extremes(path, inside)
    spread = VOLUME_SPREAD * amount.standard_normal(rows)
    return pl.DataFrame(
        {
            "time": _times(rows),
            "open": path[:-1],
            "high": high,
            "low": low,
            "close": path[1:],
            "volume": MEAN_VOLUME * np.exp(spread - VOLUME_SPREAD**2 / 2),
        }
    )


def pattern_params(pattern: str, params: Mapping[str, Any]) -> dict[str, float | int | str]:
    """All settings of a pattern: what is given, else its default."""
    if pattern not in PATTERNS:
        every = f"`proxima generate-data --list` names all: {', '.join(PATTERNS)}"
        hint = suggestion(pattern.lower(), PATTERNS, 1, 0.6, every)
        raise ProximaError(f"data.pattern: no pattern {pattern!r}; {hint}")
    known = PATTERNS[pattern].params
    for name in params:
        if name not in known:
            hint = suggestion(name.lower(), known, 1, 0.6)
            raise ProximaError(f"data.params.{name}: {pattern} has no such setting; {hint}")
    resolved = {
        name: _checked(f"data.params.{name}", params.get(name, param.default), param)
        for name, param in known.items()
    }
    _refuse_impossible_together(pattern, resolved)
    return resolved


def _checked(where: str, value: Any, param: Param) -> float | int | str:
    """The value in its setting's type, if it is one the setting can have."""
    if isinstance(param.default, str):
        if not isinstance(value, str):
            raise ProximaError(f"{where}: expected text, got {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ProximaError(f"{where}: expected a number, got {value!r}")
    if isinstance(param.default, int) and value != int(value):
        raise ProximaError(f"{where}: expected a whole number, got {value!r}")
    for name, words in LIMITS.items():
        limit = getattr(param.limits, name)
        if limit is not None and not getattr(operator, name)(value, limit):
            raise ProximaError(f"{where}: {value:g} is not allowed: must be {words} {limit:g}")
    return int(value) if isinstance(param.default, int) else float(value)


def _refuse_impossible_together(pattern: str, params: Mapping[str, Any]) -> None:
    if pattern == "garch" and (total := params["alpha"] + params["beta"]) >= 1:
        raise ProximaError(
            f"data.params.beta: alpha + beta is {total:g}, the variance would grow for ever; "
            "keep it below 1"
        )
    if pattern == "bootstrap" and not params["source"]:
        raise ProximaError(
            "data.params.source: bootstrap needs the parquet or CSV whose returns it draws; set it"
        )


def _extremes(
    path: NDArray[np.float64], random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """High and low of every bar between the closes of a path, from sub-ticks on a bridge.

    The bridge has the path's own volatility, so that ranges and returns tell the same story.
    """
    start, end = path[:-1], path[1:]
    move = np.log(end / start)
    step = math.sqrt(float(np.mean(move**2)) / SUB_TICKS)
    highest, lowest = np.maximum(start, end), np.minimum(start, end)
    offset = np.zeros(len(move))  # log price over the open
    for left in range(SUB_TICKS, 1, -1):  # what is left of the way is shared by the ticks left
        scatter = step * math.sqrt((left - 1) / left)
        offset += (move - offset) / left + scatter * random.standard_normal(len(move))
        price = start * np.exp(offset)
        np.maximum(highest, price, out=highest)
        np.minimum(lowest, price, out=lowest)
    return highest, lowest


def _times(rows: int) -> pl.Series:
    bar = DAY if rows <= DAILY_ROWS else MINUTE
    stamps = (int(START.timestamp()) + bar * np.arange(rows, dtype=np.int64)) * 1_000_000
    return pl.Series("time", stamps).cast(pl.Datetime("us", "UTC"))
