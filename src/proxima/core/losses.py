"""Returns and advantages along a rollout, time first; and losses, one number per element.

The caller masks a loss and takes its mean.
"""

import jax
import jax.numpy as jnp
from jax import Array


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    gamma: Array,
    lam: Array,
) -> Array:
    """Generalised advantage estimates, shaped like `reward` (T, ...).

    A_t = δ_t + γλ (1 − ended_t) A_{t+1},   δ_t = r_t + γ (1 − terminated_t) V(s'_t) − V(s_t)

    `next_value` is V of the observation before any reset: termination ends the value, truncation only
    the episode (Schulman et al. 2016, arXiv 1506.02438, eq. 16; the two endings as in arXiv 1712.00378).
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = gamma * lam * (1.0 - (terminated | truncated))

    def backwards(advantage: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = row
        advantage = delta + decay * advantage
        return advantage, advantage

    _, advantages = jax.lax.scan(
        backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=16
    )
    return advantages


def discounted_sums(start: Array, reward: Array, ended: Array, gamma: Array) -> tuple[Array, Array]:
    """Sums G_t = γ G_{t−1} + r_t, restarted after an ending: what is carried on (B,), and all (T, B)."""

    def forwards(total: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, ended = row
        total = gamma * total + reward
        return jnp.where(ended, 0.0, total), total

    return jax.lax.scan(forwards, start, (reward, ended), unroll=16)


def td_target(reward: Array, next_value: Array, terminated: Array, gamma: Array) -> Array:
    """One-step targets r + γ (1 − terminated) V(s'): a termination ends the value, a truncation does not."""
    return reward + gamma * jnp.where(terminated, 0.0, next_value)


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
    """1 − Var(target − V) / Var(target): 1 for a perfect critic, 0 for one that predicts the mean."""
    unexplained = jnp.var(target - value, where=mask)
    return 1.0 - unexplained / jnp.maximum(jnp.var(target, where=mask), 1e-12)
