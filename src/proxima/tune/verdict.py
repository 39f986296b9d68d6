"""What came out of a search: the chosen settings beside the scenario's own, on seeds it had not seen."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from proxima.report.statistics import aggregate, paired_comparison
from proxima.tune.effects import better
from proxima.tune.results import Configuration, Confirmed, SearchResult

RETURN = "eval/return_mean"  # the metric of which values on new seeds are the closing ones
Aggregate = dict[str, Any]  # iqm, low, high, n, failed


class Improvement(NamedTuple):
    """How much better one is than the other over seeds; what cannot be said is None."""

    gain: float | None  # mean difference, positive where the first is better
    low: float | None  # its interval
    high: float | None
    probability: float | None  # that a training of the first is better than one of the second
    pairs: int


class Verdict(NamedTuple):
    """The chosen settings on new seeds."""

    best: Aggregate
    own: Aggregate | None  # the scenario's own settings; None: they were not run
    improvement: Improvement | None
    optimism: float | None  # how much better the search's own value was; None: of another kind


def verdict(result: SearchResult) -> Verdict | None:
    """What new seeds say; None where the chosen settings were not run on any, or all broke down."""
    tested = {each.number: each for each in result.test}
    if result.chosen is None or result.chosen not in tested:
        return None
    best, own = tested[result.chosen], tested.get(None)
    reached = aggregate(numbers(best.values))
    if reached["iqm"] is None:
        return None
    sign = returns_better(result)
    return Verdict(
        best=reached,
        own=None if own is None else aggregate(numbers(own.values)),
        improvement=None if own is None else improvement(best, own, sign),
        optimism=_optimism(result, reached["iqm"], sign),
    )


def chosen_row(result: SearchResult) -> Configuration | None:
    """The configuration that was chosen; None where every one broke down."""
    return next((each for each in result.configurations if each.number == result.chosen), None)


def values_are_returns(result: SearchResult) -> bool:
    """Whether the search's values and those on new seeds are the same kind of number."""
    return result.metric == RETURN and result.objective in ("final", "best")


def returns_better(result: SearchResult) -> float:
    """1 where higher returns are better, −1 where the search was told to make them lower."""
    return -1.0 if result.metric == RETURN and result.direction == "minimise" else 1.0


def improvement(first: Confirmed, second: Confirmed, sign: float) -> Improvement:
    """Seed against seed where both had the same ones, otherwise every seed against every other."""
    ours, theirs = sign * numbers(first.values), sign * numbers(second.values)
    if first.seeds == second.seeds:
        paired: Any = paired_comparison(ours[:, None].tolist(), theirs[:, None].tolist())
        interval = paired["difference_low"], paired["difference_high"]
        return Improvement(paired["difference"], *interval, paired["probability"], paired["pairs"])
    difference = ours[np.isfinite(ours), None] - theirs[None, np.isfinite(theirs)]
    if not difference.size:
        return Improvement(None, None, None, None, 0)
    wins = np.mean((difference > 0) + 0.5 * (difference == 0))
    return Improvement(float(difference.mean()), None, None, float(wins), difference.size)


def numbers(values: Sequence[float | None]) -> Any:
    """Values by seed as an array, NaN for those that broke down."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _optimism(result: SearchResult, reached: float, sign: float) -> float | None:
    row = chosen_row(result)
    if row is None or row.value is None or not values_are_returns(result):
        return None
    return float(better(result) * row.value - sign * reached)
