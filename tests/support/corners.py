"""A picture that says what to do: one of two corners is lit, and the action of that corner earns 1."""

from typing import ClassVar

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from proxima.core.spaces import Discrete, box
from proxima.core.types import Step

SIDE = 6
LIT = 200


class CompiledCorners(eqx.Module):
    """Compiled: episodes of one step; bytes without an axis for channels."""

    @property
    def observation_space(self):
        return box(0, 255, (SIDE, SIDE), "uint8")

    @property
    def action_space(self):
        return Discrete(2)

    def reset(self, key):
        corner = jax.random.randint(key, (), 0, 2)
        return corner, self._obs(corner)

    def step(self, state, action, key):
        reward = (action == state).astype(jnp.float32)
        return state, Step(self._obs(state), reward, jnp.asarray(True), jnp.asarray(False), {})

    def _obs(self, corner):
        first, last = (jnp.where(corner == k, LIT, 0) for k in range(2))
        empty = jnp.zeros((SIDE, SIDE), jnp.uint8)
        return empty.at[0, 0].set(first.astype(jnp.uint8)).at[-1, -1].set(last.astype(jnp.uint8))


class Corners(gymnasium.Env):
    """The same on the host, two channels first."""

    metadata: ClassVar = {"render_modes": []}
    observation_space = gymnasium.spaces.Box(0, 255, (2, SIDE, SIDE), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.corner = int(self.np_random.integers(2))
        return self._obs(), {}

    def step(self, action):
        return self._obs(), float(action == self.corner), True, False, {}

    def _obs(self):
        picture = np.zeros((2, SIDE, SIDE), np.uint8)
        picture[0, -self.corner, -self.corner] = LIT
        return picture
