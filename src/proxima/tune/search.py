"""A search over settings, from the first configuration to settings one can believe in.

    draw and train configurations         on seeds of the search's own
    the best few once more                on other seeds: by these the best is chosen
    the best and the scenario's own       on the scenario's seeds, which nobody had seen: these are reported

Three sets of seeds, because the best of many noisy values is always too good: it was chosen for its luck too.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.build import domain_of
from proxima.core.seeds import trial_seeds
from proxima.scenario import EnvironmentScenario, changed, to_stored
from proxima.scenario.search import SearchConfig
from proxima.train.convergence import ConvergenceConfig
from proxima.train.devices import use_compilation_cache
from proxima.tune.bench import Bench, Evaluations
from proxima.tune.check import (
    SOURCE,
    check_of,
    check_path,
    check_runnable,
    checked_ranges,
    own_values,
    search_of,
)
from proxima.tune.engine import Rules
from proxima.tune.experiments import closing_values, curves_of, experiment
from proxima.tune.files import SearchFiles
from proxima.tune.lineage import ancestry, last_settings
from proxima.tune.method import Check, Outcome, Ranges, Settings
from proxima.tune.methods import make_method
from proxima.tune.methods.asha import rungs
from proxima.tune.methods.pbt import evolve, first_population
from proxima.tune.methods.whole import WholeTrainings
from proxima.tune.objective import Objective, Point, score_of
from proxima.tune.phase import Carried, Phase, run_phase
from proxima.tune.population import (
    Breeding,
    Population,
    check_one_program,
    member_values,
    run_population,
)
from proxima.tune.programs import Programs
from proxima.tune.results import Configuration, Confirmed, Curve, SearchResult, State
from proxima.tune.sequence import run_sequence
from proxima.tune.tracking import Tracking

TUNING_ROLE, CHOOSING_ROLE = 0x7E57, 0xC400  # the random streams of both kinds of seeds
FEWEST_TRIALS = 6  # of what is run again; an even number lies well on two devices
MOST_TRIALS = 10_000  # of an experiment
MEASURED_SECONDS = 0.5
TESTED = {"best": "the best settings", "own": "the scenario's own settings"}


NOWHERE = SearchFiles(Path())  # for a search that is only planned


class Standing(NamedTuple):
    """How far a search is."""

    phase: str  # search, choosing
    done: int  # configurations whose training is over
    total: int
    steps: int
    all_steps: float  # what the phase will take, about
    seconds: float
    best: float | None
    settings: Settings | None  # of the best


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

    def rules(self, role: int, seeds: int) -> Rules:
        """How configurations are trained on the seeds of a role."""
        config, scenario = self.config, self.scenario
        numbers = seeds_of(scenario, config, role, seeds)
        stage_metric = config.metric or domain_of(scenario).curve(scenario)[1]
        judged = stage_metric, config.objective, config.direction
        if self.programs is None:
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
        (seed,) = seeds_of(self.scenario, self.config, role + 1, 1)
        episodes = self.scenario.evaluation.eval_episodes
        return Bench(self.programs, self.width, Evaluations(episodes, seed))


def prepare_search(scenario: Any, watch: Watch, files: SearchFiles = NOWHERE) -> Search:
    """The search of a scenario, or an error in words where it cannot be run."""
    config = search_of(scenario)
    check_runnable(scenario)
    ranges, check = checked_ranges(scenario), check_of(scenario)
    configs = config.configs
    if config.method in ("grid", "table"):
        method = make_method(config, ranges, check)
        configs = len(method.settings)
        paths = list(method.settings[0])
        for path in paths:
            check_path(scenario, path)
    else:
        paths = list(ranges)
    width = width_of(config, configs)
    is_lane_wise = isinstance(scenario, EnvironmentScenario)
    programs = Programs(scenario, width, paths) if is_lane_wise else None
    return Search(scenario, config, files, ranges, check, programs, width, configs, watch)


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


def run_search(search: Search, tracking: Tracking, test: bool = True) -> SearchResult:
    """The whole search, from where it stands to its end; without `test` what is chosen is not tested."""
    make_ready(search)
    try:
        result = _bred(search) if search.config.method == "pbt" else _searched(search, tracking)
        tracking.hand_over(result.configurations)
        result = _chosen(search, result)
        return _tested(search, result) if test else result
    finally:
        if search.programs is not None:
            search.programs.close()


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
    """Environment steps per second of all lanes together, measured for about a second."""
    bench = search.bench(TUNING_ROLE)
    bench.load(search.program_of(settings), settings)
    bench.advance([1] * search.width)  # compiles
    updates, seconds = 1, 0.0
    while seconds < MEASURED_SECONDS:
        updates *= 2
        began = time.perf_counter()
        bench.advance([updates] * search.width)
        seconds = time.perf_counter() - began
    return updates * search.width * bench.loaded.program.steps_per_update / seconds


def steps_again(search: Search) -> int:
    """Environment steps of what is run again to choose and to test."""
    few = min(search.config.confirm, search.configs)
    runs = (few + 2) * max(FEWEST_TRIALS, search.scenario.trials) if few else 0
    return int(runs * search.scenario.training.max_steps)


def _carry_out(search: Search, phase: Phase, role: int, show: Callable[[Carried], None]) -> Carried:
    """All orders of a phase: in lanes side by side, or one after the other."""
    if search.programs is None:
        return run_sequence(
            phase, lambda settings: changed(search.scenario, dict(settings), SOURCE), show
        )
    return run_phase(phase, search.programs, search.bench(role), show)


def _searched(search: Search, tracking: Tracking) -> SearchResult:
    """All configurations, drawn, trained and dropped by the method."""
    config = search.config

    def show(carried: Carried) -> None:
        _show(search, "search", carried)
        tracking.follow(carried, partial(_configuration, carried))

    phase = Phase(
        search.files.root / "search",
        partial(make_method, config, search.ranges, search.check),
        search.rules(TUNING_ROLE, config.seeds),
        to_stored(search.scenario),
    )
    carried = _carry_out(search, phase, TUNING_ROLE, show)
    configurations = [_configuration(carried, n) for n in range(len(carried.method.settings))]
    return _result(search, configurations, carried.ledger.steps, carried.ledger.seconds)


def _bred(search: Search) -> SearchResult:
    """A population, trained and bred."""
    config = search.config
    arguments = config, search.ranges, search.check
    breeding = Breeding(
        search.files.root / "search",
        partial(first_population, *arguments),
        partial(evolve, *arguments),
        search.rules(TUNING_ROLE, config.seeds),
        to_stored(search.scenario),
    )

    def show(population: Population) -> None:
        values = [score_of(rules.objective, each) for each in member_values(population, rules)]
        best = int(np.argmax(values))
        whole = len(values) * config.seeds * search.scenario.training.max_steps
        done = population.generation * len(values) // config.evaluations
        standing = Standing(
            "search",
            done,
            len(values),
            population.steps,
            whole,
            population.seconds,
            *_best(rules, values[best], population.settings[best]),
        )
        search.watch.show(standing)

    rules = breeding.rules
    population = run_population(breeding, search.program_of, search.bench(TUNING_ROLE), show)
    configurations = [
        _member(population, config, member, values)
        for member, values in enumerate(member_values(population, rules))
    ]
    result = _result(search, configurations, population.steps, population.seconds)
    return result._replace(copies=tuple(population.copies))


def _member(
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


def _schedule(result: SearchResult, row: Configuration) -> dict[int, Settings]:
    """The settings that led to a configuration's end, by the evaluations done before each."""
    known = {0: 0} | {steps: done for done, (steps, _) in enumerate(row.curve, 1)}
    return {known[span.start]: span.settings or row.settings for span in ancestry(result, row)}


def _chosen(search: Search, result: SearchResult) -> SearchResult:
    """The result with the best few run again on other seeds, and the best of these chosen."""
    ranking = best_first(result)
    few = ranking[: search.config.confirm]
    if not few:
        return result._replace(chosen=ranking[0].number if ranking else None)
    trials = max(FEWEST_TRIALS, search.scenario.trials)
    rules = search.rules(CHOOSING_ROLE, trials)
    schedules = {place: _schedule(result, each) for place, each in enumerate(few)}
    phase = Phase(
        search.files.root / "choosing",
        lambda drawn: WholeTrainings(rules.evaluations, [each[0] for each in schedules.values()]),
        rules,
        to_stored(search.scenario),
        schedules,
    )
    carried = _carry_out(search, phase, CHOOSING_ROLE, partial(_show, search, "choosing"))
    choosing = tuple(
        Confirmed(each.number, carried.values(place), rules.seeds) for place, each in enumerate(few)
    )
    scores = [score_of(rules.objective, each.values) for each in choosing]
    return result._replace(chosen=choosing[int(np.argmax(scores))].number, choosing=choosing)


def _tested(search: Search, result: SearchResult) -> SearchResult:
    """The chosen settings and the scenario's own as experiments, on seeds that nobody had seen."""
    if search.config.confirm == 0 or result.chosen is None:
        return result
    scenario = search.scenario
    settings = last_settings(result, result.configurations[result.chosen])
    trials = max(FEWEST_TRIALS, scenario.trials)
    seeds = tuple(trial_seeds(scenario.seed, trials))
    best = changed(scenario, dict(settings) | {"tried": len(result.configurations)}, SOURCE)
    test = []
    for name, number, each in (("best", result.chosen, best), ("own", None, scenario)):
        search.watch.say(f"Testing {TESTED[name]} on {trials} seeds that the search has not seen.")
        folder = search.files.root / "test"
        summary = experiment(each, folder, name, trials, scenario.seed)
        curves = curves_of(each, folder, name, result.metric)
        test.append(Confirmed(number, closing_values(summary, curves), seeds))
    return result._replace(test=tuple(test))


def best_first(result: SearchResult) -> list[Configuration]:
    """The configurations that did not break down, the best first; those stopped before come last."""
    sign = -1 if is_higher_better(result) else 1

    def order(each: Configuration) -> tuple[float, float, int]:
        stopped_at = -each.steps if each.state == "stopped" else -math.inf
        return stopped_at, sign * (each.value or 0.0), each.number

    return sorted((each for each in result.configurations if each.value is not None), key=order)


def is_higher_better(result: SearchResult) -> bool:
    """Which values of a search are the better ones."""
    return result.direction == "maximise" and result.objective != "steps_to_target"


def _result(
    search: Search, configurations: Sequence[Configuration], steps: int, seconds: float
) -> SearchResult:
    scenario, config = search.scenario, search.config
    paths = list(configurations[0].settings)
    return SearchResult(
        scenario=scenario.name,
        search_id=search.files.search_id,
        method=config.method,
        metric=search.rules(TUNING_ROLE, 1).objective.metric,
        objective=config.objective,
        direction=config.direction,
        space={path: span.words() for path, span in search.ranges.items()},
        seeds=config.seeds,
        own=own_values(scenario, paths),
        configurations=tuple(configurations),
        chosen=None,
        choosing=(),
        test=(),
        copies=(),
        steps=steps,
        seconds=seconds,
        programs=max(1, len(search.programs or ())),
    )


def _configuration(carried: Carried, number: int) -> Configuration:
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


def _show(search: Search, phase: str, carried: Carried) -> None:
    """How far a phase is, to whoever watches."""
    values = {
        event.number: event.value for event in carried.ledger.events if isinstance(event, Outcome)
    }
    done = values.keys() - carried.ledger.open
    best = max(values, key=lambda number: values[number], default=None)
    shown: tuple[float | None, Settings | None] = (None, None)
    if best is not None:
        shown = _best(carried.rules, values[best], carried.method.settings[best])
    configs = search.configs if phase == "search" else len(carried.method.settings)
    whole = expected_steps(search, configs, len(carried.rules.seeds), phase)
    ledger = carried.ledger
    standing = Standing(phase, len(done), configs, ledger.steps, whole, ledger.seconds, *shown)
    search.watch.show(standing)


def _best(rules: Rules, score: float, settings: Settings) -> tuple[float | None, Settings | None]:
    if not np.isfinite(score):
        return None, None
    return (score if rules.objective.higher_is_better else -score), settings


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
