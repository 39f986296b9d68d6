"""Rotary positions (Su et al. 2021, arXiv 2104.09864): halves of a head turned by its position."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Llama 3's stretching of the slow rotations, for contexts longer than those it was trained on."""

    factor: float
    low_frequency: float
    high_frequency: float
    trained_positions: int


def turns_at(positions: Array, frequencies: Array) -> tuple[Array, Array]:
    """Cosines and sines of the rotations at each position (B, T), (B, 1, T, head width / 2)."""
    angles = positions[:, None, :, None].astype(jnp.float32) * frequencies[None, None, None]
    return jnp.cos(angles), jnp.sin(angles)


def frequencies_of(half: int, theta: float, scaling: RopeScaling | None) -> Array:
    """Radians per position of each of `half` pairs of numbers."""
    plain = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    if scaling is None:
        return plain
    # Waves shorter than the trained context stay, much longer ones are stretched, those between blend.
    turns = scaling.trained_positions * plain / (2 * math.pi)
    blend = (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency)
    blend = jnp.clip(blend, 0.0, 1.0)
    return (1 - blend) * plain / scaling.factor + blend * plain


def rotate(x: Array, turns: tuple[Array, Array]) -> Array:
    """x (B, heads, T, head width) turned, its first half with its second."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = (jnp.broadcast_to(turn, first.shape) for turn in turns)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)
