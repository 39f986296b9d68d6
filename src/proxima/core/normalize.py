"""Running mean and variance of a stream of arrays (Chan et al. 1979), kept with the policy."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.parallel import masked_mean, sum_over
from proxima.core.pictures import is_bytes_picture
from proxima.core.returns import discounted_sums
from proxima.core.types import PyTree, Transition

CLIP = 10.0  # deviations; a normalised observation is clipped to ±CLIP


class Moments(NamedTuple):
    """Number, mean and mean squared deviation of the samples so far; all but the first shaped like one."""

    number: Array
    mean: PyTree
    variance: PyTree
    rest: PyTree  # what rounding has taken from the mean: of 100,000 ± 1 it is a hundredth of a deviation


def first_moments(sample: PyTree) -> Moments:
    """Moments of nothing yet: mean 0 and variance 1, so that normalising changes nothing."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), jnp.float32), sample)
    ones, rest = jax.tree.map(jnp.ones_like, zeros), jax.tree.map(jnp.copy, zeros)
    return Moments(jnp.zeros(()), zeros, ones, rest)


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

    def merge(mean: Array, variance: Array, rest: Array, leaf: Array) -> tuple[Array, Array, Array]:
        if is_bytes_picture(mean.shape, leaf.dtype):
            return mean, variance, rest
        leaf = leaf.astype(jnp.float32)
        # A sum of numbers far from 0 is rounded coarsely. So `centre` is only about their mean, and
        # `offset`, the mean of the small numbers that then remain, says by how much it is not.
        centre = masked_mean(leaf, mask, axis)
        deviation = leaf - jnp.broadcast_to(centre, leaf.shape)
        offset = masked_mean(deviation, mask, axis)
        deviation -= jnp.broadcast_to(offset, leaf.shape)
        new_variance = masked_mean(jnp.square(deviation), mask, axis)
        far, near = centre - mean, offset - rest
        between = share * (1 - share) * (far + near) ** 2
        merged = (1 - share) * variance + share * new_variance + between
        mean, lost = exact_sum(mean, share * far)
        mean, rest = exact_sum(mean, rest + share * near + lost)
        return mean, merged, rest

    merged = jax.tree.map(merge, *moments[1:], samples)
    structures = jax.tree.structure(moments.mean), jax.tree.structure((0, 0, 0))
    return Moments(total, *jax.tree.transpose(*structures, merged))


def exact_sum(one: Array, other: Array) -> tuple[Array, Array]:
    """The sum as it is rounded, and what rounding took from it (Knuth's TwoSum)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


def normalize(moments: Moments | None, sample: PyTree) -> PyTree:
    """Samples, with any leading axes, shifted and scaled to mean 0 and deviation 1, within ±CLIP.

    Flags and pictures of bytes stay as they are, and all where the policy keeps no statistics of them.
    """
    if moments is None:
        return sample

    def shift_and_scale(mean: Array, variance: Array, rest: Array, leaf: Array) -> Array:
        if leaf.dtype == bool or is_bytes_picture(mean.shape, leaf.dtype):  # a mask, for example
            return leaf
        deviation = jnp.sqrt(variance + 1e-8)
        mean, rest, deviation = jnp.broadcast_arrays(mean, rest, deviation, leaf)[:3]
        return jnp.clip((leaf - mean - rest) / deviation, -CLIP, CLIP)

    return jax.tree.map(shift_and_scale, *moments[1:], sample)


def scale_rewards(
    moments: Moments, running: Array, rollout: Transition, gamma: Array, axis: str | None = None
) -> tuple[Array, Moments, Array]:
    """Rewards (T, B) over the deviation of the discounted sums of all so far, and the sums' statistics.

    `running` (B,) are the sums that the rollout goes on from, and the last result those after it.
    """
    ended = rollout.terminated | rollout.truncated
    reward = jnp.where(rollout.mask, rollout.reward, 0.0)
    running, sums = discounted_sums(running, reward, ended, gamma)
    moments = add_samples(moments, sums, rollout.mask, axis)
    return reward / jnp.sqrt(moments.variance + 1e-8), moments, running
