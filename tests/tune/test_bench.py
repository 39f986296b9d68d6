"""Lanes with settings of their own: to the bit what the same settings give anywhere else."""

import jax
import numpy as np
import pytest
from lanes import LAMBDA, RATE, small
from tiny import equal_trees

from proxima.build import domain_of
from proxima.core.hyper import FIELD
from proxima.scenario import changed
from proxima.train.checkpoint import lane_of
from proxima.train.compiled.episodes import _evaluate
from proxima.train.compiled.program import _init, chunk
from proxima.tune.bench import Bench, Evaluations, Start
from proxima.tune.programs import Programs

FIRST = {RATE: 3e-3, LAMBDA: 0.9}
OTHERS = [{RATE: 1e-4, LAMBDA: 0.5}, {RATE: 5e-2, LAMBDA: 1.0}, {RATE: 1e-2, LAMBDA: 0.7}]


def bench_of(scenario, paths=(RATE, LAMBDA), settings=FIRST, width=4) -> Bench:
    programs = Programs(scenario, width, paths)
    bench = Bench(programs, width, Evaluations(4, 999))
    bench.load(programs.of(settings), settings)
    return bench


@pytest.fixture(scope="module")
def alone():
    """The state and value of a configuration after four updates, begun in lane 0 beside others."""
    bench = bench_of(small())
    starts = [Start(FIRST, 5), *(Start(each, 6 + i) for i, each in enumerate(OTHERS))]
    bench.begin(dict(enumerate(starts)))
    bench.advance([4] * 4)
    return bench.take(0), bench.evaluate()[0]


def test_a_result_does_not_depend_on_lane_or_neighbours(alone):
    bench = bench_of(small())
    bench.begin({0: Start(OTHERS[1], 1), 1: Start(OTHERS[0], 2), 3: Start(OTHERS[2], 5)})
    bench.advance([3, 2, 0, 1])
    bench.begin({2: Start(FIRST, 5), 0: Start(OTHERS[2], 9)})  # two lanes go on with something else
    bench.advance([1, 3, 4, 2])
    assert equal_trees(bench.take(2), alone[0])
    assert bench.evaluate()[2] == alone[1]


def test_a_state_that_was_taken_out_goes_on_in_another_lane(alone):
    bench = bench_of(small())
    bench.begin({1: Start(FIRST, 5)})
    bench.advance([0, 2, 0, 0])
    state = bench.take(1)
    bench.begin({1: Start(OTHERS[0], 3)})
    bench.advance([0, 5, 0, 0])
    bench.begin({3: Start(FIRST, 5, state)})
    bench.advance([1, 1, 0, 2])
    assert equal_trees(bench.take(3), alone[0])


def test_a_lane_gives_the_bits_of_a_program_made_for_its_settings(alone):
    """What an experiment with these settings does, its trials as many as there are lanes."""
    scenario = changed(small(), {**FIRST, "trials": 4}, "test")
    prepared = domain_of(scenario).prepare(scenario)
    states = prepared.program.init([5, 6, 7, 8])
    states, _ = prepared.program.chunk(states, np.ones(4, bool), 4)
    assert equal_trees(lane_of(states, 0), alone[0])


def test_numbers_of_the_environment_differ_from_lane_to_lane():
    path = "env.params.max_speed"
    bench = bench_of(small(), paths=(path,), settings={path: 8.0})
    bench.begin({lane: Start({path: speed}, 5) for lane, speed in enumerate((8.0, 2.0, 8.0, 4.0))})
    bench.advance([3] * 4)
    states, scores = [bench.take(lane) for lane in range(4)], bench.evaluate()
    assert equal_trees(states[0], states[2]) and scores[0] == scores[2]
    assert not equal_trees(states[0], states[1]) and scores[0] != scores[1]
    other = bench_of(small(), paths=(path,), settings={path: 8.0})
    other.begin({2: Start({path: 2.0}, 5)})
    other.advance([0, 0, 3, 0])
    assert equal_trees(other.take(2), states[1]) and other.evaluate()[2] == scores[1]


def test_nothing_compiles_when_lanes_go_on_with_other_configurations():
    bench = bench_of(small())
    bench.begin({lane: Start(FIRST, lane) for lane in range(4)})
    bench.advance([2] * 4)
    bench.evaluate()
    bench.begin({0: Start(FIRST, 1, bench.take(1))})
    sizes = [each._cache_size() for each in (chunk, _evaluate, _init)]
    for number, settings in enumerate(OTHERS):
        bench.begin({number: Start(settings, 100 + number)})
        bench.begin({3: Start(FIRST, 1, bench.take(number))})
        bench.advance([1, 0, 2, 3])
        bench.evaluate()
    assert [each._cache_size() for each in (chunk, _evaluate, _init)] == sizes


def test_a_stretch_without_updates_changes_nothing():
    bench = bench_of(small())
    bench.begin({0: Start(FIRST, 5)})
    before = bench.take(0)
    assert bench.advance([0] * 4) == [{"episode/count": 0.0}] * 4
    assert equal_trees(bench.take(0), before)


def test_a_copy_has_the_others_learner_its_own_streams_and_its_own_numbers():
    bench = bench_of(small())
    bench.begin({lane: Start(settings, lane) for lane, settings in enumerate([FIRST, *OTHERS])})
    bench.advance([2] * 4)
    before = [bench.take(lane) for lane in range(4)]
    bench.change({2: {RATE: 2e-3, LAMBDA: 0.95}}, [0, 1, 0, 3])
    after = [bench.take(lane) for lane in range(4)]
    for lane in (0, 1, 3):
        assert equal_trees(after[lane], before[lane])
    assert equal_trees(after[2].key, before[2].key)
    assert equal_trees(after[2].actors, before[0].actors)
    learner, source = (
        jax.tree_util.tree_flatten_with_path(s.learner)[0] for s in (after[2], before[0])
    )
    for (path, mine), (_, theirs) in zip(learner, source, strict=True):
        assert FIELD in path or np.array_equal(mine, theirs)
    assert after[2].learner.hyper.learning_rate == np.float32(2e-3)
    assert after[2].learner.hyper.gae_lambda == np.float32(0.95)


def test_sizes_make_programs_of_their_own_and_numbers_do_not():
    size = "algorithm.minibatch_size"
    programs = Programs(small(), 4, (RATE, size))
    assert programs.of({RATE: 1e-3, size: 32}) == programs.of({RATE: 1e-2, size: 32}) == 0
    assert programs.of({RATE: 1e-3, size: 16}) == 1
    assert programs.of({RATE: 1e-3, "algorithm.normalize_advantages": "off"}) == 2
    assert programs.of({RATE: 9e-3, size: 16}) == 1 and len(programs) == 3


@pytest.mark.parametrize(
    ("name", "algorithm", "path"),
    [
        ("pendulum_td3", "ddpg", "algorithm.actor_learning_rate"),
        ("cartpole_spo", "spo", "algorithm.learning_rate"),
        ("cartpole_host", "ppo", "algorithm.learning_rate"),
    ],
)
def test_other_algorithms_and_environments_on_the_host(name, algorithm, path):
    scenario = small(name, algorithm, space={path: "log:1e-4:1e-1"})

    def states(places):
        bench = bench_of(scenario, (path,), {path: 1e-3}, width=2)
        bench.begin({lane: Start({path: rate}, seed) for lane, (rate, seed) in places.items()})
        bench.advance([1, 1])
        bench.advance([1, 1])
        taken = {place: bench.take(lane) for lane, place in places.items()}, bench.evaluate()
        bench._programs.close()
        return taken

    one, scores = states({0: (1e-3, 3), 1: (1e-2, 4)})
    other, again = states({0: (1e-4, 8), 1: (1e-3, 3)})
    assert equal_trees(one[1e-3, 3], other[1e-3, 3]) and scores[0] == again[1]
    assert not equal_trees(one[1e-3, 3].learner, other[1e-4, 8].learner)
