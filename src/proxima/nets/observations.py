"""Observations as vectors: every field but the action mask side by side.

The mask is no input of a net: the distribution applies it.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from proxima.core.spaces import ACTION_MASK, Fields, ObservationSpace, flat_size
from proxima.core.types import PyTree


class Dense(NamedTuple):
    """Observations of a space ↦ float32 vectors, over any leading axes."""

    space: ObservationSpace

    @property
    def size(self) -> int:
        return flat_size(self.space)

    def __call__(self, obs: PyTree) -> Array:
        if not isinstance(self.space, Fields):
            return _flat(obs, len(self.space.shape))
        parts = [
            _flat(obs[name], len(part.shape))
            for name, part in self.space.items()
            if name != ACTION_MASK
        ]
        return jnp.concatenate(parts, axis=-1)


def _flat(array: Array, rank: int) -> Array:
    return array.reshape(*array.shape[: array.ndim - rank], -1).astype(jnp.float32)
