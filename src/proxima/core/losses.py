"""Losses, one number per element; the caller masks and means."""

import jax.numpy as jnp
from jax import Array

from proxima.core.parallel import masked_mean


def clip_surrogate(log_prob: Array, old_log_prob: Array, advantage: Array, clip: Array) -> Array:
    """PPO's clipped objective as a loss: −min(ρA, clip(ρ, 1−ε, 1+ε)A) (arXiv 1707.06347, eq. 7)."""
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def value_error(value: Array, target: Array) -> Array:
    """Squared error (V − target)²; its weight is the caller's coefficient."""
    return jnp.square(value - target)


def absolute_error(value: Array, target: Array) -> Array:
    """|V − target|, which an outlier moves no more than any other sample."""
    return jnp.abs(value - target)


def smooth_error(value: Array, target: Array) -> Array:
    """Huber's error: half the square up to 1, beyond it the size less one half."""
    size = jnp.abs(value - target)
    return jnp.where(size < 1.0, 0.5 * jnp.square(size), size - 0.5)


def clipped_value_error(value: Array, old_value: Array, target: Array, clip: Array) -> Array:
    """The larger of the squared errors of V and of V kept within `clip` of its old value."""
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return jnp.maximum(value_error(value, target), value_error(near, target))


def approximate_kl(log_prob: Array, old_log_prob: Array) -> Array:
    """KL(old ‖ new) from the old policy's samples, estimator k3: (ρ − 1) − log ρ, never negative."""
    log_ratio = log_prob - old_log_prob
    return jnp.expm1(log_ratio) - log_ratio


def sampled_kl(log_prob: Array, reference_log_prob: Array) -> Array:
    """KL(policy ‖ reference) from the policy's samples, estimator k1: unbiased, and often negative."""
    return log_prob - reference_log_prob


def explained_variance(value: Array, target: Array, mask: Array) -> Array:
    """1 − Var(target − V) / Var(target): 1 for a perfect critic, 0 for one that predicts the mean.

    Of nothing it is 0.
    """

    def variance(values: Array) -> Array:
        return masked_mean(jnp.square(values - masked_mean(values, mask)), mask)

    explained = 1.0 - variance(target - value) / jnp.maximum(variance(target), 1e-12)
    return jnp.where(jnp.any(mask), explained, 0.0)
