"""A run's metrics in bounded memory: few points for each trial and metric, and the band over trials."""

from array import array
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import nan
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from proxima.report.statistics import Curve, band

DRAWN = 400  # points of a line that is sent to a browser
GRID = 120  # points of a band
KEPT = 200_000  # points of a metric over all trials; each trial has at least FEWEST
FEWEST, MOST = 300, 2_000
MOST_LINES = 8  # trials whose own lines are sent; of more only the band

Points = tuple["array[float]", "array[float]"]  # steps and values; what is not finite is NaN


class Bands(NamedTuple):
    """What a browser draws of a metric."""

    steps: list[float]
    iqm: list[float | None]
    low: list[float | None] | None
    high: list[float | None] | None
    trials: int
    failed: int
    lines: Mapping[int, tuple[list[float], list[float | None]]]  # by trial


def min_max(
    steps: NDArray[np.float64], values: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most so many points: of every bucket the lowest, the highest and a gap; both ends stay."""
    count = len(steps)
    if count <= most:
        return steps, values
    edges = np.linspace(1, count - 1, max(1, (most - 2) // 3) + 1).astype(int)
    kept = {0, count - 1}
    for start, stop in pairwise(edges):
        if stop > start:
            kept |= {int(start + index) for index in _extremes(values[start:stop])}
    chosen = np.array(sorted(kept))
    return steps[chosen], values[chosen]


def _extremes(values: NDArray[np.float64]) -> set[int]:
    """Where the lowest and the highest are, and the first that is not finite."""
    broken = ~np.isfinite(values)
    ends = {int(np.argmax(broken))} if broken.any() else set()
    if broken.all():
        return ends
    lowest, highest = np.where(broken, np.inf, values), np.where(broken, -np.inf, values)
    return ends | {int(lowest.argmin()), int(highest.argmax())}


@final
class Curves:
    """The points of all trials and metrics; a trial with too many keeps the extremes of every bucket."""

    def __init__(self, trials: int):
        self.most = min(MOST, max(FEWEST, KEPT // max(trials, 1)))
        self._points: dict[str, dict[int, Points]] = {}

    def add(self, trial: int, rows: Iterable[Any]) -> None:
        """Rows of metrics.jsonl; what is no number is left out, null is a number that is not finite."""
        for row in rows:
            step = row.get("step") if isinstance(row, dict) else None
            if type(step) is not int and type(step) is not float:
                continue
            for metric, value in row.items():
                kind = type(value)
                if metric == "step" or not (kind is float or value is None or kind is int):
                    continue
                steps, values = self._of(metric, trial)
                steps.append(step)
                values.append(nan if value is None else value)
                if len(steps) > 2 * self.most:
                    self._thin(metric, trial)

    def put(self, metric: str, trial: int, steps: list[Any], values: list[Any]) -> None:
        """A trial's whole line; one that is not numbers is left out, null is a number that is not finite."""
        try:
            x, y = np.array(steps, np.float64), np.array(values, np.float64)
        except (ValueError, TypeError):
            return
        if x.ndim == y.ndim == 1 and len(x) == len(y) > 0 and np.isfinite(x).all():
            of_metric = self._points.setdefault(metric, {})
            of_metric[trial] = array("d", x.tobytes()), array("d", y.tobytes())

    def _of(self, metric: str, trial: int) -> Points:
        of_metric = self._points.get(metric)
        if of_metric is None:
            of_metric = self._points[metric] = {}
        points = of_metric.get(trial)
        if points is None:
            points = of_metric[trial] = array("d"), array("d")
        return points

    def _thin(self, metric: str, trial: int) -> None:
        thin = min_max(*_arrays(self._points[metric][trial]), self.most)
        steps, values = (array("d", part.tobytes()) for part in thin)
        self._points[metric][trial] = steps, values

    def forget(self, trial: int) -> None:
        """A trial begins anew."""
        for trials in self._points.values():
            trials.pop(trial, None)

    @property
    def metrics(self) -> list[str]:
        """The metrics of which at least one point is known."""
        return sorted(metric for metric, trials in self._points.items() if trials)

    def steps(self, metric: str, trial: int) -> list[float]:
        """The steps of a trial's points."""
        points = self._points.get(metric, {}).get(trial)
        return [] if points is None else points[0].tolist()

    def last(self, metric: str) -> dict[int, float]:
        """The newest value of every trial."""
        return {trial: values[-1] for trial, (_, values) in self._points.get(metric, {}).items()}

    def broken(self, metrics: Iterable[str]) -> dict[int, float]:
        """By trial, the first step at which one of the metrics was no finite number."""
        first: dict[int, float] = {}
        for metric in metrics:
            for trial, points in self._points.get(metric, {}).items():
                steps, values = _arrays(points)
                bad = steps[~np.isfinite(values)]
                if len(bad):
                    first[trial] = min(first.get(trial, np.inf), float(bad[0]))
        return first

    def bands(self, metric: str) -> Bands:
        """Interquartile mean and interval over trials on a grid; the lines of the trials where few."""
        trials = self._points.get(metric, {})
        curves: list[Curve] = [_arrays(points) for points in trials.values()]
        over = band(curves, GRID)
        lines = {}
        if len(trials) <= MOST_LINES:
            for trial, points in sorted(trials.items()):
                x, y = min_max(*_arrays(points), DRAWN)
                lines[trial] = x.tolist(), plain_numbers(y)
        gaps = gaps_of(curves, over.steps)
        low, high = (
            None if end is None else plain_numbers(np.where(gaps, nan, end))
            for end in (over.low, over.high)
        )
        iqm = plain_numbers(np.where(gaps, nan, over.iqm))
        return Bands(over.steps.tolist(), iqm, low, high, over.trials, over.failed, lines)


def _arrays(points: Points) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Copies: an array that a view holds on to could grow no more."""
    return np.array(points[0]), np.array(points[1])


def gaps_of(curves: Iterable[Curve], grid: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where on the grid no trial's newest value is finite: a line drawn over that would be made up."""
    gaps = np.ones(len(grid), bool)
    for steps, values in curves:
        newest = np.searchsorted(steps, grid, side="right") - 1
        gaps &= ~np.isfinite(np.asarray(values)[np.maximum(newest, 0)])
    return gaps


def plain_numbers(values: NDArray[np.float64]) -> list[float | None]:
    """As JSON holds them: what is not finite is null."""
    return [value if np.isfinite(value) else None for value in values.tolist()]
