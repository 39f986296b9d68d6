"""How a part learns: AdamW on clipped gradients (arXiv 1711.05101), and a one-cycle learning rate.

Rate, decay and clipping enter as numbers of one vector, so that changing one compiles nothing.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from proxima.core.types import PyTree

# PyTorch's OneCycleLR, which is fast.ai's: three tenths of the way up, from 1/25 of the peak, and down to
# 1e-4 of where it began (Smith & Topin, arXiv 1708.07120)
RISING, FIRST, LAST = 0.3, 1 / 25, 1 / 25 * 1e-4


class Numbers(NamedTuple):
    """What a step takes besides the gradient; scalars."""

    learning_rate: Array
    weight_decay: Array
    max_grad_norm: Array
    eps: Array | float = 1e-8  # Adam's; Optax's default


def numbers(learning_rate: float, weight_decay: float, max_grad_norm: float) -> Numbers:
    """The numbers on the device."""
    values = (learning_rate, weight_decay, max_grad_norm)
    return Numbers(*(jax.device_put(np.float32(value)) for value in values))


def one_cycle(n: int, updates: int, peak: float) -> float:
    """The learning rate of update n (from 0): up along half a cosine, then down to almost nothing."""
    top = max(RISING * updates - 1.0, 0.0)
    bottom = max(updates - 1.0, top + 1.0)
    if n < top:
        return _between(FIRST * peak, peak, n / top)
    return _between(peak, LAST * peak, (n - top) / (bottom - top))


def first_adam(params: PyTree) -> optax.OptState:
    """Adam's moments of nothing yet, float32 whatever the weights are."""
    return optax.scale_by_adam().init(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params))


def adamw_step(
    params: PyTree, gradient: PyTree, optimizer: optax.OptState, numbers: Numbers
) -> tuple[PyTree, optax.OptState, Array]:
    """The weights after one step, Adam's moments, and the gradient's length before it was clipped.

    A gradient that is not finite changes nothing: whoever stops for it still has the last good weights.
    """
    gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradient)
    norm = optax.tree.norm(gradient)
    shrink = jnp.minimum(1.0, numbers.max_grad_norm / jnp.maximum(norm, 1e-12))
    gradient = jax.tree.map(lambda leaf: leaf * shrink, gradient)
    direction, moments = optax.scale_by_adam(eps=numbers.eps).update(gradient, optimizer)

    def moved(leaf: Array, step: Array) -> Array:
        exact = leaf.astype(jnp.float32)
        change = numbers.learning_rate * (step + numbers.weight_decay * exact)
        return (exact - change).astype(leaf.dtype)

    after = jax.tree.map(moved, params, direction), moments
    kept = jax.tree.map(
        lambda new, old: jnp.where(jnp.isfinite(norm), new, old), after, (params, optimizer)
    )
    return *kept, norm


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(share, 1.0))) / 2
