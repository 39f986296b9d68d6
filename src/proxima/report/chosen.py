"""Which trials stand for all: of many, the first, the median, the best and the worst."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MOST_TRIALS = 5  # of which every one is shown by itself
MOST_FAILED = 3  # trials without a score that a short table names

Scores = Sequence[float | None]  # one per trial; None or not finite: the trial has none


def chosen_trials(scores: Scores) -> list[int]:
    """The trials that get pictures of their own: all of a few, else those of `roles` with a score.

    Always includes the first; in the order of trials.
    """
    if len(scores) <= MOST_TRIALS:
        return list(range(len(scores)))
    return sorted({0, *_extremes(scores)})


def roles(scores: Scores) -> dict[int, str]:
    """By trial, what it stands for: "first", "best", "median", "worst", or several of them.

    In this order, and then the first few trials without a score, as "failed".
    """
    names = {trial: [role] for trial, role in ((0, "first"),) if len(scores)}
    for trial, extremes in _extremes(scores).items():
        names.setdefault(trial, []).extend(extremes)
    failed = np.flatnonzero(~np.isfinite(_floats(scores)))
    for trial in failed[:MOST_FAILED].tolist():
        names.setdefault(trial, []).append("failed")
    return {trial: ", ".join(names[trial]) for trial in names}


def median_index(scores: Scores) -> int | None:
    """Where the median is, the lower one of two; None where no score is finite."""
    order = _ranked(scores)
    return int(order[(len(order) - 1) // 2]) if len(order) else None


def _extremes(scores: Scores) -> dict[int, list[str]]:
    """The best, the median and the worst trial; one that is several has several names."""
    order = _ranked(scores).tolist()
    names: dict[int, list[str]] = {}
    if order:
        middle = order[(len(order) - 1) // 2]
        for trial, role in ((order[-1], "best"), (middle, "median"), (order[0], "worst")):
            names.setdefault(trial, []).append(role)
    return names


def _ranked(scores: Scores) -> NDArray[np.int64]:
    """The trials that have a score, from the worst to the best."""
    values = _floats(scores)
    finite = np.flatnonzero(np.isfinite(values))
    return finite[np.argsort(values[finite], kind="stable")]


def _floats(scores: Scores) -> NDArray[np.float64]:
    return np.array([np.nan if score is None else score for score in scores], dtype=float)
