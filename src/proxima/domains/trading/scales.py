"""Scales of time and of shares, and lines of many points made short enough to draw."""

from math import ceil, floor, log10

import numpy as np
from numpy.typing import NDArray

from proxima.report.style import Scale, spell

MOST_POINTS = 2_000  # about two for each dot of a picture's width

# Steps of a time scale: numpy's units, about how many seconds one takes, how many make a step.
_UNITS = (
    ("s", 1.0, (1, 5, 15, 30)),
    ("m", 60.0, (1, 2, 5, 15, 30)),
    ("h", 3_600.0, (1, 3, 6, 12)),
    ("D", 86_400.0, (1, 2, 7, 14)),
    ("M", 30.44 * 86_400, (1, 3, 6)),
    ("Y", 365.25 * 86_400, tuple(n * 10**power for power in range(5) for n in (1, 2, 5))),
)
_STEPS = [(n, unit, n * seconds) for unit, seconds, counts in _UNITS for n in counts]


def seconds(time: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Times as seconds since 1970, which is what a time scale counts in."""
    return time.astype("datetime64[us]").astype(np.int64) / 1e6


def time_scale(first: np.datetime64, last: np.datetime64, most: float) -> Scale:
    """A scale in seconds since 1970, named at round times, in at most so many steps."""
    low, high = seconds(np.array([first, last], dtype="datetime64[us]"))
    if high <= low:
        low, high = low - 43_200.0, high + 43_200.0
    fitting = (step for step in _STEPS if step[2] >= (high - low) / most)
    count, unit, _ = next(fitting, _STEPS[-1])
    edges = np.array([low, high]).astype(np.int64).astype("M8[s]").astype(f"M8[{unit}]")
    begin, end = edges.astype(np.int64).tolist()
    offset = 1970 if unit == "Y" else 0  # numpy counts years from 1970, people from 0
    counts = range(-(-(begin + offset) // count) * count - offset, end + 1, count)
    stamps = np.array(counts, dtype=np.int64).astype(f"M8[{unit}]")
    stamps = stamps[seconds(stamps) >= low]
    names = [_named(stamp, unit) for stamp in stamps]
    room = 0.01 * (high - low)
    return Scale(low - room, high + room, seconds(stamps).tolist(), names)


def shares_scale(low: float, high: float) -> Scale:
    """A scale of logarithms to base ten, named with what they are of: equal steps, equal shares."""
    decades = high - low
    steps: tuple[float, ...] = (1, 2, 5) if decades > 1 else (1, 1.5, 2, 3, 5, 7)
    if decades > 3:
        steps = (1,)
    every = max(1, ceil(decades / 8))
    powers = range(floor(low / every) * every, ceil(high) + 1, every)
    ticks = [power + log10(step) for power in powers for step in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return Scale(low, high, ticks, [_power_of_ten(tick) for tick in ticks])


def thinned(values: NDArray[np.float64], most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Indices to draw of a long line: the first and last, the least and greatest of each bundle."""
    size = -(-2 * len(values) // most)
    if size <= 2:
        return np.arange(len(values))
    whole = len(values) // size * size
    bundles = values[:whole].reshape(-1, size)
    starts = np.arange(0, whole, size)
    extremes = np.stack([bundles.argmin(axis=1), bundles.argmax(axis=1)]) + starts
    return np.unique(np.concatenate([[0], extremes.ravel(), [len(values) - 1]]))


def _named(stamp: np.datetime64, unit: str) -> str:
    """Days are named without hours, hours without the year, seconds without the day."""
    if unit in "YMD":
        return str(stamp)
    if unit == "s":
        return str(stamp)[-8:]
    return str(stamp.astype("M8[m]"))[5:].replace("T", " ")


def _power_of_ten(logarithm: float) -> str:
    if abs(logarithm) > 5:
        return f"1e{round(logarithm)}".replace("-", "−")
    value = 10.0**logarithm
    return spell([value], value)[0] if value > 999 else f"{value:.3g}"
