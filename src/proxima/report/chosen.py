"""Which trials stand for all: of many, the first, the median, the best and the worst."""

from collections import defaultdict
from collections.abc import Sequence
from math import isfinite

MOST_TRIALS = 5  # of which every one is shown by itself
MOST_FAILED = 3  # trials without a score that a short table names

Scores = Sequence[float | None]  # one per trial; None or not finite: the trial has none


def chosen_trials(scores: Scores) -> list[int]:
    """The trials that get pictures of their own: all of a few, else those of `roles` with a score.

    Always includes the first; in the order of trials.
    """
    if len(scores) <= MOST_TRIALS:
        return list(range(len(scores)))
    return sorted(trial for trial, role in roles(scores).items() if role != "failed")


def roles(scores: Scores) -> dict[int, str]:
    """By trial, what it stands for: "first", "best", "median", "worst", or several of them.

    In this order, and then the first few trials without a score, as "failed".
    """
    order = ranked(scores)
    names: defaultdict[int, list[str]] = defaultdict(list)
    if len(scores):
        names[0].append("first")
    if order:
        middle = order[(len(order) - 1) // 2]
        for trial, role in ((order[-1], "best"), (middle, "median"), (order[0], "worst")):
            names[trial].append(role)
    for trial in sorted(set(range(len(scores))) - set(order))[:MOST_FAILED]:
        names[trial].append("failed")
    return {trial: ", ".join(names[trial]) for trial in names}


def median_index(scores: Scores) -> int | None:
    """Where the median is, the lower one of two; None where no score is finite."""
    order = ranked(scores)
    return order[(len(order) - 1) // 2] if order else None


def ranked(scores: Scores) -> list[int]:
    """The trials that have a score, from the worst to the best."""
    finite = {k: score for k, score in enumerate(scores) if score is not None and isfinite(score)}
    return sorted(finite, key=finite.__getitem__)
