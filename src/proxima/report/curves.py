"""Learning curves of several trials brought onto one grid of steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.report import statistics

GRID_POINTS = 200
MANY = 32  # trials from which on an interval is so narrow that fewer resamples draw the same line
RESAMPLES_OF_MANY = 400
SPREAD = (5, 25, 75, 95)  # percentiles between which many trials are shaded

Curve = tuple[ArrayLike, ArrayLike]  # a trial's evaluation steps and returns


class Band(NamedTuple):
    """What the trials of one run say together, on one grid of steps."""

    steps: NDArray[np.float64]
    iqm: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    trials: int
    failed: int
    """Trials left out: without a point, or whose last return is not finite."""
    held: int
    """Trials that stopped before the last one and keep their last return."""
    spread: NDArray[np.float64]
    """(4, points): the percentiles `SPREAD` of the trials."""


def band(curves: Sequence[Curve], points: int = GRID_POINTS) -> Band:
    """The IQM of the trials and its bootstrap interval on a common grid of steps."""
    cleaned = [_clean(curve) for curve in curves]
    kept = [curve for curve in cleaned if curve is not None]
    failed = len(curves) - len(kept)
    if not kept:
        empty = np.zeros(0)
        return Band(empty, empty, None, None, 0, failed, 0, np.zeros((len(SPREAD), 0)))
    end = max(steps[-1] for steps, _ in kept)
    start = max(steps[0] for steps, _ in kept)  # before it some trial has no return yet
    grid = np.linspace(start, end, points if end > start else 1)
    values = np.stack([np.interp(grid, steps, returns) for steps, returns in kept])
    resamples = statistics.RESAMPLES if len(kept) <= MANY else RESAMPLES_OF_MANY
    interval = statistics.bootstrap_band(values, resamples=resamples)
    low, high = (None, None) if interval is None else interval
    # trials end between chunks, so ends a few percent apart are the same end
    held = sum(bool(steps[-1] < 0.95 * end) for steps, _ in kept)
    iqm = statistics.interquartile_mean(values, axis=0)
    spread = np.percentile(values, SPREAD, axis=0)
    return Band(grid, iqm, low, high, len(kept), failed, held, spread)


def _clean(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The curve's finite points, or None for a trial that failed."""
    steps, returns = (np.asarray(part, dtype=float) for part in curve)
    finite = np.isfinite(returns)
    if not finite.any() or not finite[-1]:
        return None
    return steps[finite], returns[finite]
