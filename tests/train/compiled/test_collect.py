"""The collector: what a rollout holds, and episode sums against a slow loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import BOTH
from problems import problem_of

from proxima.core.types import Transition
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnax import make
from proxima.train.compiled.collect import Actors
from proxima.train.compiled.episodes import finished_episodes


def random_rollout(seed, steps=40, envs=5):
    random = np.random.default_rng(seed)
    terminated = random.random((steps, envs)) < 0.08
    truncated = (random.random((steps, envs)) < 0.08) & ~terminated
    mask = np.ones((steps, envs), bool)
    mask[1:][(terminated | truncated)[:-1]] = random.random() < 0.5
    terminated, truncated = terminated & mask, truncated & mask
    reward = random.normal(size=(steps, envs)).astype(np.float32)
    reward[~mask] = np.nan  # what is no step may hold anything
    none = jnp.zeros((steps, envs))
    rows = (none, none, reward, none, terminated, truncated, mask, none)
    return Transition(*map(jnp.asarray, rows))


def slow_episodes(rollout, open_return, open_length):
    returns, lengths = [], []
    total, length = np.array(open_return, float), np.array(open_length, float)
    for t in range(rollout.reward.shape[0]):
        for b in range(rollout.reward.shape[1]):
            if not rollout.mask[t, b]:
                continue
            total[b] += rollout.reward[t, b]
            length[b] += 1
            if rollout.terminated[t, b] or rollout.truncated[t, b]:
                returns.append(total[b])
                lengths.append(length[b])
                total[b] = length[b] = 0
    return total, length, returns, lengths


@pytest.mark.parametrize("seed", range(6))
def test_finished_episodes_are_a_slow_loops(seed):
    rollout = random_rollout(seed)
    carried = jnp.arange(5.0), 10.0 + jnp.arange(5.0)
    after, sums = finished_episodes(rollout, Actors(None, None, *carried))
    total, length, returns, lengths = slow_episodes(rollout, *carried)
    np.testing.assert_allclose(after.episode_return, total, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(after.episode_length, length)
    assert sums["episode/count"] == len(returns)
    assert sums["episode/return_sum"] == pytest.approx(sum(returns), rel=1e-4, abs=1e-3)
    assert sums["episode/length_sum"] == sum(lengths)


def test_next_obs_is_the_observation_before_the_reset():
    from proxima.algorithms.ppo import PPOConfig, ppo
    from proxima.core.seeds import first_keys, split_streams
    from proxima.train.compiled.collect import Collector

    env = make(EnvConfig(name="CartPole-v1", max_steps_per_episode=12))
    spaces = (env.observation_space, env.action_space)
    agent = ppo(PPOConfig(), problem_of(spaces, 4))
    collector = Collector(env, 4, 64)
    keys = first_keys(jnp.uint32(0), 4)
    learner, actors = agent.init(keys.weights), collector.init(keys.resets)
    _, use = split_streams(keys.streams)
    _, rollout, sums = jax.jit(lambda *given: collector(*given))(agent, learner, actors, use)

    ended = np.asarray(rollout.terminated | rollout.truncated)
    assert ended.any() and np.asarray(rollout.truncated).any()
    assert not (rollout.terminated & rollout.truncated).any()
    follows = np.asarray(rollout.obs[1:] == rollout.next_obs[:-1]).all(-1)
    np.testing.assert_array_equal(follows, ~ended[:-1])  # a new episode starts somewhere else
    starts = np.asarray(rollout.obs[1:])[ended[:-1]]
    assert (np.abs(starts) <= 0.05).all()  # CartPole's reset range
    finals = np.asarray(rollout.next_obs)[np.asarray(rollout.terminated)]
    fallen = (np.abs(finals[:, 2]) > 0.2095) | (np.abs(finals[:, 0]) > 2.4)
    assert fallen.all()  # a terminal observation is one where the pole is down
    lengths = np.diff(np.flatnonzero(ended[:, 0]))
    assert (lengths <= 12).all()
    assert sums["episode/count"] == ended.sum()


def test_probe_is_a_probe():
    state, obs = BOTH.reset(jax.random.key(0))
    _, step = BOTH.step(state, jnp.int32(1), jax.random.key(1))
    assert step.reward == obs[0] and step.terminated
