"""Gymnax environments, compiled into the training program: classic control, MinAtar, bsuite and more."""

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Discrete, Space, box
from proxima.core.types import PyTree, Step
from proxima.domains.control.config import EnvConfig
from proxima.domains.environments import check_params, strongly_typed, suggestion
from proxima.domains.interface import Interface, described_choices, interface_of, within


class GymnaxEnv(eqx.Module):
    """A gymnax environment as an Env; its numeric parameters are leaves, so changing one compiles nothing."""

    params: PyTree
    inner: Any = eqx.field(static=True)
    observation_space: Box = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)
    one_hot: bool = eqx.field(static=True)  # the environment observes an integer; nets take arrays

    def reset(self, key: Array) -> tuple[PyTree, Array]:
        obs, state = self.inner.reset_env(key, self.params)
        return strongly_typed(state), self._as_array(obs)

    def step(self, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Step]:
        # step_env, not step: the latter resets by itself and would hide the final observation.
        action = within(self.action_space, action, jnp)
        obs, state, reward, terminated, _ = self.inner.step_env(key, state, action, self.params)
        truncated = self.inner.is_truncated(state, self.params) & ~terminated
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return strongly_typed(state), Step(self._as_array(obs), reward, terminated, truncated, {})

    def _as_array(self, obs: Array) -> Array:
        if self.one_hot:
            return jax.nn.one_hot(obs, self.observation_space.shape[0])
        return jnp.asarray(obs, jnp.float32)


def interface(env: GymnaxEnv) -> Interface:
    """What Gymnax itself observes and takes: where it observes a number, the number."""
    usual = interface_of(env.observation_space, env.action_space)
    if not env.one_hot:
        return usual
    count = env.observation_space.shape[0]
    return usual._replace(
        observation=described_choices(count, 0, (), "int32"),
        encode=lambda obs, numpy: jax.nn.one_hot(obs, count),
    )


def names() -> list[str]:
    """The environments that Gymnax has."""
    return list(_import_gymnax().registered_envs)


def make(config: EnvConfig) -> GymnaxEnv:
    """The named gymnax environment with the scenario's parameters."""
    if config.name not in names():
        raise ProximaError(
            f"env.name: gymnax has no {config.name!r}; {suggestion(config.name, names(), cutoff=0.4)} "
            "(any Gymnasium env runs with env.backend=gymnasium)"
        )
    inner = _instance(config.name)
    settings = dict(config.params)
    if config.max_steps_per_episode is not None:
        settings["max_steps_in_episode"] = config.max_steps_per_episode
    check_params(settings, vars(inner.default_params), config.name)
    params = inner.default_params.replace(**settings)
    observed = _space(config.name, inner.observation_space(params))
    return GymnaxEnv(
        params=strongly_typed(params),
        inner=inner,
        observation_space=box(0.0, 1.0, (observed.n,))
        if isinstance(observed, Discrete)
        else observed,
        action_space=_space(config.name, inner.action_space(params)),
        one_hot=isinstance(observed, Discrete),
    )


def _space(name: str, space: Any) -> Discrete | Box:
    if type(space).__name__ == "Discrete":
        return Discrete(int(space.n))
    if type(space).__name__ != "Box":
        raise ProximaError(
            f"env.name: {name} has the space {space}, and of Gymnax's only Discrete and Box can be learnt in"
        )
    return box(space.low, space.high, tuple(space.shape), "float32")


@functools.cache
def _instance(name: str) -> Any:
    # One instance per name: it is a static part of compiled programs, which are looked up by identity.
    try:
        inner, _ = _import_gymnax().make(name)
    except OSError as error:  # MNISTBandit downloads its images
        raise ProximaError(f"env.name: {name} could not be made: {error}") from error
    return inner


def _import_gymnax() -> Any:
    # gymnax imports seaborn and pyplot for drawing we never ask of it: two thirds of its import time.
    with _deferred("seaborn", "matplotlib.pyplot"):
        import gymnax
    return gymnax


@contextlib.contextmanager
def _deferred(*names: str) -> Iterator[None]:
    """While open, these modules import as placeholders that load the real one when first used."""
    placeholders = {name: Placeholder(name) for name in names if name not in sys.modules}
    sys.modules.update(placeholders)
    try:
        yield
    finally:
        for name in placeholders:
            del sys.modules[name]


class Placeholder(types.ModuleType):
    """Has the attributes of the module that it stands for, which it loads when it is asked for one."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.__name__), attribute)
