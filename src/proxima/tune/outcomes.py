"""What became of configurations: values, states and curves over their seeds, and which is the best."""

import math
from collections.abc import Sequence

import numpy as np

from proxima.scenario.search import SearchConfig
from proxima.tune.effects import better
from proxima.tune.lineage import ancestry
from proxima.tune.method import Settings
from proxima.tune.objective import Point
from proxima.tune.phase import Carried
from proxima.tune.population import (
    Population,
)
from proxima.tune.results import Configuration, Curve, SearchResult, State


def member_outcome(
    population: Population, config: SearchConfig, member: int, values: tuple[float | None, ...]
) -> Configuration:
    """What became of a member; its settings are those that it began with."""
    curves = population.curves[member * config.seeds : (member + 1) * config.seeds]
    return Configuration(
        number=member,
        settings=population.first[member],
        value=_mean(values),
        values=values,
        state="broken" if None in values else "done",
        steps=max((curve[-1][0] for curve in curves if curve), default=0),
        curve=_mean_curve(curves),
        finished=population.steps,
    )


def schedule_of(result: SearchResult, row: Configuration) -> dict[int, Settings]:
    """The settings that led to a configuration's end, by the evaluations done before each."""
    known = {0: 0} | {steps: done for done, (steps, _) in enumerate(row.curve, 1)}
    return {known[span.start]: span.settings or row.settings for span in ancestry(result, row)}


def best_first(result: SearchResult) -> list[Configuration]:
    """The configurations that did not break down, the best first; those stopped before come last."""
    sign = -better(result)

    def order(each: Configuration) -> tuple[float, float, int]:
        stopped_at = -each.steps if each.state == "stopped" else -math.inf
        return stopped_at, sign * (each.value or 0.0), each.number

    return sorted((each for each in result.configurations if each.value is not None), key=order)


def configuration_outcome(carried: Carried, number: int) -> Configuration:
    """What became of a configuration."""
    seeds = range(len(carried.rules.seeds))
    trainings = [carried.ledger.training((number, place)) for place in seeds]
    values = carried.values(number)
    ends = {each.ended for each in trainings}
    evaluations = max(len(each.curve) for each in trainings)
    state: State = "stopped"
    if "broken" in ends or None in values:
        state = "broken"
    elif "converged" in ends:
        state = "converged"
    elif evaluations >= carried.rules.evaluations or "done" in ends:
        state = "done"
    return Configuration(
        number=number,
        settings=carried.method.settings[number],
        value=None if state == "broken" else _mean(values),
        values=values,
        state=state,
        steps=max((each.curve[-1][0] for each in trainings if each.curve), default=0),
        curve=_mean_curve([each.curve for each in trainings]),
        finished=carried.ledger.finished.get(number, carried.ledger.steps),
        program=carried.program_of(number),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _mean_curve(curves: Sequence[Sequence[Point]]) -> Curve:
    """The mean over seeds where all have a point; one that converged stays where it was."""
    steps = sorted({step for curve in curves for step, _ in curve})
    known = [curve for curve in curves if curve]

    def at(curve: Sequence[Point], step: int) -> float:
        before = [value for when, value in curve if when <= step]
        return before[-1] if before else curve[0][1]

    return tuple((step, float(np.mean([at(curve, step) for curve in known]))) for step in steps)
