"""Compiled environments step as Gymnasium's do, and mistakes are told in words."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Discrete
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnax import make


def set_cartpole(env, state):
    env.unwrapped.state = np.array([state.x, state.x_dot, state.theta, state.theta_dot], np.float64)


def set_pendulum(env, state):
    env.unwrapped.state = np.array([state.theta, state.theta_dot], np.float64)


def set_acrobot(env, state):
    angles = (state.joint_angle1, state.joint_angle2, state.velocity_1, state.velocity_2)
    env.unwrapped.state = np.array(angles, np.float64)


def set_mountain_car(env, state):
    env.unwrapped.state = np.array([state.position, state.velocity], np.float64)


CLASSIC = {
    "CartPole-v1": set_cartpole,
    "Pendulum-v1": set_pendulum,
    "Acrobot-v1": set_acrobot,
    "MountainCar-v0": set_mountain_car,
    "MountainCarContinuous-v0": set_mountain_car,
}


@pytest.mark.parametrize("name", CLASSIC)
def test_steps_are_gymnasiums(name):
    """From each state on a random path, one step of each gives the same next observation and endings."""
    ours, theirs = make(EnvConfig(name=name)), gymnasium.make(name)
    random = np.random.default_rng(0)
    step = jax.jit(lambda state, action, key: ours.step(state, action, key))
    reset = jax.jit(lambda key: ours.reset(key))
    state, obs = reset(jax.random.key(0))
    theirs.reset(seed=0)
    assert obs.shape == theirs.observation_space.shape
    for t in range(150):
        if isinstance(ours.action_space, Discrete):
            action = int(random.integers(ours.action_space.n))
        else:
            action = random.uniform(-2.5, 2.5, ours.action_space.shape).astype(np.float32)
        CLASSIC[name](theirs, state)
        space = theirs.action_space
        given = (
            np.clip(action, space.low, space.high) if isinstance(ours.action_space, Box) else action
        )
        next_obs, reward, terminated, _, _ = theirs.unwrapped.step(given)
        state, result = step(state, jnp.asarray(action), jax.random.key(t))
        np.testing.assert_allclose(result.obs, next_obs, rtol=2e-4, atol=2e-5)
        assert float(result.reward) == pytest.approx(float(reward), rel=1e-4, abs=1e-4)
        assert bool(result.terminated) == bool(terminated)
        if terminated:
            state, _ = reset(jax.random.key(t))
            theirs.reset()


@pytest.mark.parametrize(
    "name, limit",
    [
        ("CartPole-v1", 500),
        ("Pendulum-v1", 200),
        ("Acrobot-v1", 500),
        ("MountainCarContinuous-v0", 999),
    ],
)
def test_the_time_limit_truncates_and_does_not_terminate(name, limit):
    env = make(EnvConfig(name=name))
    assert int(env.params.max_steps_in_episode) == limit == gymnasium.spec(name).max_episode_steps
    env = make(EnvConfig(name=name, max_steps_per_episode=2))
    state, _ = env.reset(jax.random.key(0))
    action = jnp.zeros(
        env.action_space.shape, int if isinstance(env.action_space, Discrete) else float
    )
    state, first = env.step(state, action, jax.random.key(0))
    _, second = env.step(state, action, jax.random.key(0))
    assert not first.truncated and second.truncated and not second.terminated


def test_out_of_range_actions_are_clipped_as_the_space_says():
    env = make(EnvConfig(name="Pendulum-v1"))
    state, _ = env.reset(jax.random.key(0))
    wild, bound = (env.step(state, jnp.asarray([x]), jax.random.key(0))[1] for x in (50.0, 2.0))
    np.testing.assert_array_equal(wild.obs, bound.obs)
    assert wild.reward == bound.reward


def test_parameters_are_leaves():
    light, heavy = (make(EnvConfig(name="CartPole-v1", params={"gravity": g})) for g in (1.0, 20.0))
    step = jax.jit(lambda env, state, action, key: env.step(state, action, key)[1].obs)
    state, _ = light.reset(jax.random.key(3))
    first, second = (step(env, state, jnp.int32(0), jax.random.key(0)) for env in (light, heavy))
    assert step._cache_size() == 1
    assert (first != second).any()


@pytest.mark.parametrize(
    "name", ["Breakout-MinAtar", "Catch-bsuite", "DeepSea-bsuite", "FrozenLake-misc"]
)
def test_other_families_reset_and_step(name):
    env = make(EnvConfig(name=name))
    state, obs = env.reset(jax.random.key(0))
    _, result = env.step(state, jnp.int32(0), jax.random.key(0))
    assert obs.shape == result.obs.shape == env.observation_space.shape
    assert obs.dtype == jnp.float32 and result.reward.dtype == jnp.float32


def test_mistakes_are_named():
    with pytest.raises(
        ProximaError, match=r"env.name: gymnax has no 'CartPol-v1'; did you mean CartPole-v1"
    ):
        make(EnvConfig(name="CartPol-v1"))
    with pytest.raises(
        ProximaError,
        match=r"env.params.gravty: CartPole-v1 has no such setting; did you mean gravity",
    ):
        make(EnvConfig(name="CartPole-v1", params={"gravty": 1.0}))
