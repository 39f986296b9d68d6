"""Evaluation and recordings on host environments: episodes that repeat, whoever plays them."""

import gymnasium
import jax
import numpy as np
import pytest
from host_envs import COUNTER, make

from proxima.core.errors import ProximaError
from proxima.core.types import View
from proxima.domains.control import gymnasium as adapter
from proxima.domains.control.config import EnvConfig
from proxima.train.host import evaluate as host_evaluate


def test_evaluation_episodes_are_the_same_for_every_learner_trial_and_policy():
    program, _, spies = make(trials=2)
    states = program.init([0, 1])
    first = program.evaluate(states.learner, "greedy", 20)
    states, _ = program.chunk(states, np.ones(2, bool), 3)
    later = program.evaluate(states.learner, "greedy", 20)
    assert not np.array_equal(first.returns, later.returns)
    sampled = program.evaluate(states.learner, "sampled", 20)
    again = program.evaluate(states.learner, "sampled", 20)
    np.testing.assert_array_equal(sampled.returns, again.returns)
    assert not np.array_equal(sampled.returns, later.returns)
    assert len(spies) == 2  # training, and one pool for all four evaluations
    # 20 episodes are two rounds of 10 per trial; four evaluations begin with the same observations.
    starts = np.array(spies[1].resets).reshape(4, 2, 2, 10, 4)
    assert len(np.unique(starts[0, :, 0].reshape(20, 4), axis=0)) == 20
    for other in (starts[1:], starts[:, :, 1:]):
        np.testing.assert_array_equal(other, np.broadcast_to(starts[0, :, :1], other.shape))


def test_greedy_evaluation_is_that_of_a_plain_loop_over_single_episodes():
    program, agent, spies = make(trials=2)
    states, _ = program.chunk(program.init([0, 1]), np.ones(2, bool), 3)
    evaluation = program.evaluate(states.learner, "greedy", 18)
    assert evaluation.returns.shape == evaluation.lengths.shape == (2, 18)
    seeds = np.array(spies[1].seeds)[
        :, :9
    ].ravel()  # two rounds of nine; the second trial's are equal
    env = gymnasium.make("CartPole-v1")
    exploit = jax.jit(lambda learner, obs: agent.exploit(learner, View(obs[None])).action[0])
    for trial, episode in [(0, 0), (0, 17), (1, 3), (1, 9)]:
        learner = jax.tree.map(lambda leaf, trial=trial: leaf[trial], states.learner)
        (obs, _), ended, total = env.reset(seed=int(seeds[episode])), False, 0
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(int(exploit(learner, obs)))
            ended, total = terminated or truncated, total + reward
        assert evaluation.returns[trial, episode] == evaluation.lengths[trial, episode] == total


def test_random_episodes_do_not_depend_on_how_many_are_asked_for():
    program, _, _ = make(trials=2)
    learners = program.init([0, 1]).learner
    few, many = program.evaluate(learners, "random", 5), program.evaluate(learners, "random", 18)
    np.testing.assert_array_equal(few.returns, many.returns[:, :5])
    np.testing.assert_array_equal(many.returns[0], many.returns[1])
    assert len(set(many.returns[0])) > 5


def test_an_endless_evaluation_is_refused(monkeypatch):
    monkeypatch.setattr(host_evaluate, "EVALUATION_STEPS", 20)
    program, _, _ = make()
    with pytest.raises(ProximaError, match="max_steps_per_episode"):
        program.evaluate(program.init([0]).learner, "random", 16)


def test_a_recording_is_one_whole_episode_with_pictures_where_there_are_any():
    program, _, _ = make(COUNTER)
    learner = jax.tree.map(lambda leaf: leaf[0], program.init([0]).learner)
    recording = program.record(learner)
    length = len(recording.rewards)
    assert recording.obs.tolist()[0] == [0, 0, 0] and len(recording.actions) == length
    assert [frame[0, 0, 0] for frame in recording.frames] == list(range(length))
    program, _, _ = make(
        EnvConfig(name="TestRecycler-v0", params={"raises_at": 9}), autoreset="next_step"
    )
    assert len(program.record(learner).frames) == length


def test_an_environment_that_cannot_draw_is_recorded_without_pictures():
    pool = adapter.make_pool(EnvConfig(name="TestBounded-v0"), 1, render=True)
    pool.reset([0])
    assert pool.render() is None
    program, _, _ = make(EnvConfig(name="TestBounded-v0", max_steps_per_episode=4))
    recording = program.record(jax.tree.map(lambda leaf: leaf[0], program.init([0]).learner))
    assert recording.frames is None and recording.obs.shape == (4, 2, 1)
