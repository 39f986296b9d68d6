"""Returns and advantages along a rollout, time first."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.branch import when
from proxima.core.types import PyTree


def next_values(
    evaluate: Callable[..., Array],
    learner: Any,
    steps: tuple[PyTree, ...],
    values: Array,
    cut: Array,
) -> Array:
    """The value of the next observation, (T, B), from that of each observation, `values`.

    Inside a rollout it is the next row's value. `evaluate(learner, *steps)` gives it for the last row and
    for each environment's first row in `cut`, where the next row is of another episode; the whole rollout
    is evaluated only if an environment has several such rows. After a termination it is never used.
    """
    count = len(values)
    first = jnp.argmax(cut, axis=0)
    picked = jnp.stack([first, jnp.full_like(first, count - 1)])

    def at_picked(leaf: Array) -> Array:
        index = picked.reshape(*picked.shape, *[1] * (leaf.ndim - 2))
        return jnp.take_along_axis(leaf, index, axis=0)

    after_cut, after_last = evaluate(learner, *jax.tree.map(at_picked, steps))
    row = jax.lax.broadcasted_iota(first.dtype, values.shape, 0)
    is_first = cut & (row == jnp.broadcast_to(first, values.shape))
    shifted = jnp.concatenate([values[1:], after_last[None]])
    shifted = jnp.where(is_first, jnp.broadcast_to(after_cut, values.shape), shifted)
    after: Array = when(
        jnp.any(jnp.sum(cut, axis=0) > 1),
        lambda _, inputs: evaluate(inputs[0], *inputs[1]),
        shifted,
        (learner, steps),
    )
    return after


def cut_rows(terminated: Array, truncated: Array, mask: Array) -> Array:
    """Rows (T, B) whose next observation has a value but is not the next row's observation.

    An episode was truncated there, or the next row is no step. The last row has no next one.
    """
    no_step_next = jnp.concatenate([~mask[1:], jnp.zeros_like(mask[:1])])
    cut = (truncated | no_step_next) & ~terminated
    return cut.at[-1].set(False)


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


def lambda_returns(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    mask: Array,
    gamma: Array,
    lam: Array,
) -> Array:
    """Returns that rely on the value after each step to a share of 1 − λ, shaped like `reward` (T, ...).

    R_t = r_t + γ (1 − terminated_t) ((1 − λ_t) V(s'_t) + λ_t R_{t+1})

    λ_t is λ, and 0 where R_{t+1} is of another episode or unknown: after an ending, in the last row, and
    before a row that is no step. With V(s') = max Q(s', ·) these are the targets of Q(λ) (arXiv 2407.04811).
    """
    is_next = jnp.concatenate([mask[1:], jnp.zeros_like(mask[:1])])
    trace = jnp.where(is_next & ~(terminated | truncated), lam, 0.0)
    discount = gamma * jnp.where(terminated, 0.0, 1.0)

    def backwards(later: Array, row: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        reward, value, discount, trace = row
        now = reward + discount * (value + trace * (later - value))
        return now, now

    rows = (reward, next_value, discount, trace)
    _, returns = jax.lax.scan(backwards, jnp.zeros_like(reward[0]), rows, reverse=True, unroll=16)
    return returns


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
