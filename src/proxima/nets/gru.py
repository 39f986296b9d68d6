"""The gated recurrent unit along a sequence, its gradient written so that little of it is left in the loop.

    r, z = σ(W x + U h)    n = tanh(W x + r (U h + b))    h' = (1 − z) n + z h

A unit's h' depends on its own gates alone. How it does is known for all steps before the gradient goes back
through them, so the loop there is two products: by these slopes, and by U (docs/performance.md).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.nets.mlp import affine


class Step(NamedTuple):
    """What a step of a GRU computes on the way, (..., size) each but for the gates."""

    gates: Array  # r and z side by side, (..., 2 · size): one call of the sigmoid costs half of two
    within: Array  # U h + b of the candidate, inside the reset gate
    candidate: Array


def gru(before: Array, projected: Array, recalled: Array, bias: Array) -> tuple[Array, Step]:
    """The output after one step, of what the input and the output before it are to the gates."""
    size = before.shape[-1]
    gates = jax.nn.sigmoid(projected[..., : 2 * size] + recalled[..., : 2 * size])
    within = recalled[..., 2 * size :]
    within = within + jnp.broadcast_to(bias, within.shape)
    candidate = jnp.tanh(projected[..., 2 * size :] + gates[..., :size] * within)
    after = candidate + gates[..., size:] * (before - candidate)
    return after, Step(gates, within, candidate)


@jax.custom_vjp
def gru_unrolled(
    recurrent: Array, bias: Array, memory: Array, projected: Array, ended: Array
) -> Array:
    """The outputs of steps (T, B, ...) one after the other; zeros are remembered after a row that ended."""
    return _forward(recurrent, bias, memory, projected, ended)[0]


def _forward(
    recurrent: Array, bias: Array, memory: Array, projected: Array, ended: Array
) -> tuple[Array, tuple[Any, ...]]:
    def step(before: Array, row: tuple[Array, Array]) -> tuple[Array, Any]:
        projected, ended = row
        after, made = gru(before, projected, before @ recurrent, bias)
        return jnp.where(ended[..., None], 0.0, after), (after, before, made)

    _, (outputs, before, made) = jax.lax.scan(step, memory, (projected, ended))
    return outputs, (recurrent, before, made, ended)


def _backward(residuals: tuple[Any, ...], slopes: Array) -> tuple[Any, ...]:
    recurrent, before, made, ended = residuals
    reset, update = jnp.split(made.gates, 2, axis=-1)
    candidate = (1.0 - update) * (1.0 - made.candidate**2)  # ∂h' by the candidate's argument
    by_recalled = jnp.concatenate(
        [
            candidate * made.within * reset * (1.0 - reset),
            (before - made.candidate) * update * (1.0 - update),
            candidate * reset,
        ],
        axis=-1,
    )

    def step(later: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        by_recalled, update, ended, slope = row
        slope = jnp.where(ended[..., None], 0.0, later) + slope
        recalled = jnp.tile(slope, 3) * by_recalled
        return slope * update + recalled @ recurrent.T, slope

    rows = by_recalled, update, ended, slopes
    first, totals = jax.lax.scan(step, jnp.zeros_like(before[0]), rows, reverse=True)
    recalled = jnp.tile(totals, 3) * by_recalled
    size = before.shape[-1]
    projected = jnp.concatenate([recalled[..., : 2 * size], totals * candidate], axis=-1)
    _, of_weights = jax.vjp(lambda weights: affine(before, weights, None), recurrent)
    bias = jnp.sum(recalled[..., 2 * size :].reshape(-1, size), axis=0)
    return *of_weights(recalled), bias, first, projected, None


gru_unrolled.defvjp(_forward, _backward)
