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


class Linear(eqx.Module):
    """x ↦ xW + b."""

    weight: Array  # (inputs, outputs)
    bias: Array

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


def linear(key: Array, inputs: int, outputs: int, gain: float) -> Linear:
    """An orthogonal layer of the given gain with zero bias (Saxe et al. 2014, arXiv 1312.6120)."""
    weight = jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs), jnp.float32)
    return Linear(weight, jnp.zeros(outputs))


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
