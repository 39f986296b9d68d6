"""A clipped Adam step, for a net as a tree or as one flat vector."""

import jax
import jax.numpy as jnp
import optax
from jax import Array

from proxima.core.types import PyTree

Trained = tuple[PyTree, optax.OptState]  # parameters, and Adam's moments of them


def adam_step(
    adam: optax.GradientTransformation,
    before: Trained,
    gradient: PyTree,
    rate: Array,
    max_norm: Array,
) -> tuple[Trained, Array]:
    """Parameters and moments after one step, and the gradient's norm before it was cut to `max_norm`."""
    parameters, moments = before
    norm = optax.tree.norm(gradient)
    shrink = jnp.minimum(1.0, max_norm / (norm + 1e-8))
    gradient = jax.tree.map(lambda leaf: shrink * leaf, gradient)
    direction, moments = adam.update(gradient, moments)
    parameters = jax.tree.map(lambda leaf, step: leaf - rate * step, parameters, direction)
    return (parameters, moments), norm
