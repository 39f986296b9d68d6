"""A search before it runs: what it varies, with which seeds, in how many lanes, and what it will take."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.core.seeds import trial_seeds
from proxima.scenario import EnvironmentScenario, Scenario
from proxima.scenario.search import SearchConfig
from proxima.train.convergence import ConvergenceConfig
from proxima.train.devices import use_compilation_cache
from proxima.tune.bench import Bench, Evaluations
from proxima.tune.blocks import Blocks, Elsewhere
from proxima.tune.carry import carry_out_here
from proxima.tune.check import (
    check_of,
    check_path,
    check_runnable,
    checked_ranges,
    search_of,
)
from proxima.tune.engine import Rules
from proxima.tune.files import SearchFiles
from proxima.tune.method import Check, Ranges, Settings
from proxima.tune.methods import make_method
from proxima.tune.methods.asha import rungs
from proxima.tune.methods.pbt import first_population
from proxima.tune.objective import Objective
from proxima.tune.population import (
    check_one_program,
)
from proxima.tune.programs import Programs

TUNING_ROLE, CHOOSING_ROLE = 0x7E57, 0xC400  # the random streams of both kinds of seeds
FEWEST_TRIALS = 6  # of what is run again; an even number lies well on two devices
MOST_TRIALS = 10_000  # of an experiment
MEASURED_SECONDS = 0.5


NOWHERE = SearchFiles(Path())  # for a search that is only planned


class Standing(NamedTuple):
    """How far a search is."""

    phase: str  # search, choosing
    done: int  # configurations that have a value; some may be trained further
    total: int
    steps: int
    all_steps: float  # what the phase will take, about
    seconds: float
    best: float | None
    settings: Settings | None  # of the best

    @property
    def fraction(self) -> float:
        """How much of the phase is done: of its steps, or of its configurations where none are counted."""
        if self.steps:
            return min(1.0, self.steps / max(self.all_steps, 1))
        return self.done / max(self.total, 1)


class Watch(NamedTuple):
    """Who shows a search to a person."""

    say: Callable[[str], None]
    show: Callable[[Standing], None]


class Search(NamedTuple):
    """A search that is ready to run."""

    scenario: Any
    config: SearchConfig
    files: SearchFiles
    ranges: Ranges
    check: Check
    programs: Programs | None  # None: configurations run one after the other
    width: int
    configs: int
    watch: Watch
    blocks: Blocks | None = None  # None: all lanes advance in one program
    elsewhere: Elsewhere | None = None  # None: this process does everything

    def rules(self, role: int, seeds: int) -> Rules:
        """How configurations are trained on the seeds of a role."""
        config, scenario = self.config, self.scenario
        numbers = seeds_of(scenario, config, role, seeds)
        stage_metric = config.metric or domain_of(scenario).curve(scenario)[1]
        judged = stage_metric, config.objective, config.direction
        if self.programs is None:  # an experiment's seeds follow each other
            numbers = tuple(trial_seeds(numbers[0], seeds))
            return Rules(numbers, 1, Objective(*judged, None, 0), ConvergenceConfig(), None)
        budget, convergence = scenario.training, scenario.convergence
        objective = Objective(*judged, convergence.target_reward, budget.max_steps)
        return Rules(numbers, config.evaluations, objective, convergence, budget.max_episodes)

    def program_of(self, settings: Settings) -> int:
        """The number of the program that trains a configuration."""
        return 0 if self.programs is None else self.programs.of(settings)

    def bench(self, role: int) -> Bench:
        """Lanes whose policies are evaluated on the episodes of a role."""
        assert self.programs is not None
        return Bench(self.programs, self.width, self.evaluations(role), self.blocks)

    def evaluations(self, role: int) -> Evaluations:
        """The episodes of a role's evaluations."""
        (seed,) = seeds_of(self.scenario, self.config, role + 1, 1)
        return Evaluations(self.scenario.evaluation.eval_episodes, seed)


def prepare_search(
    scenario: Any,
    watch: Watch,
    files: SearchFiles = NOWHERE,
    elsewhere: Elsewhere | None = None,
) -> Search:
    """The search of a scenario, or an error in words where it cannot be run."""
    config = search_of(scenario)
    check_runnable(scenario)
    ranges, check = checked_ranges(scenario), check_of(scenario)
    configs, paths = _drawn_over(scenario, config, ranges, check)
    width, programs, blocks = width_of(config, configs), None, None
    if isinstance(scenario, EnvironmentScenario):
        block = scenario.training.trials_per_block
        if block is None:
            programs = Programs(scenario, width, paths)
        else:
            block = min(block, width)
            width = -(-width // block) * block  # all blocks are alike; spare lanes stay idle
            programs = Programs(scenario, block, paths)
            blocks = Blocks(block, partial(carry_out_here, programs))
    if elsewhere is not None and blocks is None:
        raise ProximaError(
            "--cluster: this search has no blocks that others could train, and would not end with the same "
            "bits; leave it out, or start a new search with it"
        )
    return Search(
        scenario, config, files, ranges, check, programs, width, configs, watch, blocks, elsewhere
    )


def lanes_of(scenario: Any) -> int:
    """How many lanes the search of a scenario has."""
    config = search_of(scenario)
    ranges, check = checked_ranges(scenario), check_of(scenario)
    return width_of(config, _drawn_over(scenario, config, ranges, check)[0])


def _drawn_over(
    scenario: Any, config: SearchConfig, ranges: Ranges, check: Check
) -> tuple[int, list[str]]:
    """How many configurations there will be, and the settings that each has of its own."""
    if config.method not in ("grid", "table"):
        return config.configs, list(ranges)
    drawn = make_method(config, ranges, check).settings
    for path in drawn[0]:
        check_path(scenario, path)
    return len(drawn), list(drawn[0])


def seeds_of(scenario: Any, config: SearchConfig, role: int, count: int) -> tuple[int, ...]:
    """Seeds that no experiment with the scenario has: those are its own seed and the next ones."""
    numbers = np.random.SeedSequence((role, scenario.seed, config.seed)).generate_state(count) >> 1
    near = range(scenario.seed, scenario.seed + MOST_TRIALS)
    return tuple(int(each) + (MOST_TRIALS if int(each) in near else 0) for each in numbers)


def width_of(config: SearchConfig, configs: int) -> int:
    """Lanes: no more than there are trainings, an even number where there are several."""
    trainings = configs * config.seeds
    # every member of a population has its own lanes
    wanted = trainings if config.method == "pbt" else min(config.lanes, trainings)
    return wanted + wanted % 2 if wanted > 1 else 1


def make_ready(search: Search) -> None:
    """Ask for devices before JAX starts, and for the cache of compiled programs."""
    domain_of(search.scenario).prepare_host(replace(search.scenario, trials=search.width))
    use_compilation_cache()


def drawn_at_first(search: Search) -> Sequence[Settings]:
    """The configurations that are known before anything has run."""
    arguments = search.config, search.ranges, search.check
    if search.config.method == "pbt":
        return first_population(*arguments)
    return make_method(*arguments).settings


def check_first(search: Search) -> None:
    """An error where what is drawn first cannot be trained."""
    drawn = drawn_at_first(search)
    if search.config.method == "pbt":
        check_one_program(drawn, search.program_of)
    if search.programs is None:  # data that is missing is asked for by the scenario's name
        domain_of(search.scenario).prepare(search.scenario).close()


def measured_speed(search: Search, settings: Settings) -> float:
    """Environment steps per second of this process, measured for about a second."""
    assert search.programs is not None
    width = search.width if search.blocks is None else search.blocks.width
    bench = Bench(search.programs, width, search.evaluations(TUNING_ROLE))
    bench.load(search.program_of(settings), settings)
    bench.advance([1] * width)  # compiles
    updates, seconds = 1, 0.0
    while seconds < MEASURED_SECONDS:
        updates *= 2
        began = time.perf_counter()
        bench.advance([updates] * width)
        seconds = time.perf_counter() - began
    return updates * width * bench.loaded.program.steps_per_update / seconds


def steps_again(search: Search) -> int:
    """Environment steps of what is run again to choose and to test."""
    few = min(search.config.confirm, search.configs)
    runs = (few + 2) * max(FEWEST_TRIALS, search.scenario.trials) if few else 0
    return int(runs * search.scenario.training.max_steps)


def expected_steps(search: Search, configs: int, seeds: int, phase: str = "search") -> float:
    """Environment steps that a phase takes, about: asha gives most configurations a part of the budget."""
    config = search.config
    if search.programs is None:
        return float(configs)
    whole = search.scenario.training.max_steps
    if config.method != "asha" or phase != "search":
        return float(configs * seeds * whole)
    ends = rungs(config.evaluations, config.reduction)
    before = [0, *ends[:-1]]
    parts = [
        (end - begin) / config.reduction**i
        for i, (begin, end) in enumerate(zip(before, ends, strict=True))
    ]
    return configs * seeds * whole * sum(parts) / config.evaluations


class Plan(NamedTuple):
    """What a search is going to do."""

    method: str
    configs: int
    seeds: int
    lanes: int | None  # None: configurations run one after the other
    programs: int | None  # None: it depends on what is drawn later
    steps: float  # of environments, about
    again: int  # environment steps of what is run again to confirm the best
    speed: float  # steps of environments per second


def plan_search(scenario: Scenario) -> Plan:
    """The plan of a search, its speed measured; an error where it cannot be run."""
    search = prepare_search(scenario, Watch(lambda text: None, lambda standing: None))
    config, steps = search.config, expected_steps(search, search.configs, search.config.seeds)
    if search.programs is None:
        return Plan(config.method, search.configs, config.seeds, None, None, steps, 0, 1.0)
    make_ready(search)
    try:
        drawn = drawn_at_first(search)
        kinds = {search.programs.of(settings) for settings in drawn}
        programs = len(kinds) if len(drawn) == search.configs else None
        speed = measured_speed(search, drawn[0])
    finally:
        search.programs.close()
    again = steps_again(search)
    sizes = config.method, search.configs, config.seeds, search.width
    return Plan(*sizes, programs, steps, again, speed)
