"""Entries of an observation that a policy does not get to see: they are 0 whatever the environment says.

Without velocities, for example, a policy needs a memory (`network.memory`). The shape stays, and the exported
policy takes observations as the environment gives them: hiding is a part of it.
"""

from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, ObservationSpace, Space
from proxima.core.types import Env, HostEnv, HostStep, PyTree, Step
from proxima.domains.interface import Interface


class Hiding(eqx.Module):
    """A compiled environment some of whose observation's entries are hidden."""

    env: Env
    shown: Array  # (entries,), 0 where one is hidden
    observation_space: ObservationSpace = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[PyTree, Array]:
        state, obs = self.env.reset(key)
        return state, obs * self.shown

    def step(self, state: PyTree, action: PyTree, key: Array) -> tuple[PyTree, Step]:
        state, step = self.env.step(state, action, key)
        return state, step._replace(obs=step.obs * self.shown)


@final
class HidingPool:
    """A pool of host environments some of whose observation's entries are hidden."""

    def __init__(self, pool: HostEnv, shown: np.ndarray):
        self._pool = pool
        self._shown = shown
        self.observation_space = pool.observation_space
        self.action_space = pool.action_space
        self.num_envs = pool.num_envs

    def reset(self, seeds: Sequence[int]) -> Any:
        return self._pool.reset(seeds) * self._shown[None]

    def send(self, actions: np.ndarray) -> None:
        self._pool.send(actions)

    def receive(self) -> HostStep:
        return self._hide(self._pool.receive())

    def step(self, actions: np.ndarray) -> HostStep:
        return self._hide(self._pool.step(actions))

    def render(self) -> np.ndarray | None:
        return self._pool.render()

    def close(self) -> None:
        self._pool.close()

    def _hide(self, step: HostStep) -> HostStep:
        shown = self._shown[None]
        return step._replace(obs=step.obs * shown, next_obs=step.next_obs * shown)


def hiding_env(env: Env, hidden: Sequence[int], name: str) -> Env:
    """The environment with these entries hidden; itself where there are none."""
    if not hidden:
        return env
    shown = jnp.asarray(entries_shown(env.observation_space, hidden, name))
    return Hiding(env, shown, env.observation_space, env.action_space)


def hiding_pool(pool: HostEnv, hidden: Sequence[int], name: str) -> HostEnv:
    """The pool with these entries hidden; itself where there are none."""
    return HidingPool(pool, entries_shown(pool.observation_space, hidden, name)) if hidden else pool


def hiding_interface(
    interface: Interface, space: ObservationSpace, hidden: Sequence[int], name: str
) -> Interface:
    """From the environment's own observations to what an agent gets to see of them."""
    if not hidden:
        return interface
    shown = entries_shown(space, hidden, name)

    def encode(obs: Any, numpy: Any) -> Any:
        seen = interface.encode(obs, numpy)
        return seen * shown.reshape((*(1,) * (seen.ndim - 1), -1))

    return interface._replace(encode=encode)


def entries_shown(space: ObservationSpace, hidden: Sequence[int], name: str) -> np.ndarray:
    """1 for each entry of the observation that is shown and 0 for the hidden ones; or an error in words."""
    if not isinstance(space, Box) or len(space.shape) != 1 or space.dtype != "float32":
        raise ProximaError(
            f"env.hidden: only entries of a plain vector can be hidden, and {name} observes something else; "
            "leave it empty, or hide them in a wrapper (env.wrappers)"
        )
    (count,) = space.shape
    for index in hidden:
        if index >= count:
            raise ProximaError(
                f"env.hidden: {index}, and {name} observes {count} numbers; take some of 0 to {count - 1}"
            )
    return np.asarray([index not in hidden for index in range(count)], np.float32)
