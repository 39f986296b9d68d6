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


def masked_mean(values: Array, mask: Array, axis: str | None = None) -> Array:
    """The mean over the axes of `mask`, the leading ones, and over the mesh axis; of nothing it is 0.

    What the mask leaves out does not count, whatever it is: NaN times a weight of 0 would be NaN.
    """
    spread = jnp.expand_dims(mask, tuple(range(mask.ndim, values.ndim)))
    total = sum_over(axis, jnp.sum(jnp.where(spread, values, 0.0), tuple(range(mask.ndim))))
    count = sum_over(axis, jnp.sum(mask, dtype=jnp.float32))
    mean: Array = total / jnp.maximum(count, 1.0)
    return mean


def shares(weight: Array, axis: str | None = None) -> Array:
    """Flags (0 or 1) as weights that add up to 1 over the last axis and the mesh axis; no flag, no weight."""
    total = sum_over(axis, jnp.sum(weight, axis=-1))
    return weight / jnp.maximum(total, 1.0)[..., None]


def standardize(values: Array, weight: Array, axis: str | None = None) -> Array:
    """Mean 0 and deviation 1 over the last axis and the mesh axis, earlier ones apart; weights are 0 or 1.

    What has no weight does not count, whatever it is.
    """
    values = jnp.where(weight > 0.0, values, 0.0)
    sums = jnp.stack([jnp.sum(weight, -1), jnp.sum(values * weight, -1)])
    count, total = sum_over(axis, sums)
    count = jnp.maximum(count, 1.0)
    mean = (total / count)[..., None]
    squares = sum_over(axis, jnp.sum(jnp.square(values - mean) * weight, -1))
    deviation = jnp.sqrt(squares / count)[..., None]
    standardized: Array = (values - mean) / (deviation + 1e-8)
    return standardized
