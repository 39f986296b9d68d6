"""A run's metrics in bounded memory: few points for each trial and metric, and the band over trials."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from proxima.report.statistics import Curve, band

DRAWN = 400  # points of a line that is sent to a browser
GRID = 120  # points of a band
KEPT = 200_000  # points of a metric over all trials; each trial has at least FEWEST
FEWEST, MOST = 300, 2_000
MOST_LINES = 8  # trials whose own lines are sent; of more only the band


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
    """At most so many points: of every bucket the lowest and the highest; both ends stay as they are."""
    count = len(steps)
    if count <= most:
        return steps, values
    edges = np.linspace(1, count - 1, max(1, (most - 2) // 2) + 1).astype(int)
    kept = {0, count - 1}
    for start, stop in pairwise(edges):
        if stop > start:
            bucket = np.nan_to_num(values[start:stop], nan=0.0)
            kept |= {int(start + bucket.argmin()), int(start + bucket.argmax())}
    chosen = np.array(sorted(kept))
    return steps[chosen], values[chosen]


@final
class Curves:
    """The points of all trials and metrics; a trial with too many keeps the extremes of every bucket."""

    def __init__(self, trials: int):
        self._most = min(MOST, max(FEWEST, KEPT // max(trials, 1)))
        self._points: dict[str, dict[int, tuple[list[float], list[float]]]] = {}

    def add(self, trial: int, row: Mapping[str, Any]) -> None:
        """One row of metrics.jsonl; what is no number is left out, null is a number that is not finite."""
        step = row.get("step")
        if not isinstance(step, int | float):
            return
        for metric, value in row.items():
            if metric == "step" or not isinstance(value, int | float | None):
                continue
            steps, values = self._points.setdefault(metric, {}).setdefault(trial, ([], []))
            steps.append(float(step))
            values.append(np.nan if value is None else float(value))
            if len(steps) > 2 * self._most:
                thin = min_max(np.array(steps), np.array(values), self._most)
                self._points[metric][trial] = thin[0].tolist(), thin[1].tolist()

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
        return self._points.get(metric, {}).get(trial, ([], []))[0]

    def last(self, metric: str) -> dict[int, float]:
        """The newest value of every trial."""
        return {trial: values[-1] for trial, (_, values) in self._points.get(metric, {}).items()}

    def bands(self, metric: str) -> Bands:
        """Interquartile mean and interval over trials on a grid; the lines of the trials where few."""
        trials = self._points.get(metric, {})
        curves: list[Curve] = [(np.array(s), np.array(v)) for s, v in trials.values()]
        over = band(curves, GRID)
        lines = {}
        if len(trials) <= MOST_LINES:
            for trial, (steps, values) in sorted(trials.items()):
                x, y = min_max(np.array(steps), np.array(values), DRAWN)
                lines[trial] = x.tolist(), plain_numbers(y)
        low, high = (None if end is None else plain_numbers(end) for end in (over.low, over.high))
        iqm = plain_numbers(over.iqm)
        return Bands(over.steps.tolist(), iqm, low, high, over.trials, over.failed, lines)


def plain_numbers(values: NDArray[np.float64]) -> list[float | None]:
    """As JSON holds them: what is not finite is null."""
    return [value if np.isfinite(value) else None for value in values.tolist()]
