"""Gymnax environments, compiled into the training program: classic control, MinAtar, bsuite and more."""

import contextlib
import difflib
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


class GymnaxEnv(eqx.Module):
    """A gymnax environment as an Env; its numeric parameters are leaves, so changing one compiles nothing."""

    params: PyTree
    inner: Any = eqx.field(static=True)
    observation_space: Box = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[PyTree, Array]:
        obs, state = self.inner.reset_env(key, self.params)
        return state, obs

    def step(self, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Step]:
        # step_env, not step: the latter resets by itself and would hide the final observation.
        if isinstance(self.action_space, Box):
            low, high = jnp.asarray(self.action_space.low), jnp.asarray(self.action_space.high)
            action = jnp.clip(action, low, high)
        obs, state, reward, terminated, _ = self.inner.step_env(key, state, action, self.params)
        truncated = self.inner.is_truncated(state, self.params) & ~terminated
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return state, Step(obs, reward, terminated, truncated, {})


def make(config: EnvConfig) -> GymnaxEnv:
    """The named gymnax environment with the scenario's parameters."""
    gymnax = _import_gymnax()
    if config.name not in gymnax.registered_envs:
        near = difflib.get_close_matches(config.name, gymnax.registered_envs, 3, 0.4)
        raise ProximaError(
            f"env.name: gymnax has no {config.name!r}; "
            f"{'did you mean ' + ' or '.join(near) + '?' if near else 'it has:'} "
            f"{'' if near else ', '.join(gymnax.registered_envs)} "
            "(any Gymnasium env runs with env.backend=gymnasium)"
        )
    inner = _instance(config.name)
    params = _with_settings(inner.default_params, config)
    observation_space = inner.observation_space(params)
    return GymnaxEnv(
        params=jax.tree.map(_as_leaf, params),
        inner=inner,
        observation_space=_space(observation_space),
        action_space=_space(inner.action_space(params)),
        name=config.name,
    )


def _with_settings(params: Any, config: EnvConfig) -> Any:
    settings = dict(config.params)
    if config.max_steps_per_episode is not None:
        settings["max_steps_in_episode"] = config.max_steps_per_episode
    known = set(params.__dataclass_fields__)
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has: {', '.join(sorted(known))}"
            raise ProximaError(f"env.params.{key}: {config.name} has no such parameter; {hint}")
    return params.replace(**settings)


def _as_leaf(value: Any) -> Array:
    return jnp.asarray(value)


def _space(space: Any) -> Space:
    if type(space).__name__ == "Discrete":
        return Discrete(int(space.n))
    return box(space.low, space.high, tuple(space.shape), "float32")


@functools.cache
def _instance(name: str) -> Any:
    # One instance per name: it is a static part of compiled programs, which are looked up by identity.
    inner, _ = _import_gymnax().make(name)
    return inner


def _import_gymnax() -> Any:
    # gymnax imports seaborn and pyplot for drawing we never ask of it: two thirds of its import time.
    with _deferred("seaborn", "matplotlib.pyplot"):
        import gymnax
    return gymnax


@contextlib.contextmanager
def _deferred(*names: str) -> Iterator[None]:
    """While open, these modules import as placeholders that load the real one when first used."""
    missing = [name for name in names if name not in sys.modules]
    for name in missing:
        placeholder = types.ModuleType(name)
        placeholder.__getattr__ = functools.partial(_attribute_of, name)  # type: ignore[method-assign]
        sys.modules[name] = placeholder
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


def _attribute_of(module: str, attribute: str) -> Any:
    return getattr(importlib.import_module(module), attribute)
