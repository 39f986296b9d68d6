"""Recorded rollouts, and what they say besides their columns: value, rolling Sharpe, calendar returns.

A rollout is one pass of a policy over one split. Its frame has a row per decision: time, close,
fill_price, target, weight, log_return, equity, drawdown.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.domains.trading.accounting import Floats
from proxima.report.page import RunData

if TYPE_CHECKING:
    import polars as pl

# What others would have made of the same prices, as a report calls them.
REFERENCES = {
    "buy_and_hold": "buy and hold",
    "momentum": "momentum",
    "model": "best rule",
    "foresight": "perfect foresight",
}
COLUMNS = ["time", "fill_price", "target", "weight", "log_return"]
TRADES = "trades/test.parquet"  # in a trial's folder
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
FEWEST_CELLS = 3  # of a calendar: less says no more than the total does
# Calendars: what a cell is, numpy's units of a cell and of a row, names of the columns.
CALENDARS = (
    ("month", "M", "Y", MONTHS),
    ("day", "D", "M", tuple(str(day) for day in range(1, 32))),
    ("hour", "h", "D", tuple(f"{hour}h" for hour in range(24))),
)


class Calendar(NamedTuple):
    """Returns by calendar time, as shares: 0.02 is two percent."""

    unit: str  # what a cell is: a month, a day or an hour
    rows: list[str]
    columns: tuple[str, ...]
    values: Floats  # (rows, columns), NaN where there was no bar
    totals: Floats  # (rows,)


class Rollouts(NamedTuple):
    """What was recorded of a run on the test split, as far as the files exist."""

    trials: Mapping[int, "pl.DataFrame"]
    references: Mapping[str, "pl.DataFrame"]
    periods_per_year: float
    borders: tuple[int, ...] = ()  # bars at which another fold begins; trials are then whole walks


def read_rollouts(
    run: RunData,
    names: Iterable[str] = REFERENCES,
    columns: Sequence[str] = COLUMNS,
    own_columns: Sequence[str] | None = COLUMNS,
) -> Rollouts:
    """The frames of a run on the test split, as far as the files exist.

    `names` are those of references, of which `columns` are read; of trials it is `own_columns`, or all.
    """
    import polars as pl

    walk, walked = run.summary.details.walk, run.directory / "rollouts"
    trials = {k: run.trial(k) / "rollouts" / "test.parquet" for k in range(len(run.summary.trials))}
    if walk is not None:
        trials = {k: walked / f"walk_{k}_test.parquet" for k in range(len(walk.seeds))}
    others = {name: walked / f"{name}_test.parquet" for name in names}
    kept, own = list(columns), None if own_columns is None else list(own_columns)
    return Rollouts(
        {k: pl.read_parquet(path, columns=own) for k, path in trials.items() if path.is_file()},
        {k: pl.read_parquet(path, columns=kept) for k, path in others.items() if path.is_file()},
        periods_per_year(run),
        () if walk is None else tuple(accumulate(fold.bars for fold in walk.folds[:-1])),
    )


def end_to_end(folds: Sequence["pl.DataFrame"], log_value: Floats) -> "pl.DataFrame":
    """The rollouts of folds as one; `log_value` is that of their joined account."""
    import polars as pl

    from proxima.domains.trading.metrics import drawdowns

    equity = pl.Series("equity", np.exp(log_value[1:]))
    drawdown = pl.Series("drawdown", drawdowns(log_value)[1:])
    return pl.concat(folds).with_columns(equity, drawdown)


def periods_per_year(run: RunData) -> float:
    """Bars in a year that a run's annual figures assume."""
    noted = run.summary.details.periods_per_year
    return run.scenario["data"]["periods_per_year"] if noted is None else noted


def read_trades(run: RunData, trial: int) -> "pl.DataFrame | None":
    """A trial's trades on the test split, where they were written."""
    import polars as pl

    path = run.trial(trial) / TRADES
    return pl.read_parquet(path) if path.is_file() else None


def times(frame: "pl.DataFrame") -> NDArray[np.datetime64]:
    """When each decision was taken, in UTC."""
    return frame["time"].dt.replace_time_zone(None).dt.cast_time_unit("us").to_numpy()


def rolling_sharpe(log_returns: ArrayLike, window: int, periods_per_year: float) -> Floats:
    """The annualised Sharpe ratio of each bar and the window − 1 before it, (T,).

    NaN before the first whole window, and where a window's returns are all the same.
    """
    import polars as pl

    returns = pl.Series(np.expm1(np.asarray(log_returns, dtype=float)))
    moves = (returns.rolling_max(window) > returns.rolling_min(window)).fill_null(False)
    sharpe = returns.rolling_mean(window) / returns.rolling_std(window) * periods_per_year**0.5
    return np.where((moves & sharpe.is_finite()).to_numpy(), sharpe.to_numpy(), np.nan)


def calendar(time: NDArray[np.datetime64], log_returns: ArrayLike) -> Calendar:
    """Returns by the coarsest calendar with a few cells: months of years, days of months, hours."""
    fine_enough = (
        kind for kind in CALENDARS if len(np.unique(time.astype(f"M8[{kind[1]}]"))) >= FEWEST_CELLS
    )
    unit, cell, row, columns = next(fine_enough, CALENDARS[-1])
    cells = time.astype(f"M8[{cell}]")
    rows = cells.astype(f"M8[{row}]")
    names, down = np.unique(rows, return_inverse=True)
    across = (cells - rows.astype(f"M8[{cell}]")).astype(np.int64)
    logs = np.full((len(names), len(columns)), np.nan)
    logs[down, across] = 0.0
    np.add.at(logs, (down, across), np.asarray(log_returns, dtype=float))
    with np.errstate(over="ignore"):  # perfect foresight may earn more than a float holds
        values, totals = np.expm1(logs), np.expm1(np.nansum(logs, axis=1))
    return Calendar(unit, [str(name) for name in names], columns, values, totals)
