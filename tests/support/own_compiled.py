"""Compiled environments as a user writes them: one with numbers as leaves, one as a plain class."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from proxima.core.spaces import Discrete, box
from proxima.core.types import Step


class State(NamedTuple):
    place: jax.Array
    time: jax.Array


class Corridor(eqx.Module):
    """Right is right: a reward of 1 at the end of a short corridor."""

    size: float = 4.0
    time_limit: int = 20

    @property
    def observation_space(self):
        return box(0.0, 1.0, (1,))

    @property
    def action_space(self):
        return Discrete(2)

    def reset(self, key):
        state = State(jnp.float32(0), jnp.int32(0))
        return state, state.place[None] / self.size

    def step(self, state, action, key):
        place = jnp.maximum(0.0, state.place + 2.0 * action - 1.0)
        state = State(place, state.time + 1)
        ended = place >= self.size
        late = (state.time >= self.time_limit) & ~ended
        obs = place[None] / self.size
        return state, Step(obs, ended.astype(jnp.float32), ended, late, {})


class Plain:
    """The same without Equinox."""

    observation_space = box(0.0, 1.0, (1,))
    action_space = Discrete(2)

    def reset(self, key):
        return Corridor().reset(key)

    def step(self, state, action, key):
        return Corridor().step(state, action, key)


class Named(Corridor):
    """A text among its numbers, which no program takes."""

    title: str = "corridor"
