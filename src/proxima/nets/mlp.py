"""A multilayer perceptron whose leaves are arrays only."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


# Of a layer: up to so many, a product of its own for each is faster than one for all.
FEW_OUTPUTS = 8


class Linear(eqx.Module):
    """x ↦ xW + b, over any leading axes."""

    weight: Array  # (inputs, outputs)
    bias: Array

    def __call__(self, x: Array) -> Array:
        return affine(x, self.weight, self.bias)


@jax.custom_vjp
def affine(x: Array, weight: Array, bias: Array | None) -> Array:
    """xW + b. Its gradient is the usual one, written so that a CPU multiplies matrices fast.

    docs/performance.md says what each form takes.
    """
    product = x @ weight
    return product if bias is None else product + jnp.broadcast_to(bias, product.shape)


Residuals = tuple[Array, Array, Array | None]


def _affine_forward(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Residuals]:
    return affine(x, weight, bias), (x, weight, bias)


def _affine_backward(residuals: Residuals, slope: Array) -> Residuals:
    x, weight, bias = residuals
    rows, slopes = x.reshape(-1, x.shape[-1]), slope.reshape(-1, weight.shape[1])
    bias_slope = None if bias is None else jnp.sum(slopes, axis=0)
    return slope @ weight.T, _weight_slope(rows, slopes), bias_slope


def _weight_slope(rows: Array, slopes: Array) -> Array:
    """xᵀg, whose plain form takes XLA's CPU backend up to twice as long as either of these."""
    outputs = slopes.shape[1]
    if outputs <= FEW_OUTPUTS:
        return jnp.stack([slopes[:, output] @ rows for output in range(outputs)], axis=1)
    # XLA by itself folds the transposed copy away; hence the barrier.
    return jax.lax.optimization_barrier(rows.T) @ slopes


affine.defvjp(_affine_forward, _affine_backward)


def product_turned(x: Array, weight: Array) -> Array:
    """xW with W stored as (outputs, inputs), for few rows of x: the large matrix on the left.

    Without the barriers XLA turns it back into the form that takes a CPU a third longer.
    """
    rows = jax.lax.optimization_barrier(x.reshape(-1, x.shape[-1]).T)
    return jax.lax.optimization_barrier(weight @ rows).T.reshape(*x.shape[:-1], -1)


def linear(key: Array, inputs: int, outputs: int, gain: float) -> Linear:
    """An orthogonal layer of the given gain with zero bias (Saxe et al. 2014, arXiv 1312.6120)."""
    return Linear(gain * orthogonal(key, inputs, outputs), jnp.zeros(outputs))


def orthogonal(key: Array, rows: int, columns: int) -> Array:
    """A random matrix with orthonormal rows or columns, whichever are fewer; no direction is favoured.

    Gram-Schmidt, twice per vector for float32's sake. Not LAPACK's decomposition, as Optax and JAX have
    it: batched over trials, that one waits for the thread pool it runs on, and can wait for ever.
    """
    count, size = sorted((rows, columns))
    drawn = jax.random.normal(key, (count, size))

    def add(index: Array, basis: Array) -> Array:
        vector = drawn[index]
        for _ in range(2):
            vector = vector - (basis @ vector) @ basis
        return basis.at[index].set(vector / jnp.linalg.norm(vector))

    basis = jax.lax.fori_loop(0, count, add, jnp.zeros((count, size)))
    return basis if rows <= columns else basis.T


class MLP(eqx.Module):
    """Layers with the activation between them; the last one stays linear."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](layer(x))
        return self.layers[-1](x)


def mlp(key: Array, sizes: Sequence[int], activation: str, last_gain: float) -> MLP:
    """An MLP through `sizes`, hidden gains √2, the last layer's gain given."""
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [2**0.5] * (len(sizes) - 2) + [last_gain]
    layers = [
        linear(layer_key, inputs, outputs, gain)
        for layer_key, (inputs, outputs), gain in zip(keys, pairwise(sizes), gains, strict=True)
    ]
    return MLP(tuple(layers), activation)
