"""Running mean and variance of a stream of arrays (Chan et al. 1979), kept with the policy."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.parallel import sum_over
from proxima.core.types import PyTree

CLIP = 10.0  # deviations; a normalised observation is clipped to ±CLIP


class Moments(NamedTuple):
    """Number, mean and mean squared deviation of the samples so far; the last two shaped like one."""

    number: Array
    mean: PyTree
    variance: PyTree


def first_moments(sample: PyTree) -> Moments:
    """Moments of nothing yet: mean 0 and variance 1, so that normalising changes nothing."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), jnp.float32), sample)
    return Moments(jnp.zeros(()), zeros, jax.tree.map(jnp.ones_like, zeros))


Kept = TypeVar("Kept", Moments, Moments | None)


def add_samples(moments: Kept, samples: PyTree, mask: Array, axis: str | None = None) -> Kept:
    """The moments after seeing the masked-in `samples`, whose leading axes are those of `mask`.

    With a mesh axis, the samples of all its devices. Where no moments are kept, None.
    """
    if moments is None:
        return None
    added = sum_over(axis, jnp.sum(mask, dtype=jnp.float32))
    total = moments.number + added
    share = added / jnp.maximum(total, 1.0)
    axes = tuple(range(mask.ndim))
    count = jnp.maximum(added, 1.0)

    def merge(mean: Array, variance: Array, leaf: Array) -> tuple[Array, Array]:
        weight = jnp.expand_dims(mask, tuple(range(mask.ndim, leaf.ndim))).astype(jnp.float32)
        leaf = leaf.astype(jnp.float32)
        new_mean = sum_over(axis, jnp.sum(leaf * weight, axes)) / count
        deviation = leaf - jnp.broadcast_to(new_mean, leaf.shape)
        squares = jnp.sum(jnp.square(deviation) * weight, axes)
        new_variance = sum_over(axis, squares) / count
        delta = new_mean - mean
        merged = (1 - share) * variance + share * new_variance + share * (1 - share) * delta**2
        return mean + share * delta, jnp.where(total > 0, merged, variance)

    merged = jax.tree.map(merge, moments.mean, moments.variance, samples)
    mean, variance = jax.tree.transpose(
        jax.tree.structure(moments.mean), jax.tree.structure((0, 0)), merged
    )
    return Moments(total, mean, variance)


def normalize(moments: Moments | None, sample: PyTree) -> PyTree:
    """Samples, with any leading axes, shifted and scaled to mean 0 and deviation 1, within ±CLIP.

    Where the policy keeps no statistics of them, they stay as they are.
    """
    if moments is None:
        return sample

    def shift_and_scale(mean: Array, variance: Array, leaf: Array) -> Array:
        if leaf.dtype == bool:  # a mask, for example
            return leaf
        mean, deviation = jnp.broadcast_arrays(mean, jnp.sqrt(variance + 1e-8), leaf)[:2]
        return jnp.clip((leaf - mean) / deviation, -CLIP, CLIP)

    return jax.tree.map(shift_and_scale, moments.mean, moments.variance, sample)
