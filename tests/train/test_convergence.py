"""Sliding window, patience and best value."""

import math

import pytest

from proxima.train.convergence import Convergence, ConvergenceConfig, observe, window_mean

CONFIG = ConvergenceConfig(target_reward=10.0, convergence_window=100, early_stopping_patience=50)


def feed(config, means, episodes=50):
    state = Convergence()
    for step, mean in enumerate(means, start=1):
        state = observe(config, state, mean, episodes, step * 1000)
    return state


def test_the_window_must_be_full():
    assert feed(CONFIG, [20.0]).reached_at_step is None
    assert feed(CONFIG, [20.0, 20.0]).reached_at_step == 2000


def test_patience_asks_for_staying_there():
    assert not feed(CONFIG, [20.0, 20.0]).converged
    assert feed(CONFIG, [20.0, 20.0, 20.0]).converged
    fallen = feed(CONFIG, [20.0, 20.0, -90.0, 20.0, 20.0])
    assert not fallen.converged and fallen.reached_at_step == 5000


def test_no_patience_converges_at_once():
    config = ConvergenceConfig(target_reward=10.0, convergence_window=50, early_stopping_patience=0)
    state = feed(config, [10.0])
    assert state.converged and state.reached_at_step == 1000


def test_the_window_slides():
    state = feed(CONFIG, [0.0, 0.0, 6.0, 8.0])
    assert window_mean(state.groups) == pytest.approx(7.0)
    assert state.best == pytest.approx(7.0)


def test_the_best_value_is_kept():
    assert feed(CONFIG, [8.0, 8.0, 2.0, 2.0]).best == pytest.approx(8.0)


def test_no_target_never_converges():
    config = ConvergenceConfig(convergence_window=50)
    assert config.target_reward is None, "195 is CartPole's, and no other environment's"
    assert not feed(config, [1e9] * 20).converged


def test_groups_weigh_by_their_episodes():
    assert window_mean(((0.0, 1), (4.0, 3))) == 3.0
    assert math.isnan(window_mean(()))


def test_no_episodes_change_nothing():
    state = feed(CONFIG, [20.0, 20.0])
    assert observe(CONFIG, state, math.nan, 0, 9000) == state
