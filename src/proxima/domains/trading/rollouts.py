"""What a rollout frame says besides its columns: value, drawdown, rolling Sharpe, calendar returns.

A rollout is one pass of a policy over one split. Its frame has a row per decision: time, close,
fill_price, target, weight, log_return, equity, drawdown.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("time", "fill_price", "target", "weight", "log_return")
EARNINGS = ("time", "log_return")
Floats = NDArray[np.float64]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
FEWEST_CELLS = 3  # of a calendar: less says no more than the total does


class _Kind(NamedTuple):
    """A calendar: what a cell is, numpy's units of a cell and of a row, names of the columns."""

    unit: str
    cell: str
    row: str
    columns: tuple[str, ...]


_CALENDARS = (
    _Kind("month", "M", "Y", _MONTHS),
    _Kind("day", "D", "M", tuple(str(day) for day in range(1, 32))),
    _Kind("hour", "h", "D", tuple(f"{hour}h" for hour in range(24))),
)


class Calendar(NamedTuple):
    """Returns by calendar time, as shares: 0.02 is two percent."""

    unit: str
    """What a cell is: a month, a day or an hour."""
    rows: list[str]
    columns: tuple[str, ...]
    values: Floats
    """(rows, columns), NaN where there was no bar."""
    totals: Floats
    """(rows,)"""


def read_rollout(path: Path, columns: Sequence[str] = COLUMNS) -> "pl.DataFrame":
    """The frame of one rollout, as far as pictures and tables use it."""
    import polars as pl

    return pl.read_parquet(path, columns=list(columns))


def column(frame: "pl.DataFrame", name: str) -> Floats:
    """A column of numbers."""
    return frame[name].to_numpy().astype(np.float64)


def times(frame: "pl.DataFrame") -> NDArray[np.datetime64]:
    """When each decision was taken, in UTC."""
    return frame["time"].dt.replace_time_zone(None).dt.cast_time_unit("us").to_numpy()


def log_value(log_returns: ArrayLike) -> Floats:
    """ln(value / first value) before the first bar and after every bar, (T + 1,)."""
    return np.concatenate([[0.0], np.cumsum(np.asarray(log_returns, dtype=float))])


def drawdown(log_values: Floats) -> Floats:
    """How far below its highest so far the value is, as a share: 0 or less."""
    return np.expm1(log_values - np.maximum.accumulate(log_values))


def rolling_sharpe(log_returns: ArrayLike, window: int, periods_per_year: float) -> Floats:
    """The annualised Sharpe ratio of each bar and the window − 1 before it, (T,).

    NaN before the first whole window, and where a window's returns are all the same.
    """
    returns = np.expm1(np.asarray(log_returns, dtype=float))
    result = np.full(len(returns), np.nan)
    if window < 2 or len(returns) < window:
        return result
    middle = returns.mean()  # taken off before squaring, so that little is lost to rounding
    sums, squares = (
        np.cumsum(np.concatenate([[0.0], part]))
        for part in (returns - middle, (returns - middle) ** 2)
    )
    mean = (sums[window:] - sums[:-window]) / window
    variance = ((squares[window:] - squares[:-window]) - window * mean**2) / (window - 1)
    constant = _constant(returns, window)
    spread = np.sqrt(np.where(constant, np.nan, np.maximum(variance, 0.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        sharpe = (mean + middle) / spread * np.sqrt(periods_per_year)
    result[window - 1 :] = np.where(np.isfinite(sharpe), sharpe, np.nan)
    return result


def calendar(time: NDArray[np.datetime64], log_returns: ArrayLike) -> Calendar:
    """Returns by the coarsest calendar with a few cells: months of years, days of months, hours."""
    enough = (kind for kind in _CALENDARS if _cells(time, kind.cell) >= FEWEST_CELLS)
    unit, cell, row, columns = next(enough, _CALENDARS[-1])
    cells = time.astype(f"M8[{cell}]")
    rows = cells.astype(f"M8[{row}]")
    names, row_places = np.unique(rows, return_inverse=True)
    column_places = (cells - rows.astype(f"M8[{cell}]")).astype(np.int64)
    logs = np.full((len(names), len(columns)), np.nan)
    logs[row_places, column_places] = 0.0
    np.add.at(logs, (row_places, column_places), np.asarray(log_returns, dtype=float))
    with np.errstate(over="ignore"):  # perfect foresight may earn more than a float holds
        values, totals = np.expm1(logs), np.expm1(np.nansum(logs, axis=1))
    return Calendar(unit, [str(name) for name in names], columns, values, totals)


def _cells(time: NDArray[np.datetime64], unit: str) -> int:
    return len(np.unique(time.astype(f"M8[{unit}]")))


def _constant(returns: Floats, window: int) -> NDArray[np.bool_]:
    """Whether each window holds one number only."""
    changes = np.concatenate([[0], np.cumsum(returns[1:] != returns[:-1])])
    return changes[window - 1 :] == changes[: len(changes) - window + 1]
