"""Training on host environments: programs that repeat to the bit, and resume so."""

import jax.numpy as jnp
import numpy as np
import pytest
from host_envs import MODES, NUM_ENVS, assert_same, differ, leaves, make, without_times

from proxima.core.seeds import host_seed
from proxima.domains.control.config import EnvConfig
from proxima.train.checkpoint import split_trials, stack_trials
from proxima.train.host import program as host

ON = np.ones(1, bool)


def test_a_run_repeats_to_the_bit_and_chunks_may_be_cut_anywhere():
    program, _, spies = make()
    one, sums = program.chunk(program.init([3]), ON, 4)
    assert len(spies[0].resets) == 1
    again, sums_again = program.chunk(program.init([3]), ON, 4)  # the same pool, used before
    assert_same(one, again)
    assert_same(without_times(sums), without_times(sums_again))
    other, _, other_spies = make()
    halves, _ = other.chunk(other.init([3]), ON, 2)
    halves, _ = other.chunk(halves, ON, 2)
    assert_same(one, halves)
    assert len(other_spies[0].resets) == 1  # the second chunk took up the pool as it stood
    assert differ(one, other.chunk(other.init([4]), ON, 4)[0])


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_a_restored_run_goes_on_as_the_one_that_was_not_stopped(autoreset):
    program, _, spies = make(trials=2, autoreset=autoreset)
    on = np.ones(2, bool)
    states, _ = program.chunk(program.init([3, 4]), on, 2)
    states = program.reseed(states)
    saved = split_trials(states)
    states, sums = program.chunk(states, on, 2)
    assert len(spies[0].resets) == 2 and not set(spies[0].seeds[0]) & set(spies[0].seeds[1])

    restored, _, _ = make(trials=2, autoreset=autoreset)
    resumed, resumed_sums = restored.chunk(restored.lay_out(stack_trials(saved)), on, 2)
    assert_same(states, resumed)
    assert_same(without_times(sums), without_times(resumed_sums))
    assert not program.exact_anywhere


def test_seeds_are_those_of_the_contract():
    program, _, spies = make(trials=2)
    states, on = program.init([3, 4]), np.ones(2, bool)
    states, _ = program.chunk(states, on, 1)
    program.chunk(program.reseed(states), on, 1)
    pairs = [(3, 0), (3, 1), (4, 0), (4, 1)]  # trial seed and environment
    assert spies[0].seeds == [
        [host_seed(trial + 10_000 + i, trial, 0) for trial, i in pairs],
        [host_seed(trial + i, trial, 1) for trial, i in pairs],
    ]
    program.evaluate(program.init([3, 4]).learner, "random", 4)
    assert spies[1].seeds == [[host_seed(0 + 999 + j, 0, 0) for j in range(4)]]


def test_a_reseed_drops_open_episodes():
    program, _, _ = make()
    states, _ = program.chunk(program.init([0]), ON, 1)
    assert np.any(states.actors.episode_length > 0)
    states = program.reseed(states)
    assert int(states.actors.generation[0]) == 1
    assert not np.any(states.actors.episode_length) and not np.any(states.actors.episode_return)


@pytest.mark.parametrize("autoreset", MODES)
def test_episode_sums_are_those_of_a_plain_count(autoreset):
    program, _, spies = make(trials=2, autoreset=autoreset)
    states, active = program.init([0, 1]), np.ones(2, bool)
    totals = np.zeros((2, 3))
    names = ("episode/count", "episode/return_sum", "episode/length_sum")
    for _ in range(3):
        states, sums = program.chunk(states, active, 2)
        totals += np.stack([sums[name] for name in names], axis=1)
    expected, lengths = np.zeros((2, 3)), np.zeros(2 * NUM_ENVS)
    for step in spies[0].steps:
        lengths += step.mask
        for i in np.flatnonzero(step.terminated | step.truncated):
            expected[i // NUM_ENVS] += 1, lengths[i], lengths[i]
            lengths[i] = 0
    assert expected[:, 0].min() >= 2
    np.testing.assert_array_equal(totals, expected)
    np.testing.assert_array_equal(states.actors.episode_length.ravel(), lengths)


def test_trials_have_their_own_seeds_and_a_stopped_one_stays_as_it_was():
    program, _, spies = make(trials=2)
    states = program.init([5, 6])
    before = split_trials(states)
    states, _ = program.chunk(states, np.array([True, False]), 2)
    assert len(set(spies[0].seeds[0])) == 2 * NUM_ENVS
    after = split_trials(states)
    assert_same(before[1], after[1])
    assert differ(before[0].learner, after[0].learner) and differ(before[0].key, after[0].key)
    program.chunk(states, np.array([True, False]), 1)
    assert len(spies[0].resets) == 1  # the stopped trial's count does not make the pool start over


def test_a_trial_whose_loss_is_not_finite_comes_back_as_it_went_in():
    program, _, _ = make(trials=2)
    states = program.init([5, 6])
    rates = states.learner.hyper.learning_rate.at[1].set(jnp.nan)
    hyper = states.learner.hyper._replace(learning_rate=rates)
    states = states._replace(learner=states.learner._replace(hyper=hyper))
    before = split_trials(states)
    states, sums = program.chunk(states, np.ones(2, bool), 3)
    after = split_trials(states)
    assert np.isfinite(sums["loss/total"]).tolist() == [True, False]
    assert_same(before[1], after[1])
    assert int(after[0].learner.updates) == 3
    assert all(np.isfinite(leaf).all() for leaf in leaves(after[0].learner.net))


def test_preparing_compiles_everything_and_changes_nothing():
    program, _, spies = make(EnvConfig(name="Acrobot-v1"))
    states = program.init([1])
    before = split_trials(states)
    states = program.prepare(states, 10)
    assert_same(before, split_trials(states))
    assert not spies[0].resets
    compiled = host._update._cache_size(), host._begin._cache_size()
    states, _ = program.chunk(states, ON, 1)
    assert (host._update._cache_size(), host._begin._cache_size()) == compiled
    fresh, _, _ = make(EnvConfig(name="Acrobot-v1"))
    assert_same(states, fresh.chunk(fresh.init([1]), ON, 1)[0])


@pytest.mark.parametrize("autoreset", MODES)
def test_a_continuous_environment_trains(autoreset):
    config = EnvConfig(name="Pendulum-v1", max_steps_per_episode=10)
    program, _, _ = make(config, trials=2, autoreset=autoreset, normalize_observations=True)
    states = program.init([0, 1])
    first = np.array(states.learner.net.actor.layers[0].weight)
    states, sums = program.chunk(states, np.ones(2, bool), 3)
    assert all(np.isfinite(value).all() for value in sums.values())
    assert np.abs(np.array(states.learner.net.actor.layers[0].weight) - first).max() > 0
    evaluation = program.evaluate(states.learner, "sampled", 3)
    assert evaluation.lengths.tolist() == [[10.0] * 3] * 2
    program.close()
