"""The best constant rebalanced portfolio in hindsight: the weights that, kept at every bar, end with most.

    maximise over the simplex   f(b) = Σ_t log(x_t · b)          x_t = 1 + returns of bar t

f is concave. A barrier keeps b inside while Newton's method goes uphill, and shrinks to nothing. How far
from the best an answer is at most follows from its own gradient g: T·log(max_i g_i / T) (Cover 1984), so
nothing has to be trusted.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

GAP = 1e-9  # in log value, that an answer may be short of the best
SHRINK = 0.1  # of the barrier, after every centring
STEPS = 50  # of a centring at most
ALMOST = (
    1e-12  # a Newton decrement squared, relative to the barrier, below which a point is central
)


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
        if decrement < ALMOST * barrier:
            break
    return weights
