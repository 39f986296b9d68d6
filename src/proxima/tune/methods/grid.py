"""Grid search: every combination of equally spaced values, the first path changing slowest."""

import itertools
import math
from collections.abc import Sequence

from proxima.core.errors import ProximaError
from proxima.scenario.search import SearchConfig
from proxima.tune.method import Check, Method, Ranges, Settings
from proxima.tune.methods.whole import WholeTrainings
from proxima.tune.space import points_of

MOST = 100_000  # combinations; as many as search.configs allows


def make_grid(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings] = ()
) -> Method:
    """`config.points` values of every number and all choices, without what contradicts."""
    return WholeTrainings(config.evaluations, list(drawn) or grid(config, ranges, check))


def grid(config: SearchConfig, ranges: Ranges, check: Check) -> list[Settings]:
    """Every combination in which nothing contradicts."""
    points = min(config.points, MOST + 1)  # which is refused already
    axes = [points_of(span, points) for span in ranges.values()]
    size = math.prod(map(len, axes))
    if size > MOST:
        raise ProximaError(
            f"search.space: the grid has {size:,} combinations, and {MOST:,} is the most; lower "
            "search.points, search fewer settings, or use method random"
        )
    kept: list[Settings] = []
    problem: str | None = None
    for values in itertools.product(*axes):
        settings = dict(zip(ranges, values, strict=True))
        reason = check(settings)
        if reason is None:
            kept.append(settings)
        problem = reason or problem
    if not kept:
        raise ProximaError(
            f"search.space: none of the grid's {size:,} combinations is possible, the last because: "
            f"{problem}; narrow the ranges to what goes together"
        )
    return kept
