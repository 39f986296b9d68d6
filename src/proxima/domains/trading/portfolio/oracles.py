"""What one could have made with hindsight: the best constant weights, and perfect foresight.

    best_constant   maximise over the simplex   f(b) = Σ_t log(x_t · b)          x_t = 1 + returns of bar t
    foresight       the best path through cash and single assets, fees included

Whoever knows all returns, and may not borrow, holds one asset or cash at a time: fees are proportional, so
what is best for one unit of value is best for every other. The path is found by dynamic programming.

f is concave. A barrier keeps b inside while Newton's method goes uphill, and shrinks to nothing. How far
from the best an answer is at most follows from its own gradient g: T·log(max_i g_i / T) (Cover 1984), so
nothing has to be trusted.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from proxima.domains.trading.accounting import Floats

GAP = 1e-9  # in log value, that an answer may be short of the best
SHRINK = 0.1  # of the barrier, after every centring
STEPS = 50  # of a centring at most
# A Newton decrement squared, relative to the barrier, below which the barrier may shrink.
CENTRAL = 1e-3


class BestConstant(NamedTuple):
    """Weights (n,), the log value they end with without costs, and how much better any other can be."""

    weights: Floats
    log_value: float
    gap: float


def best_constant(returns: ArrayLike, gap: float = GAP) -> BestConstant:
    """The best constant weights on the simplex over returns (T, n), without costs."""
    growth = 1 + np.asarray(returns, np.float64)
    bars, assets = growth.shape
    weights, barrier = np.full(assets, 1 / assets), 1.0
    while barrier > 0.25 * gap / (bars * assets):
        barrier *= SHRINK
        weights = _centred(growth, weights, barrier)
    value = growth @ weights
    most = float((growth / value[:, None]).mean(axis=0).max())
    return BestConstant(weights, float(np.log(value).sum()), bars * float(np.log(max(most, 1.0))))


def _centred(growth: Floats, weights: Floats, barrier: float) -> Floats:
    """The maximum of mean log(x · b) + barrier · Σ log b over weights that sum to 1."""
    assets = len(weights)
    for _ in range(STEPS):
        ratio = growth / (growth @ weights)[:, None]
        # In units of the weights themselves, so that small ones are as well conditioned as large.
        slope = weights * ratio.mean(axis=0) + barrier
        scaled = ratio * weights
        curvature = scaled.T @ scaled / len(growth) + barrier * np.eye(assets)
        both = np.linalg.solve(curvature, np.stack([slope, weights], axis=1))
        step = both[:, 0] - both[:, 1] * (weights @ both[:, 0]) / (weights @ both[:, 1])
        decrement = float(step @ curvature @ step)
        weights = weights * (1 + step * min(1.0, 0.9 / max(1e-300, float(np.abs(step).max()))))
        weights = weights / weights.sum()
        if decrement < CENTRAL * barrier:
            break
    return weights


def foresight(returns: ArrayLike, fee: float) -> Floats:
    """The weights (T, n) of the path that ends with most over returns (T, n), long only and unborrowed."""
    growth = np.log1p(np.asarray(returns, np.float64))
    bars, assets = growth.shape
    # States are cash, then every asset; what is left of 1 after a trade from one (row) to another (column).
    kept = np.full((assets + 1, assets + 1), np.log1p(-fee) - np.log1p(fee))
    kept[0, :], kept[:, 0] = -np.log1p(fee), np.log1p(-fee)
    np.fill_diagonal(kept, 0.0)
    earned = np.concatenate([np.zeros((bars, 1)), growth], axis=1)
    value = np.full(assets + 1, -np.inf)
    value[0] = 0.0
    came_from = np.empty((bars, assets + 1), np.int64)
    for bar in range(bars):
        reached = value[:, None] + kept
        came_from[bar] = reached.argmax(axis=0)
        value = reached.max(axis=0) + earned[bar]
    weights, state = np.zeros((bars, assets)), int(value.argmax())
    for bar in range(bars - 1, -1, -1):
        if state > 0:
            weights[bar, state - 1] = 1.0
        state = int(came_from[bar, state])
    return weights
