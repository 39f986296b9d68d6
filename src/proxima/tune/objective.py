"""What makes one configuration better than another: a number made of its learning curve."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

Point = tuple[int, float]  # environment steps, and the metric's value there

# A training that never reaches the target counts as one that took twice the budget (PAR2, as in the
# competitions of solvers): to reach it late is better than not at all.
NEVER = 2


class Objective(NamedTuple):
    """How a curve is judged."""

    metric: str
    of: Literal["final", "best", "area", "steps_to_target"]
    direction: Literal["maximise", "minimise"]
    target: float | None  # for `steps_to_target`
    max_steps: int

    @property
    def higher_is_better(self) -> bool:
        return self.direction == "maximise" and self.of != "steps_to_target"


def value_of(objective: Objective, curve: Sequence[Point]) -> float:
    """The objective of one training's curve so far, which has at least one point."""
    values = [value for _, value in curve]
    match objective.of:
        case "final":
            return values[-1]
        case "best":
            return max(values) if objective.direction == "maximise" else min(values)
        case "area":
            return float(np.mean(values))  # evaluations are evenly spread over the budget
        case "steps_to_target":
            return float(_reached(objective, curve))


def _reached(objective: Objective, curve: Sequence[Point]) -> int:
    assert objective.target is not None
    sign = 1 if objective.direction == "maximise" else -1
    reached = (s for s, value in curve if sign * value >= sign * objective.target)
    return next(reached, NEVER * objective.max_steps)


def score_of(objective: Objective, values: Sequence[float | None]) -> float:
    """What a method is told of the seeds' values: higher is better, -inf if one of them broke down."""
    if any(value is None or not np.isfinite(value) for value in values):
        return -np.inf
    mean = float(np.mean(np.asarray(values, float)))
    return mean if objective.higher_is_better else -mean
