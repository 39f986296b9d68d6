"""What a handful of trials says: interquartile mean and expanded bootstrap interval, of curves too.

The trial is the unit. Episodes of one trial share one policy, so they are averaged first
(`trial_means`) and only trials are resampled; resampling episodes would make the interval say how
well one policy was measured, not how well the algorithm learns.
(Agarwal et al. 2021, arXiv 2108.13264)

The interval lies between quantiles of resampled IQMs, further out than 2.5 % and 97.5 %, as Student's t lies
further out than the normal (Hesterberg 2015, arXiv 1411.5279, the expanded percentile interval): plain
percentiles of five trials contain the truth nine times in ten. docs/statistics.md has what was measured.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
FEWEST = 5  # trials from which on an interval is of that level
RESAMPLES = 4000  # the outermost quantile, 0.24 % of six trials, then rests on 10 resamples
MANY = 32  # trials from which on an interval is so narrow that fewer resamples draw the same line
RESAMPLES_OF_MANY = 400
GRID_POINTS = 200
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


def interquartile_mean(values: ArrayLike, axis: int | None = None) -> Any:
    """The mean of what is left after cutting the floor(n / 4) smallest and largest values.

    Whole values are cut and none is weighted by a fraction, as in scipy's trim_mean(values, 0.25)
    and so in rliable: of one to three values it is the plain mean. NaN or nothing in is NaN out.
    """
    array = np.asarray(values, dtype=float)
    if axis is None:
        array, axis = array.ravel(), 0
    count = array.shape[axis]
    if count == 0:
        return np.full(np.delete(array.shape, axis), np.nan)[()]
    cut = count // 4
    middle = np.take(np.sort(array, axis=axis), range(cut, count - cut), axis=axis)
    # sort puts NaN last, where the cut would hide it
    return np.where(np.isnan(array).any(axis=axis), np.nan, middle.mean(axis=axis))[()]


def bootstrap_interval(values: ArrayLike, resamples: int = RESAMPLES) -> tuple[float, float] | None:
    """The interval of the IQM over trials, of which those without a finite value are dropped.

    None where fewer than two are left, for one trial says nothing about another.
    """
    ends = bootstrap_band(_finite(values)[:, None], resamples)
    return None if ends is None else (float(ends[0][0]), float(ends[1][0]))


def coverage(trials: int) -> int:
    """How many in a hundred intervals of so many trials contain the truth.

    Resampling never leaves the range of the trials, and the range of fewer than five contains even their
    median only 1 − 2^(1 − n) of the time.
    """
    return round(100 * (LEVEL if trials >= FEWEST else 1 - 0.5 ** (trials - 1)))


def interval_words(trials: int) -> str:
    """What an interval over so many trials is called."""
    return f"{coverage(trials)} % interval"


def aggregate(values: ArrayLike) -> dict[str, float | int | None]:
    """The IQM and its interval over trials, ready for JSON.

    `n` counts the values used, `failed` the non-finite ones left out; what cannot be said is None.
    """
    used = _finite(values)
    low, high = bootstrap_interval(values) or (None, None)
    return {
        "iqm": float(interquartile_mean(used)) if len(used) else None,
        "low": low,
        "high": high,
        "n": len(used),
        "failed": int(np.size(values)) - len(used),
    }


def trial_means(returns_per_trial: Iterable[Sequence[float]]) -> NDArray[np.float64]:
    """One number per trial, its mean return; NaN (failed) for no episodes or a non-finite one."""
    trials = [np.asarray(returns, dtype=float) for returns in returns_per_trial]
    means = [t.mean() if t.size and np.isfinite(t).all() else np.nan for t in trials]
    return np.asarray(means, dtype=float)


def band(curves: Sequence[Curve], points: int = GRID_POINTS) -> Band:
    """The IQM of the trials and its bootstrap interval on a common grid of steps."""
    kept = []
    for curve in curves:
        steps, returns = (np.asarray(part, dtype=float) for part in curve)
        finite = np.isfinite(returns)
        if finite[-1:].any():
            kept.append((steps[finite], returns[finite]))
    failed = len(curves) - len(kept)
    if not kept:
        empty = np.zeros(0)
        return Band(empty, empty, None, None, 0, failed, 0, np.zeros((len(SPREAD), 0)))
    end = max(steps[-1] for steps, _ in kept)
    start = max(steps[0] for steps, _ in kept)  # before it some trial has no return yet
    grid = np.linspace(start, end, points if end > start else 1)
    values = np.stack([np.interp(grid, steps, returns) for steps, returns in kept])
    resamples = RESAMPLES if len(kept) <= MANY else RESAMPLES_OF_MANY
    low, high = bootstrap_band(values, resamples) or (None, None)
    # trials end between chunks, so ends a few percent apart are the same end
    held = sum(bool(steps[-1] < 0.95 * end) for steps, _ in kept)
    iqm = interquartile_mean(values, axis=0)
    spread = np.percentile(values, SPREAD, axis=0)
    return Band(grid, iqm, low, high, len(kept), failed, held, spread)


def bootstrap_band(
    curves: NDArray[np.float64], resamples: int = RESAMPLES
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The pointwise interval of the IQM of (trials, points) curves, whole trials resampled."""
    count = len(curves)
    if count < 2:
        return None
    curves = np.sort(curves, axis=0)  # point by point: the order of the trials says nothing
    drawn = np.random.default_rng(0).integers(count, size=(resamples, count))
    cut = count // 4
    ends = sorted({cut, count - cut - 1})
    # One point at a time: all at once would hold resamples × trials × points numbers. The middle half
    # need not be sorted to be averaged.
    middles = (np.partition(point[drawn], ends, axis=1)[:, cut : count - cut] for point in curves.T)
    low, high = _outer(np.transpose([middle.mean(axis=1) for middle in middles]), count)
    return low, high


def paired_comparison(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]
) -> dict[str, float | int | str | None]:
    """How much better `first` is: P(first > second), ties half, and the mean difference.

    Inputs are (trials, episodes) returns on the same evaluation episodes. Trial k is paired with
    trial k and episode with episode; pairs with a failed trial are left out. Trial pairs are
    resampled; of a single pair its episodes are, and `unit` says so: that interval is about those
    two policies, not about what a new trial would give.
    """
    paired = list(zip(first, second, strict=False))
    pairs = [pair for pair in paired if np.isfinite(trial_means(pair)).all()]
    if any(len(one) != len(other) for one, other in pairs):
        raise ValueError("paired trials must have been evaluated on the same episodes")
    unit = "trial" if len(pairs) > 1 else "episode"
    differences = [np.subtract(one, other, dtype=float) for one, other in pairs]
    improvements = [(d > 0) + 0.5 * (d == 0) for d in differences]
    report: dict[str, float | int | str | None] = {
        "pairs": len(pairs),
        "failed": len(paired) - len(pairs),
        "unit": unit,
    }
    for name, scores in (("difference", differences), ("probability", improvements)):
        units = np.sort([*map(np.mean, scores)] if unit == "trial" else np.ravel(scores))
        report["n"] = len(units)
        report[name] = float(units.mean()) if len(units) else None
        report[f"{name}_low"], report[f"{name}_high"] = mean_interval(units) or (None, None)
    return report


def mean_interval(values: ArrayLike, resamples: int = RESAMPLES) -> tuple[float, float] | None:
    """The bootstrap interval of the plain mean of finite values; None of fewer than two."""
    units = np.sort(np.asarray(values, dtype=float))  # their order says nothing
    if len(units) < 2:
        return None
    drawn = np.random.default_rng(0).integers(len(units), size=(resamples, len(units)))
    low, high = _outer(units[drawn].mean(axis=1), len(units)).tolist()
    return low, high


def _outer(resampled: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The two quantiles (2, ...) of resampled means between which the interval of `count` values lies."""
    from scipy.special import ndtr, stdtrit

    # What Student's t and the divisor n − 1 are to an interval of a mean, these quantiles are to resampling.
    tail = ndtr(np.sqrt(count / (count - 1)) * stdtrit(count - 1, (1 - LEVEL) / 2))
    return np.quantile(resampled, [tail, 1 - tail], axis=0)


def _finite(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=float)
    return array[np.isfinite(array)]
