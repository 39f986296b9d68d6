"""What the table of configurations says: the best so far, what each setting did, and what mattered.

The importance of a setting is the share of the values' variance that lies between its bins, corrected for
what bins explain by chance (Kelley's ε², as in an analysis of variance):

    ε² = (SSB − (k − 1) · MSW) / SST,   MSW = SSW / (n − k),   of n values in k bins

Configurations without a value broke down; for importance they count as the worst value that was seen.
Those that were stopped early count with the value they had.
"""

from itertools import combinations
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.report.statistics import MANY, RESAMPLES, RESAMPLES_OF_MANY, mean_interval
from proxima.tune.axes import Axis, Bins, axes_of, column, cut, positions
from proxima.tune.results import SearchResult

FEWEST = 8  # configurations from which on something can be said about settings
MOST_BINS = 6
MOST_PAIR_BINS = 5
SHUFFLES = 200  # of which the largest share in 20 is the mark of chance


class BestSoFar(NamedTuple):
    """The best value known after so many environment steps of the whole search, where it changed."""

    steps: NDArray[np.float64]
    values: NDArray[np.float64]


class Slice(NamedTuple):
    """The configurations in one bin of a setting."""

    place: float  # on the setting's axis: the middle of its values
    first: float  # the least of its values' places, and the greatest
    last: float
    mean: float | None  # None: all of them broke down
    low: float | None  # an interval of the mean; None of fewer than two
    high: float | None
    known: int  # configurations with a value
    broken: int


class Pair(NamedTuple):
    """Two settings, and the share of the variance that both explain together; None: too few values."""

    first: str
    second: str
    share: float | None


class Importance(NamedTuple):
    """What settings explain of the values' variance."""

    # By path, the largest first; a setting with too few values per bin has none.
    shares: dict[str, float]
    pairs: tuple[Pair, ...]  # the largest first
    chance: float  # below it, shares are not told apart from chance (one search in 20 exceeds it)


def better(result: SearchResult) -> float:
    """1 where higher values are better, −1 where lower ones are."""
    lower = result.direction == "minimise" or result.objective == "steps_to_target"
    return -1.0 if lower else 1.0


def values_of(result: SearchResult) -> NDArray[np.float64]:
    """The value of every configuration, NaN of those that have none."""
    values = [np.nan if each.value is None else each.value for each in result.configurations]
    array = np.array(values, dtype=float)
    return np.where(np.isfinite(array), array, np.nan)


def ranks(result: SearchResult) -> list[int]:
    """Positions of the configurations in the table, the best first, those without a value last."""
    values = better(result) * values_of(result)
    return np.argsort(-values, kind="stable").tolist()  # NaN sorts last


def best_so_far(result: SearchResult) -> BestSoFar:
    """The best value over the environment steps of the search, a point for each that was better."""
    finished = np.array([each.finished for each in result.configurations], dtype=float)
    values = better(result) * values_of(result)
    order = np.argsort(finished, kind="stable")
    order = order[np.isfinite(values[order])]
    best = np.maximum.accumulate(values[order])
    changed = np.diff(best, prepend=-np.inf) > 0
    return BestSoFar(finished[order][changed], better(result) * best[changed])


def slices(result: SearchResult) -> dict[str, tuple[Slice, ...]]:
    """By setting, what the configurations of each bin came to; bins without any are left out."""
    if not result.configurations:
        return {}
    values = values_of(result)
    most = _most_bins(len(values))
    return {axis.path: _slices_of(axis, result, values, most) for axis in axes_of(result)}


def _slices_of(
    axis: Axis, result: SearchResult, values: NDArray[np.float64], most: int
) -> tuple[Slice, ...]:
    places = positions(axis, column(result, axis.path))
    bins = cut(axis, places, most)
    inside = (
        (places[bins.labels == label], values[bins.labels == label]) for label in range(bins.size)
    )
    return tuple(_slice(where, reached) for where, reached in inside if len(where))


def _slice(places: NDArray[np.float64], values: NDArray[np.float64]) -> Slice:
    known = values[np.isfinite(values)]
    resamples = RESAMPLES if len(known) <= MANY else RESAMPLES_OF_MANY
    low, high = mean_interval(known, resamples) or (None, None)
    mean = float(known.mean()) if len(known) else None
    span = float(places.min()), float(places.max())
    return Slice(float(places.mean()), *span, mean, low, high, len(known), len(values) - len(known))


def importance(result: SearchResult) -> Importance | None:
    """What settings explain, alone and in pairs; None where nothing can be said.

    That is so of fewer than `FEWEST` configurations, and where all have the same value or none.
    """
    values = _broken_as_worst(result)
    if len(values) < FEWEST or not np.ptp(values) > 0:
        return None
    axes = axes_of(result)
    single = {axis.path: _bins(result, axis, _most_bins(len(values))) for axis in axes}
    shares = {path: variance_share(bins.labels, values) for path, bins in single.items()}
    known = {path: share for path, share in shares.items() if share is not None}
    order = sorted(known, key=known.__getitem__, reverse=True)
    chance = _chance([single[path].labels for path in known], values)
    return Importance({path: known[path] for path in order}, _pairs(result, axes, known), chance)


def pair_means(
    result: SearchResult, first: Axis, second: Axis
) -> tuple[Bins, Bins, NDArray[np.float64]]:
    """The bins of two settings, and the mean value in each cell (second, first); NaN where it is empty."""
    values = _broken_as_worst(result)
    across, up = (_bins(result, axis, _most_pair_bins(len(values))) for axis in (first, second))
    cells = up.labels * across.size + across.labels
    size = across.size * up.size
    counts = np.bincount(cells, minlength=size)
    sums = np.bincount(cells, weights=values, minlength=size)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return across, up, means.reshape(up.size, across.size)


def variance_share(labels: NDArray[np.int64], values: NDArray[np.float64]) -> float | None:
    """ε² of values in labelled bins, at least 0; None with fewer than two values per bin on average."""
    counts = np.bincount(labels)
    used = counts > 0
    count, bins = len(values), int(used.sum())
    if count < 2 * bins:
        return None
    centred = values - values.mean()
    total = np.square(centred).sum()
    sums = np.bincount(labels, weights=centred)[used]
    between = (np.square(sums) / counts[used]).sum()
    within = (total - between) / (count - bins)
    return float(max(0.0, (between - (bins - 1) * within) / total))


def _pairs(
    result: SearchResult, axes: tuple[Axis, ...], shares: dict[str, float]
) -> tuple[Pair, ...]:
    """All pairs of settings; one with too few values per cell is ranked by what its two explain alone."""
    values = _broken_as_worst(result)
    cuts = {axis.path: _bins(result, axis, _most_pair_bins(len(values))) for axis in axes}
    pairs = []
    for one, other in combinations(cuts, 2):
        cells = cuts[one].labels * cuts[other].size + cuts[other].labels
        pairs.append(Pair(one, other, variance_share(cells, values)))

    def rank(pair: Pair) -> float:
        alone = shares.get(pair.first, 0.0) + shares.get(pair.second, 0.0)
        return alone if pair.share is None else pair.share

    return tuple(sorted(pairs, key=rank, reverse=True))


def _chance(labels: list[NDArray[np.int64]], values: NDArray[np.float64]) -> float:
    """The largest share of any setting that 95 % of searches stay below if no setting matters."""
    generator = np.random.default_rng(0)
    largest = []
    for _ in range(SHUFFLES):
        shuffled = generator.permutation(values)
        largest.append(max((variance_share(each, shuffled) or 0.0 for each in labels), default=0.0))
    return float(np.quantile(largest, 0.95))


def _bins(result: SearchResult, axis: Axis, most: int) -> Bins:
    return cut(axis, positions(axis, column(result, axis.path)), most)


def _broken_as_worst(result: SearchResult) -> NDArray[np.float64]:
    """The values, broken configurations with the worst one; nothing where every one broke down."""
    values = values_of(result)
    known = values[np.isfinite(values)]
    if not len(known):
        return known
    worst = known.min() if better(result) > 0 else known.max()
    return np.where(np.isfinite(values), values, worst)


def _most_bins(count: int) -> int:
    """About six values in a bin, so that a mean says something, but never fewer bins than show a hump."""
    return min(max(count // 6, 3), MOST_BINS)


def _most_pair_bins(count: int) -> int:
    """About four values in a cell."""
    return min(max(isqrt(count // 4), 2), MOST_PAIR_BINS)
