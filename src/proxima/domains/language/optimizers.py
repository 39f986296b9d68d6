"""How a part learns: AdamW on clipped gradients (arXiv 1711.05101), and a one-cycle learning rate.

    for each batch:  one AdamW step on the gradient of its loss, its norm clipped, at the cycle's rate

Rate, decay and clipping enter as numbers of one vector, so that changing one compiles nothing.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from proxima.core.types import PyTree
from proxima.domains.language.config import DPOConfig, RewardModelConfig, SFTConfig
from proxima.domains.language.model import Part
from proxima.domains.language.pipeline import Training
from proxima.nets.transformer import Decoder

# PyTorch's OneCycleLR, which is fast.ai's: three tenths of the way up, from 1/25 of the peak, and down to
# 1e-4 of where it began (Smith & Topin, arXiv 1708.07120)
RISING, FIRST, LAST = 0.3, 1 / 25, 1 / 25 * 1e-4

# Part, base, a batch, whether layers are computed twice for memory → the loss, and it among metrics.
Loss = Callable[[Part, Decoder, Any, bool], tuple[Array, dict[str, Array]]]


class Tuned(NamedTuple):
    """What is learnt, and Adam's moments of it."""

    part: Part
    optimizer: optax.OptState


class Numbers(NamedTuple):
    """What a step takes besides the gradient; scalars."""

    learning_rate: Array
    weight_decay: Array
    max_grad_norm: Array
    eps: Array | float = 1e-8  # Adam's; Optax's default


def tuning(
    config: SFTConfig | RewardModelConfig | DPOConfig,
    updates: int,
    evaluate_every: int,
    loss: Loss,
    base: Decoder,
    fresh: Callable[[], Part],
    batch: Callable[[int], PyTree],
    evaluate: Callable[[Tuned], dict[str, float]],
    checkpoint: bool,
) -> Training:
    """The training of a part over a base on batches, which are made by their number."""

    def init() -> Tuned:
        part = fresh()
        return Tuned(part, first_adam(part))

    def update(state: Tuned, n: int) -> tuple[Tuned, dict[str, float]]:
        rate = one_cycle(n, updates, config.learning_rate)
        given = (base, batch(n), numbers(rate, config.weight_decay, config.max_grad_norm))
        state, metrics = tuning_step(given, state, loss, checkpoint)
        figures = {name: float(value) for name, value in jax.device_get(metrics).items()}
        return state, figures | {"train/learning_rate": rate}

    return Training(updates, init, update, evaluate, evaluate_every)


@eqx.filter_jit(donate="all-except-first")
def tuning_step(
    given: tuple[Decoder, PyTree, Numbers], state: Tuned, loss: Loss, checkpoint: bool
) -> tuple[Tuned, dict[str, Array]]:
    """One optimizer step on a batch; the old state is given up."""
    base, batch, numbers = given
    gradient, metrics = jax.grad(loss, has_aux=True)(state.part, base, batch, checkpoint)
    part, optimizer, norm = adamw_step(state.part, gradient, state.optimizer, numbers)
    return Tuned(part, optimizer), metrics | {"train/grad_norm": norm}


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
