"""The section of a scenario that says in which levels an environment's numbers change, and by which rule."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval, Len

from proxima.core.faults import Fault, KeyPath

SECTION = "curriculum"
Values = Annotated[tuple[float, ...], Len(1, 1_000)]  # of a number, by level
# Settings that only one rule has a use for, null where they are not given.
OF_ONE_RULE = {"at": "steps", "threshold": "success", "window": "success"}
OF_ONE_RULE |= {"fast": "progress", "slow": "progress", "uniform": "progress"}


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """Levels of an environment's numbers, and which of them a trial's next episodes are of.

    Evaluation, target and convergence are about the scenario's own env.params, whatever the level.
    """

    by: Literal["steps", "success", "progress"]
    """steps: a level begins at a step; success: when the one before is mastered; progress: every episode's
    level is drawn, those whose scores change fastest most often."""
    parameters: Annotated[Mapping[str, Values], Len(1)]
    """Numbers of the environment by name, and the value of each on every level, the first level first."""
    beyond: Mapping[str, Values] = field(default_factory=dict)
    """The same numbers on levels that are never trained on, only evaluated at the end: generalisation."""
    success: float | None = None
    """An episode that returns at least this scores 1, else 0; null: an episode's score is its return."""
    at: tuple[Annotated[int, Ge(0)], ...] | None = None
    """By steps: the environment steps at which the levels begin, the first 0; null: evenly over
    training.max_steps."""
    threshold: float | None = None
    """By success: the mean score from which on the next level begins."""
    window: Annotated[int, Ge(1)] | None = None
    """By success: episodes of a level between two looks at their mean score; null: 100."""
    fast: Annotated[float, Interval(gt=0, le=1)] | None = None
    """By progress: weight of a new episode in the fast running mean of a level's scores; null: 0.1."""
    slow: Annotated[float, Interval(gt=0, le=1)] | None = None
    """By progress: weight in the slow one, whose distance from the fast one is the progress; null: 0.01."""
    uniform: Annotated[float, Interval(ge=0, le=1)] | None = None
    """By progress: share of the episodes whose level is drawn evenly; null: 0.2."""

    @property
    def levels(self) -> int:
        """How many are trained on."""
        return len(next(iter(self.parameters.values())))

    @property
    def levels_beyond(self) -> int:
        """How many are only evaluated."""
        return len(next(iter(self.beyond.values()), ()))


def curriculum_faults(
    config: CurriculumConfig, max_steps: int | None, convergence_source: str
) -> Iterator[Fault]:
    """What is wrong with settings of a curriculum that are each right alone."""
    yield from _length_faults("parameters", config.parameters)
    yield from _length_faults("beyond", config.beyond)
    if config.beyond and set(config.beyond) != set(config.parameters):
        has, wanted = (", ".join(sorted(names)) for names in (config.beyond, config.parameters))
        text = f"has {has}, and parameters {wanted}; give the same numbers in both"
        yield _fault("beyond", text)
    for name, rule in OF_ONE_RULE.items():
        if config.by != rule and getattr(config, name) is not None:
            yield _fault(name, f"is for by: {rule}, and by is {config.by}; leave it out", "by")
    if config.by == "steps":
        yield from _step_faults(config, max_steps)
    if config.by == "success" and config.threshold is None:
        text = "null, and by is success; say from which mean score on the next level begins"
        yield _fault("threshold", text, "by")
    fast, slow = progress_rates(config)
    if config.by == "progress" and not slow < fast:
        text = f"{slow:g} is not slower than fast ({fast:g}); take less"
        yield _fault("slow", text, "fast")
    if convergence_source == "training":
        text = (
            "training, and with a curriculum training episodes are not of the task itself; "
            "set evaluation"
        )
        yield Fault((("convergence", "source"), (SECTION,)), text)


def progress_rates(config: CurriculumConfig) -> tuple[float, float]:
    """The weights of a new episode in the fast and in the slow running mean."""
    fast = 0.1 if config.fast is None else config.fast
    return fast, 0.1 * fast if config.slow is None else config.slow


def first_updates(
    config: CurriculumConfig, max_steps: int | None, steps_per_update: int
) -> list[int]:
    """By steps, the updates that are done when each level begins: the first moment not before its step."""
    at = config.at
    if at is None:
        assert max_steps is not None  # as the faults have it
        at = tuple(level * max_steps // config.levels for level in range(config.levels))
    return [math.ceil(step / steps_per_update) for step in at]


def named_levels(config: CurriculumConfig) -> list[tuple[dict[str, float], bool]]:
    """Every level's numbers, and whether it lies beyond those that are trained on."""

    def rows(values: Mapping[str, Any], count: int) -> list[dict[str, float]]:
        return [{name: values[name][level] for name in values} for level in range(count)]

    trained = rows(config.parameters, config.levels)
    beyond = rows(config.beyond, config.levels_beyond)
    return [(level, False) for level in trained] + [(level, True) for level in beyond]


def _length_faults(key: str, values: Mapping[str, tuple[float, ...]]) -> Iterator[Fault]:
    lengths = {name: len(levels) for name, levels in values.items()}
    if len(set(lengths.values())) > 1:
        has = ", ".join(f"{name} {length}" for name, length in lengths.items())
        yield _fault(key, f"as many values for each, a level each; here {has}")


def _step_faults(config: CurriculumConfig, max_steps: int | None) -> Iterator[Fault]:
    at = config.at
    if at is None:
        if max_steps is None:
            text = "null, and training.max_steps is null too; say at which steps the levels begin"
            yield Fault(((SECTION, "at"), ("training", "max_steps")), text)
        return
    if len(at) != config.levels:
        text = f"{len(at)} steps for {config.levels} levels; give each its own, the first 0"
        yield _fault("at", text, "parameters")
    if at[:1] != (0,) or any(later <= step for step, later in pairwise(at)):
        yield _fault("at", f"{list(at)} does not rise from 0; the first level begins at step 0")


def _fault(key: str, text: str, *others: str) -> Fault:
    paths: list[KeyPath] = [(SECTION, name) for name in (key, *others)]
    return Fault(tuple(paths), text)
