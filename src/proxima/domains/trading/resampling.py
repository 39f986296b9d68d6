"""How uncertain a mean of returns is that depend on their neighbours: the stationary bootstrap.

Politis, Romano (1994): resample blocks that start anywhere and have geometric lengths, around the end to
the beginning. The mean length is chosen from the autocorrelation (Politis, White 2004; Patton, Politis,
White 2009). Drawing single bars, as if they were independent, would make the interval too narrow.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

RESAMPLES = 1_000
RESAMPLES_AT_ONCE = 50
MOST_BLOCKS = (
    4_000  # longer blocks than necessary change little, and millions of bars stay affordable
)
INTERVAL = (2.5, 97.5)


def mean_interval(values: ArrayLike, seed: int = 0) -> tuple[float, float]:
    """The middle 95 % of the mean of such values; NaN for fewer than two."""
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        return math.nan, math.nan
    means = resampled_means(values, block_length(values), RESAMPLES, np.random.default_rng(seed))
    low, high = np.percentile(means, INTERVAL)
    return float(low), float(high)


def resampled_means(
    values: Floats, mean_block: float, resamples: int, random: np.random.Generator
) -> Floats:
    """Means of stationary bootstrap samples as long as the values, (resamples,)."""
    size = len(values)
    expected = size / max(mean_block, size / MOST_BLOCKS)
    # Six deviations more blocks than expected: should they not be enough, the last is a longer one.
    blocks = math.ceil(expected + 6 * math.sqrt(expected) + 10)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values]))])
    means = []
    for many in np.array_split(np.arange(resamples), math.ceil(resamples / RESAMPLES_AT_ONCE)):
        lengths = random.geometric(expected / size, (len(many), blocks))
        ends = np.minimum(np.cumsum(lengths, axis=1), size)
        ends[:, -1] = size
        lengths = np.diff(ends, axis=1, prepend=0)
        starts = random.integers(size, size=lengths.shape)
        means.append((sums[starts + lengths] - sums[starts]).sum(axis=1) / size)
    return np.concatenate(means)


def block_length(values: Floats) -> float:
    """The mean length of blocks that suits the values' autocorrelation, at least 1."""
    size = len(values)
    covariance = _autocovariance(values)
    if covariance[0] <= 0:
        return 1.0
    patience = max(5, math.ceil(math.sqrt(math.log10(size))))
    noise = 2 * math.sqrt(math.log10(size) / size)
    most = min(math.ceil(math.sqrt(size)) + patience, size - 1)
    quiet = np.abs(covariance[1 : most + 1] / covariance[0]) < noise
    bandwidth = 2 * max(1, _last_loud(quiet, patience))
    lags = np.arange(-min(bandwidth, size - 1), min(bandwidth, size - 1) + 1)
    flat_top = np.clip(2 * (1 - np.abs(lags) / bandwidth), 0.0, 1.0)
    weighted = flat_top * covariance[np.abs(lags)]
    spectrum = weighted.sum()
    slope = (np.abs(lags) * weighted).sum()
    longest = math.ceil(min(3 * math.sqrt(size), size / 3))
    if spectrum == 0:
        return float(max(1, longest))
    return float(np.clip((slope**2 / spectrum**2 * size) ** (1 / 3), 1, max(1, longest)))


def _last_loud(quiet: NDArray[np.bool_], patience: int) -> int:
    """The last lag before the first `patience` in a row whose autocorrelation is only noise."""
    run = 0
    for lag, is_quiet in enumerate(quiet.tolist(), 1):
        run = run + 1 if is_quiet else 0
        if run == patience:
            return lag - patience
    loud = np.flatnonzero(~quiet)
    return int(loud[-1]) + 1 if len(loud) else 0


def _autocovariance(values: Floats) -> Floats:
    """At every lag, by FFT."""
    size = len(values)
    spectrum = np.fft.rfft(values - values.mean(), 2 * size)
    return np.fft.irfft(np.abs(spectrum) ** 2)[:size] / size
