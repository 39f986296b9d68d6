"""Means over a batch that may be spread over devices; with no axis they are the plain ones."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from proxima.core.types import PyTree


def mean_over(axis: str | None, tree: PyTree) -> PyTree:
    """Every leaf averaged over the mesh axis."""
    return tree if axis is None else jax.lax.pmean(tree, axis)


def sum_over(axis: str | None, tree: PyTree) -> PyTree:
    """Every leaf summed over the mesh axis."""
    if axis is None:
        return tree
    # Leaf by leaf, the waiting of devices for each other costs more than a small net's gradient.
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, axis))


def standardize(values: Array, weight: Array, axis: str | None = None) -> Array:
    """Mean 0 and deviation 1 under the weights, over the last axis and the mesh axis; earlier ones apart."""
    sums = jnp.stack([jnp.sum(weight, -1), jnp.sum(values * weight, -1)])
    count, total = sum_over(axis, sums)
    mean = (total / count)[..., None]
    squares = sum_over(axis, jnp.sum(jnp.square(values - mean) * weight, -1))
    deviation = jnp.sqrt(squares / count)[..., None]
    standardized: Array = (values - mean) / (deviation + 1e-8)
    return standardized
