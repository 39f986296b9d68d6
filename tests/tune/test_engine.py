"""Orders on lanes that are never idle, on a bench that trains nothing."""

import math
import random
import tracemalloc

import pytest
from lanes import RATE, FakeBench, Memory

from proxima.core.errors import ProximaError
from proxima.scenario.search import Range, SearchConfig
from proxima.train.convergence import ConvergenceConfig
from proxima.tune.engine import Engine, Rules, values_of
from proxima.tune.ledger import Ledger
from proxima.tune.method import Order, Outcome
from proxima.tune.methods import make_method
from proxima.tune.objective import Objective

RANGES = {RATE: Range("uniform", 0.0, 1.0)}
FINAL = Objective("eval/return_mean", "final", "maximise", None, 10)


def engine_of(
    method="random", configs=10, seeds=(3, 4), evaluations=5, bench=None, target=None, **more
) -> Engine:
    config = SearchConfig(method=method, configs=configs, evaluations=evaluations, seed=1, **more)
    rules = Rules(
        seeds,
        evaluations,
        FINAL,
        ConvergenceConfig(target_reward=target, convergence_window=1, early_stopping_patience=0),
        None,
    )
    bench = bench or FakeBench(4)
    drawn = make_method(config, RANGES, lambda settings: None)
    return Engine(drawn, rules, bench, lambda settings: 0, Memory(), Ledger([None] * bench.width))


def carry_out(engine: Engine) -> Engine:
    while engine.take_up():
        engine.advance()
    return engine


def told(engine: Engine) -> dict[int, float]:
    return {
        event.number: event.value for event in engine.ledger.events if isinstance(event, Outcome)
    }


def expected(engine: Engine, number: int, updates: int = 10) -> float:
    rate, seeds = engine.method.settings[number][RATE], engine.rules.seeds
    return sum(rate + 0.001 * (seed % 7) + 0.01 * updates for seed in seeds) / len(seeds)


def test_every_configuration_is_trained_once_on_all_seeds():
    engine = carry_out(engine_of())
    assert told(engine) == pytest.approx({n: expected(engine, n) for n in range(10)})
    assert engine.ledger.steps == 10 * 2 * 10
    assert engine.ledger.trainings[3, 1].curve[-1][0] == 10 and len(engine.ledger.trainings) == 20


def test_lanes_are_never_idle_while_something_waits():
    bench = FakeBench(4)
    carry_out(engine_of(configs=11, seeds=(3,), bench=bench))
    # 11 trainings of 5 evaluations on 4 lanes: two whole rounds, and three lanes in the last
    assert bench.busy == [4] * 10 + [3] * 5


def test_a_lane_that_ends_early_takes_the_next_configuration_at_once():
    bench = FakeBench(4, broken=0.7)
    engine = carry_out(engine_of(configs=40, seeds=(3,), bench=bench))
    broken = [n for n, each in enumerate(engine.method.settings) if each[RATE] >= 0.7]
    values = told(engine)
    assert broken and {n for n in values if values[n] == -math.inf} == set(broken)
    assert all(busy == 4 for busy in bench.busy[:-5])


def test_a_seed_that_breaks_down_ends_its_configuration():
    engine = carry_out(engine_of(configs=3, seeds=(1, 2, 3), bench=FakeBench(2, broken=0.0)))
    assert set(told(engine).values()) == {-math.inf}
    begun = [seat for seat, each in engine.ledger.trainings.items() if each.ended]
    assert len(begun) == 3 * 2  # the third seed never got a lane
    assert values_of(engine.ledger, engine.rules, 0) == (None, None, None)


def test_what_has_converged_frees_its_lane_and_keeps_its_value():
    engine = carry_out(engine_of("asha", configs=9, seeds=(3,), evaluations=9, target=0.6))
    ended = {seat: each for seat, each in engine.ledger.trainings.items() if each.ended}
    assert ended and all(each.curve[-1][1] >= 0.6 for each in ended.values())
    assert all(each.ended == "converged" for each in ended.values())
    # one that converged at the first rung may be promoted: it is told again, and trains no more
    assert engine.ledger.steps < 9 * 10


def test_asha_goes_on_from_the_states_it_left():
    """The bench refuses another seed's or configuration's state; the value counts every update once."""
    bench = FakeBench(2)
    engine = carry_out(engine_of("asha", configs=27, seeds=(3, 4), evaluations=9, bench=bench))
    whole = [n for n in range(27) if engine.ledger.training((n, 0)).curve[-1][0] == 10]
    values = told(engine)
    assert whole
    for number in whole:
        assert values[number] == pytest.approx(expected(engine, number))
        steps = [step for step, _ in engine.ledger.training((number, 1)).curve]
        assert steps == [10 * k // 9 for k in range(1, 10)]


@pytest.mark.parametrize("width", [1, 2, 4, 5, 7])
def test_a_seed_that_ends_before_its_siblings_is_not_lost(width):
    """Its lane may be needed while the others of its configuration still train."""
    engine = engine_of("asha", configs=27, seeds=(3, 4, 5), evaluations=9, bench=FakeBench(width))
    memory = engine._parking
    while engine.take_up():
        engine.advance()
        memory.keep(engine.wanted())
    assert len(told(engine)) == 27


def test_programs_are_loaded_one_after_the_other():
    bench = FakeBench(4)
    engine = engine_of(configs=12, seeds=(3,), bench=bench)
    engine._program_of = lambda settings: int(settings[RATE] * 3)
    carry_out(engine)
    assert sorted(bench.loads) == sorted(set(bench.loads)) == [0, 1, 2]
    assert len(told(engine)) == 12


def test_asha_parks_what_another_program_pushes_out():
    engine = engine_of("asha", configs=18, seeds=(3,), evaluations=9)
    engine._program_of = lambda settings: int(settings[RATE] * 2)
    carry_out(engine)
    orders = [event for event in engine.ledger.events if isinstance(event, Order) and event.begin]
    assert orders and len(told(engine)) == 18


def test_programs_go_on_though_what_is_promoted_has_converged():
    """An order that trains nothing must not look like the end of all orders."""
    engine = engine_of("asha", configs=40, seeds=(3,), evaluations=9, target=0.3)
    engine._program_of = lambda settings: int(settings[RATE] * 8)
    carry_out(engine)
    assert len(told(engine)) == 40


def test_a_metric_that_nobody_records_is_refused():
    engine = engine_of()
    engine.rules = engine.rules._replace(objective=FINAL._replace(metric="eval/retrun_mean"))
    engine.take_up()
    with pytest.raises(
        ProximaError, match=r"search.metric: .*retrun_mean.* did you mean eval/return_mean"
    ):
        engine.advance()


def test_ten_thousand_configurations_need_no_more_states_than_the_width():
    def most(configs: int) -> tuple[int, int]:
        engine = engine_of("asha", configs=configs, seeds=(3,), evaluations=9, bench=FakeBench(16))
        memory = engine._parking
        tracemalloc.start()
        while engine.take_up():
            engine.advance()
            memory.keep(engine.wanted())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(told(engine)) == configs and len(engine.bench.states) == 16
        return peak, memory.most

    small, _ = most(1_000)
    large, _ = most(10_000)
    # what is written down of each is some kilobytes; a state of the smallest net is a hundred
    assert (large - small) / 9_000 < 8_000


def test_settings_may_change_on_the_way():
    """As a population's schedule is run again; also where a lane is begun in the middle of it."""
    engine = engine_of(configs=3, seeds=(7,))
    schedule = {0: engine.method.settings[1], 2: {RATE: 0.5}, 4: {RATE: 0.25}}
    engine._schedules = {1: schedule}
    rates = []
    while engine.take_up():
        engine.advance()
        rates += [
            engine.bench.states[i][0]
            for i, lane in enumerate(engine.ledger.lanes)
            if lane and lane.job.number == 1
        ]
    first = engine.method.settings[1][RATE]
    assert rates == [first, first, 0.5, 0.5, 0.25]
    lane = next(lane for lane in engine.ledger.lanes if lane and lane.job.number == 1)
    begun = [engine.start_of(lane._replace(done=done)).settings[RATE] for done in range(6)]
    assert begun == [first, first, first, 0.5, 0.5, 0.25]


def test_a_shuffled_search_gives_every_configuration_the_same_value(monkeypatch):
    engine = carry_out(engine_of(configs=20))
    values = {tuple(engine.method.settings[n].items()): v for n, v in told(engine).items()}
    other = engine_of(configs=20)
    random.Random(0).shuffle(other.method.settings)
    carry_out(other)
    assert {tuple(other.method.settings[n].items()): v for n, v in told(other).items()} == values
