"""A search over settings, from the first configuration to settings one can believe in.

    draw and train configurations         on seeds of the search's own
    the best few once more                on other seeds: by these the best is chosen
    the best and the scenario's own       on the scenario's seeds, which nobody had seen: these are reported

Three sets of seeds, because the best of many noisy values is always too good: it was chosen for its luck too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from proxima.core.seeds import trial_seeds
from proxima.scenario import changed, to_stored
from proxima.tune.check import (
    SOURCE,
    own_values,
)
from proxima.tune.engine import Rules
from proxima.tune.experiments import closing_values, curves_of, experiment
from proxima.tune.lineage import last_settings
from proxima.tune.method import Outcome, Settings
from proxima.tune.methods import make_method
from proxima.tune.methods.pbt import evolve, first_population
from proxima.tune.methods.whole import WholeTrainings
from proxima.tune.objective import score_of
from proxima.tune.outcomes import best_first, configuration_outcome, member_outcome, schedule_of
from proxima.tune.phase import Carried, Phase, run_phase
from proxima.tune.plan import (
    CHOOSING_ROLE,
    FEWEST_TRIALS,
    TUNING_ROLE,
    Search,
    Standing,
    expected_steps,
    make_ready,
)
from proxima.tune.population import (
    Breeding,
    Population,
    member_values,
    run_population,
)
from proxima.tune.results import Configuration, Confirmed, SearchResult
from proxima.tune.sequence import run_sequence
from proxima.tune.tracking import Tracking

TESTED = {"best": "the best settings", "own": "the scenario's own settings"}


def run_search(search: Search, tracking: Tracking, test: bool = True) -> SearchResult:
    """The whole search, from where it stands to its end; without `test` what is chosen is not tested."""
    make_ready(search)
    try:
        with _carried(search) as carried:
            is_bred = search.config.method == "pbt"
            result = _bred(carried) if is_bred else _searched(carried, tracking)
            tracking.hand_over(result.configurations)
            result = _chosen(carried, result)
        return _tested(search, result) if test else result
    finally:
        if search.programs is not None:
            search.programs.close()


@contextmanager
def _carried(search: Search) -> Iterator[Search]:
    """The search with blocks that are carried out elsewhere while this is open, if it has somebody there."""
    if search.elsewhere is None or search.blocks is None:
        yield search
        return
    number = search.width // search.blocks.width
    with search.elsewhere.carrying(search.scenario, number, search.watch.say) as carry:
        yield search._replace(blocks=search.blocks._replace(carry=carry))


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
        tracking.follow(carried, partial(configuration_outcome, carried))

    phase = Phase(
        search.files.root / "search",
        partial(make_method, config, search.ranges, search.check),
        search.rules(TUNING_ROLE, config.seeds),
        to_stored(search.scenario),
    )
    carried = _carry_out(search, phase, TUNING_ROLE, show)
    configurations = [
        configuration_outcome(carried, n) for n in range(len(carried.method.settings))
    ]
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
        member_outcome(population, config, member, values)
        for member, values in enumerate(member_values(population, rules))
    ]
    result = _result(search, configurations, population.steps, population.seconds)
    return result._replace(copies=tuple(population.copies))


def _chosen(search: Search, result: SearchResult) -> SearchResult:
    """The result with the best few run again on other seeds, and the best of these chosen."""
    ranking = best_first(result)
    few = ranking[: search.config.confirm]
    if not few:
        return result._replace(chosen=ranking[0].number if ranking else None)
    trials = max(FEWEST_TRIALS, search.scenario.trials)
    rules = search.rules(CHOOSING_ROLE, trials)
    schedules = {place: schedule_of(result, each) for place, each in enumerate(few)}
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
    test, train = [], None if search.elsewhere is None else search.elsewhere.train
    for name, number, each in (("best", result.chosen, best), ("own", None, scenario)):
        search.watch.say(f"Testing {TESTED[name]} on {trials} seeds that the search has not seen.")
        folder = search.files.root / "test"
        summary = experiment(each, folder, name, trials, scenario.seed, train)
        curves = curves_of(each, folder, name, result.metric)
        test.append(Confirmed(number, closing_values(summary, curves), seeds))
    return result._replace(test=tuple(test))


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


def _show(search: Search, phase: str, carried: Carried) -> None:
    """How far a phase is, to whoever watches."""
    values = {
        event.number: event.value for event in carried.ledger.events if isinstance(event, Outcome)
    }
    best = max(values, key=lambda number: values[number], default=None)
    shown: tuple[float | None, Settings | None] = (None, None)
    if best is not None:
        shown = _best(carried.rules, values[best], carried.method.settings[best])
    configs = search.configs if phase == "search" else len(carried.method.settings)
    whole = expected_steps(search, configs, len(carried.rules.seeds), phase)
    ledger = carried.ledger
    standing = Standing(phase, len(values), configs, ledger.steps, whole, ledger.seconds, *shown)
    search.watch.show(standing)


def _best(rules: Rules, score: float, settings: Settings) -> tuple[float | None, Settings | None]:
    if not np.isfinite(score):
        return None, None
    return (score if rules.objective.higher_is_better else -score), settings
