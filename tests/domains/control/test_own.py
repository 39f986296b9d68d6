"""Environments of the user's own: called, copied, limited and drawn as the settings say."""

import gymnasium
import known_envs
import numpy as np
import own_compiled
import own_envs
import pytest

from proxima.core.errors import ProximaError
from proxima.core.functions import object_at, path_to
from proxima.domains.control.compiled import Limited, ready
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.own import check_kind, make_own


def config_of(thing, **settings) -> EnvConfig:
    return EnvConfig(backend=path_to(thing, "thing"), **settings)


def steps_of(env) -> int:
    """Steps until an episode of a fixed action is over."""
    env.reset(seed=0)
    for step in range(1, 100):
        _, _, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            return step
    return 100


def test_an_object_has_one_path_in_its_process():
    env = own_envs.Corridor()
    path = path_to(env, "corridor")
    assert path.startswith("python:corridor-") and path_to(env, "other") == path
    assert object_at(path, "env.backend") is env
    assert path_to(own_envs.Corridor, "corridor") == "own_envs:Corridor"
    with pytest.raises(ProximaError, match="the environment gone-1 lives in the program"):
        object_at("python:gone-1", "env.backend", "environment")


def test_a_class_that_no_module_has_at_its_top_gets_a_path_of_this_process():
    class Local(own_envs.Corridor):
        pass

    assert path_to(Local, "Local").startswith("python:Local-")
    assert make_own(config_of(Local, params={"size": 2})).size == 2


def test_a_limit_may_be_shorter_or_longer_than_the_environments_own():
    registered = gymnasium.make("MountainCar-v0", max_episode_steps=5)
    assert steps_of(make_own(config_of(registered))) == 5
    assert steps_of(make_own(config_of(registered, max_steps_per_episode=3))) == 3
    assert steps_of(make_own(config_of(registered, max_steps_per_episode=9))) == 9
    assert steps_of(make_own(config_of(own_envs.Corridor, max_steps_per_episode=4))) == 4


def test_wrappers_go_along():
    wrapped = gymnasium.wrappers.TransformReward(own_envs.Corridor(1), lambda reward: 7 * reward)
    copy = make_own(config_of(wrapped))
    copy.reset(seed=0)
    assert copy.step(1)[1] == 7.0 and copy.unwrapped is not wrapped.unwrapped
    made = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: 7.0)
    copy = make_own(config_of(made))
    copy.reset(seed=0)
    assert copy.step(1)[1] == 7.0 and copy.unwrapped is not made.unwrapped


def test_pictures_are_asked_for_where_there_are_any():
    assert make_own(config_of(known_envs.Counter), render=True).render_mode == "rgb_array"
    assert make_own(config_of(known_envs.Counter)).render_mode is None
    assert make_own(config_of(own_envs.Corridor), render=True).render_mode is None


def test_an_instance_takes_no_settings():
    for thing in (own_envs.Corridor(), own_compiled.Corridor()):
        with pytest.raises(ProximaError, match=r"env.params.*takes no settings"):
            make_own(config_of(thing, params={"size": 2}))


def test_an_environment_of_ones_own_is_not_called_cartpole():
    assert EnvConfig(backend="own_envs:Corridor").name == "Corridor"
    assert EnvConfig(backend="own_envs:Corridor", name="Hall").name == "Hall"
    assert EnvConfig().name == "CartPole-v1"


def test_a_compiled_one_is_limited():
    import jax

    env = ready(own_compiled.Corridor(), EnvConfig(max_steps_per_episode=2))
    assert isinstance(env, Limited)
    state, obs = env.reset(jax.random.key(0))
    assert np.shape(obs) == env.observation_space.shape
    state, first = env.step(state, np.int32(0), jax.random.key(1))
    _, second = env.step(state, np.int32(0), jax.random.key(2))
    assert (bool(first.truncated), bool(second.truncated)) == (False, True)


def test_a_vector_of_environments_is_refused_in_words():
    vector = gymnasium.vector.SyncVectorEnv([known_envs.Counter])
    with pytest.raises(ProximaError, match="Proxima makes its copies itself; give one environment"):
        check_kind(vector)
