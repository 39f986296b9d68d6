"""Population-based training on lanes: copying a member is a gather, changing its settings a write to leaves.

for each evaluation:  all members train until it and are evaluated
                      the worst go on as copies of the best, with settings near theirs
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.hyper import FIELD
from proxima.run.signals import interruptible
from proxima.train import checkpoint
from proxima.train.stage import is_watched
from proxima.tune.bench import Bench, Start
from proxima.tune.engine import Rules, metric_of
from proxima.tune.method import Settings
from proxima.tune.objective import Point, score_of, value_of
from proxima.tune.results import Copy

# generation, values (higher is better), settings → whom each member copies, and its settings from now on
Evolve = Callable[[int, Sequence[float], Sequence[Settings]], tuple[list[int], list[Settings]]]


@dataclass
class Population:
    """Where the population stands; everything by member, curves by lane."""

    first: list[Settings]
    settings: list[Settings]  # at present
    curves: list[list[Point]]
    broken: list[bool]  # at the last evaluation
    copies: list[Copy] = field(default_factory=list)
    generation: int = 0
    steps: int = 0
    seconds: float = 0.0


class Breeding(NamedTuple):
    """How a population is trained."""

    folder: Path
    first: Callable[[], list[Settings]]
    evolve: Evolve
    rules: Rules
    scenario: dict[str, Any]


def run_population(
    breeding: Breeding,
    program_of: Callable[[Settings], int],
    bench: Bench,
    show: Callable[[Population], None],
) -> Population:
    """The population after its last evaluation; an interruption is saved and raised."""
    population = _opened(breeding, program_of, bench)
    before, began = population.seconds, time.perf_counter()
    rules = breeding.rules
    with interruptible() as interrupted:
        while population.generation < rules.evaluations:
            _train(population, rules, bench)
            if population.generation < rules.evaluations:
                _breed(population, breeding, bench)
            population.seconds = before + time.perf_counter() - began
            show(population)
            _save(population, breeding, bench)
            if interrupted() and population.generation < rules.evaluations:
                raise KeyboardInterrupt
    return population


def member_values(population: Population, rules: Rules) -> list[tuple[float | None, ...]]:
    """The objective of every member's seeds so far; None where one broke down."""
    seeds = len(rules.seeds)
    return [
        tuple(
            None if population.broken[lane] or not curve else value_of(rules.objective, curve)
            for lane, curve in list(enumerate(population.curves))[
                member * seeds : (member + 1) * seeds
            ]
        )
        for member in range(len(population.settings))
    ]


def _train(population: Population, rules: Rules, bench: Bench) -> None:
    """All members to their next evaluation."""
    done, whole, parts = population.generation, bench.loaded.updates, rules.evaluations
    updates = whole * (done + 1) // parts - whole * done // parts
    lanes = len(population.curves)
    rows = bench.advance([updates] * lanes + [0] * (bench.width - lanes))
    scores = bench.evaluate()
    per_update = bench.loaded.program.steps_per_update
    population.steps += updates * lanes * per_update
    population.generation += 1
    steps = whole * population.generation // parts * per_update
    for lane in range(lanes):
        figures = rows[lane] | scores[lane].figures
        value = metric_of(figures, rules.objective.metric)
        watched = [figures[name] for name in rows[lane] if is_watched(name)]
        known = [*watched, *([] if value is None else [value])]
        population.broken[lane] = not np.isfinite(known).all()
        if value is not None and not population.broken[lane]:
            population.curves[lane].append((steps, value))


def _breed(population: Population, breeding: Breeding, bench: Bench) -> None:
    """Copies and changed settings, in the population and in its lanes."""
    rules, seeds = breeding.rules, len(breeding.rules.seeds)
    values = [score_of(rules.objective, each) for each in member_values(population, rules)]
    sources, settings = breeding.evolve(population.generation, values, population.settings)
    by_lane = [source * seeds + place for source in sources for place in range(seeds)]
    idle = range(len(by_lane), bench.width)
    changes: dict[int, Settings] = {}
    steps = max((curve[-1][0] for curve in population.curves if curve), default=0)
    for member, source in enumerate(sources):
        if source != member:
            population.copies.append(Copy(steps, member, source, settings[member]))
            lanes = range(member * seeds, (member + 1) * seeds)
            changes |= dict.fromkeys(lanes, settings[member])
    bench.change(changes, [*by_lane, *idle])
    population.settings = settings
    population.curves = [list(population.curves[lane]) for lane in by_lane]


def _opened(breeding: Breeding, program_of: Callable[[Settings], int], bench: Bench) -> Population:
    """The population at the last checkpoint, or a new one."""
    folder, seeds = breeding.folder, breeding.rules.seeds
    if checkpoint.available_steps(folder):
        population = _from_json(checkpoint.load_manifest(folder)["loop"])
    else:
        shutil.rmtree(folder, ignore_errors=True)
        first = breeding.first()
        population = Population(
            first, first, [[] for _ in first for _ in seeds], [False] * len(first) * len(seeds)
        )
    bench.load(program_of(population.settings[0]), population.settings[0])
    starts = {
        member * len(seeds) + place: Start(settings, seed)
        for member, settings in enumerate(population.settings)
        for place, seed in enumerate(seeds)
    }
    if population.generation:
        bench.restore(checkpoint.load(folder, bench.states)[0], starts)
    else:
        bench.begin(starts)
        _check_numbers(population.settings, bench)
    return population


def check_one_program(settings: Sequence[Settings], program_of: Callable[[Settings], int]) -> None:
    """An error where members could not copy each other."""
    for other in settings[1:]:
        if program_of(settings[0]) != program_of(other):
            paths = [path for path in other if other[path] != settings[0][path]]
            raise ProximaError(
                "search.method: pbt copies one member's weights to another, and these settings make programs "
                f"of different sizes: one of {', '.join(paths)}; leave it out, or take method asha"
            )


def _check_numbers(settings: Sequence[Settings], bench: Bench) -> None:
    """An error where settings act on the first state only, so that changing them later would do nothing."""
    if len(settings) < 2:  # nobody is copied
        return
    names: set[str] = set()
    for path, leaf in jax.tree_util.tree_flatten_with_path(bench.unseeded(settings[:2]).learner)[0]:
        if FIELD not in path and not np.array_equal(leaf[0], leaf[1]):
            names.add(jax.tree_util.keystr(path))
    if names:
        raise ProximaError(
            "search.method: pbt changes settings while members train, and some of "
            f"{', '.join(settings[0])} act only when a training begins; leave those out, or take method asha"
        )


def _save(population: Population, breeding: Breeding, bench: Bench) -> None:
    content = {"scenario": breeding.scenario, "loop": _to_json(population)}
    checkpoint.save(
        breeding.folder, population.generation, bench.states, content, keep=1, best=False
    )


def _to_json(population: Population) -> dict[str, Any]:
    copies = [each._asdict() for each in population.copies]
    return vars(population) | {"copies": copies}


def _from_json(content: Mapping[str, Any]) -> Population:
    curves = [[(steps, value) for steps, value in curve] for curve in content["curves"]]
    copies = [Copy(**each) for each in content["copies"]]
    return Population(**dict(content) | {"curves": curves, "copies": copies})
