"""A compiled environment of the user's own, made ready for a compiled program."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Fields, MultiDiscrete, ObservationSpace, Space, fields
from proxima.core.types import Env, PyTree, Step
from proxima.domains.control.choices import Encode, choices
from proxima.domains.control.config import EnvConfig
from proxima.domains.environments import strongly_typed
from proxima.domains.interface import Interface, described_observation, interface_of, within


class Fixed(eqx.Module):
    """An environment that is no tree of arrays: all of it is a fixed part of the program."""

    env: Any = eqx.field(static=True)
    observation_space: ObservationSpace = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[PyTree, PyTree]:
        return self.env.reset(key)

    def step(self, state: PyTree, action: PyTree, key: Array) -> tuple[PyTree, Step]:
        return self.env.step(state, action, key)


class Within(eqx.Module):
    """An environment whose actions come in the shape and within the bounds of its space.

    Agents choose numbers side by side and, but for some, without bounds.
    """

    env: Any
    observation_space: ObservationSpace = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[PyTree, PyTree]:
        return self.env.reset(key)

    def step(self, state: PyTree, action: PyTree, key: Array) -> tuple[PyTree, Step]:
        return self.env.step(state, within(self.action_space, action, jnp), key)


class Flagged(eqx.Module):
    """An environment that observes choices, shown as flags: a net cannot tell numbers of choices apart."""

    env: Any
    observed: Any = eqx.field(static=True)  # the environment's own space
    observation_space: ObservationSpace = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[PyTree, PyTree]:
        state, obs = self.env.reset(key)
        return state, with_flags(self.observed, obs)

    def step(self, state: PyTree, action: PyTree, key: Array) -> tuple[PyTree, Step]:
        state, step = self.env.step(state, action, key)
        return state, step._replace(obs=with_flags(self.observed, step.obs))


class Limited(eqx.Module):
    """An environment whose episodes are truncated after so many steps."""

    env: Any
    limit: Array
    observation_space: ObservationSpace = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[PyTree, PyTree]:
        state, obs = self.env.reset(key)
        return (state, jnp.int32(0)), obs

    def step(self, state: PyTree, action: PyTree, key: Array) -> tuple[PyTree, Step]:
        inner, time = state
        inner, step = self.env.step(inner, action, key)
        late = (time + 1 >= self.limit) & ~step.terminated
        return (inner, time + 1), step._replace(truncated=step.truncated | late)


def ready(env: Env, config: EnvConfig) -> Env:
    """The environment with its numbers as arrays, limited if the settings say so."""
    for name, count in (("workers", config.workers), ("actors", config.actors)):
        if count:
            raise ProximaError(
                f"env.{name}: {count}, and {config.name} is compiled into the training program; set 0"
            )
    if config.wrappers:
        raise ProximaError(
            f"env.wrappers: {config.name} is compiled into the training program, and wrappers of Gymnasium's "
            "go around its environments; wrap it where it is made, or leave them out"
        )
    spaces = env.observation_space, env.action_space
    leaves = jax.tree_util.tree_leaves_with_path(env)
    if len(leaves) == 1 and leaves[0][1] is env:
        made: Any = Fixed(env, *spaces)
    else:
        for path, leaf in leaves:
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float):
                raise ProximaError(
                    f"env.backend: {config.backend}{jax.tree_util.keystr(path)} is a "
                    f"{type(leaf).__name__}, and a compiled program takes arrays and numbers; declare "
                    "it with eqx.field(static=True)"
                )
        made = strongly_typed(env)
    if isinstance(env.action_space, Box):
        made = Within(made, *spaces)
    seen = flag_space(env.observation_space)
    if seen != env.observation_space:
        spaces = seen, env.action_space
        made = Flagged(made, env.observation_space, *spaces)
    limit = config.max_steps_per_episode
    return made if limit is None else Limited(made, jnp.int32(limit), *spaces)


def flag_space(space: Any) -> ObservationSpace:
    """The space of observations with flags for choices, of fields too."""
    if isinstance(space, Fields):
        return fields({name: _flags(part)[0] for name, part in space.items()})
    return _flags(space)[0]


def with_flags(space: Any, obs: PyTree) -> PyTree:
    """Observations of a space, over any leading axes, with flags for choices."""
    if isinstance(space, Fields):
        return {name: _flags(part)[1](obs[name], jnp) for name, part in space.items()}
    return _flags(space)[1](obs, jnp)


def _flags(space: Any) -> tuple[Box, Encode]:
    if isinstance(space, Box):
        return space, lambda obs, numpy: obs
    sizes = np.asarray(space.sizes if isinstance(space, MultiDiscrete) else [space.n])
    return choices(space.shape, sizes, np.zeros_like(sizes))


def interface(env: Env) -> Interface:
    """What the user's environment itself observes and takes: choices as their numbers."""
    usual = interface_of(flag_space(env.observation_space), env.action_space)
    return usual._replace(
        observation=described_observation(env.observation_space),
        encode=lambda obs, numpy: with_flags(env.observation_space, obs),
    )
