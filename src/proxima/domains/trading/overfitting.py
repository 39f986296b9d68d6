"""The probability of backtest overfitting: how often the best of one half of time is a loser in the other.

Bailey, Borwein, López de Prado, Zhu 2017, "The Probability of Backtest Overfitting" (CSCV, combinatorially
symmetric cross-validation):

    divide the bars into S blocks of equal length
    for every choice of S/2 of them:   the best strategy on these ─► its rank on the others
    the share of choices in which it ranks in the lower half

Strategies that are all noise give one half; one that is better everywhere gives 0.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.domains.trading.accounting import Floats

BLOCKS = 16  # as in the paper: 12,870 ways to choose half of them
LEAST_BARS = 4  # of a block


class Overfitting(NamedTuple):
    """What cross-validation says of choosing the best of several strategies."""

    probability: float  # NaN where it cannot be computed
    strategies: int
    blocks: int


def backtest_overfitting(returns: Floats, blocks: int = BLOCKS) -> Overfitting:
    """Of strategies whose simple returns per bar are columns, (T, N), chosen by their Sharpe ratio."""
    bars, strategies = returns.shape
    blocks = min(blocks, bars // LEAST_BARS // 2 * 2)
    if strategies < 2 or blocks < 2:
        return Overfitting(math.nan, strategies, max(blocks, 0))
    rows = bars // blocks * blocks  # what does not fill a block is left out at the beginning
    parts = returns[bars - rows :].reshape(blocks, -1, strategies)
    sums, squares = parts.sum(axis=1), (parts**2).sum(axis=1)
    chosen = np.array(list(combinations(range(blocks), blocks // 2)))
    inside = np.zeros((len(chosen), blocks))
    np.put_along_axis(inside, chosen, 1.0, axis=1)
    half = rows // 2
    trained = _sharpes(inside @ sums, inside @ squares, half)
    tested = _sharpes((1 - inside) @ sums, (1 - inside) @ squares, half)
    best = np.argmax(trained, axis=1)
    reached = np.take_along_axis(tested, best[:, None], axis=1)
    # Ties share the middle of their ranks: strategies that never trade are all as good as each other.
    below, equal = (tested < reached).sum(axis=1), (tested == reached).sum(axis=1)
    rank = (below + (equal + 1) / 2) / (strategies + 1)
    lower = np.where(rank == 0.5, 0.5, rank < 0.5)
    return Overfitting(float(lower.mean()), strategies, blocks)


def _sharpes(sums: Floats, squares: Floats, bars: int) -> NDArray[np.float64]:
    """Mean over deviation of each strategy's bars; 0 where it never moved."""
    mean = sums / bars
    variance = np.maximum(squares / bars - mean**2, 0.0)
    moves = variance > 1e-24
    return np.where(moves, mean / np.sqrt(np.where(moves, variance, 1.0)), 0.0)


def overfitting_of(root: Path, log_returns: Sequence[Floats]) -> Overfitting:
    """Over the walks of this run and of the experiment's earlier runs over the same bars."""
    times = pl.read_parquet(root / "rollouts" / "walk_0_test.parquet", columns=["time"])
    columns = [np.expm1(each) for each in log_returns]
    for path in sorted(root.parent.glob("*/rollouts/walk_*_test.parquet")):
        if root not in path.parents:
            frame = pl.read_parquet(path, columns=["time", "log_return"])
            if frame.select("time").equals(times):
                columns.append(np.expm1(frame["log_return"].to_numpy()))
    return backtest_overfitting(np.stack(columns, axis=1))
