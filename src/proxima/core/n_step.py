"""Samples over n steps, assembled across rollouts: the steps that wait for others stay in a window.

    R = r_0 + γ r_1 + … + γ^(k−1) r_(k−1),   bootstrapped by γ^k from the observation after the k-th step

k is n, or less where the episode ended before: a termination ends the value, a truncation does not, and its
observation is the one before the reset. A row that is no step (`mask` False) ends what came before as a
truncation does. A sample is complete, and comes out, with the step that makes it so.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.types import PyTree, Transition


class Window(NamedTuple):
    """The last n − 1 steps of every environment, (n − 1, B, ...)."""

    obs: PyTree
    action: PyTree
    reward: Array
    next_obs: PyTree
    waits: Array  # whether a sample that begins here is still to come


class Sample(NamedTuple):
    """What a learner needs of n steps."""

    obs: PyTree
    action: PyTree
    reward: Array  # their discounted sum
    next_obs: PyTree  # after the last of them
    terminated: Array  # by the last of them
    steps: Array  # how many they are, float32


def empty_window(count: int, obs: PyTree, action: PyTree) -> Window:
    """Nothing waits yet; `obs` and `action` are zeros (n − 1, B, ...)."""
    shape = (count - 1, action.shape[1])
    return Window(obs, action, jnp.zeros(shape), obs, jnp.zeros(shape, bool))


def n_step_samples(
    window: Window | None, rollout: Transition, count: int, gamma: Array
) -> tuple[Sample, Array, Window | None]:
    """Samples (L, B, ...) that begin with each step of window and rollout, which are complete, and the window
    afterwards. Without a window n is 1, and every real step is complete.
    """
    arrived = Window(rollout.obs, rollout.action, rollout.reward, rollout.next_obs, rollout.mask)
    if window is None:
        ones = jnp.ones_like(rollout.reward)
        return Sample(*arrived[:4], rollout.terminated, ones), rollout.mask, None
    steps: Window = jax.tree.map(lambda *parts: jnp.concatenate(parts), window, arrived)
    before = jnp.zeros_like(window.waits)
    terminated = jnp.concatenate([before, rollout.terminated])
    truncated = jnp.concatenate([before, rollout.truncated])
    no_step_next = _later(~steps.waits, 1)  # after the last row nobody knows yet
    ends = terminated | truncated | no_step_next

    first = jnp.broadcast_to(jnp.arange(len(ends))[:, None], ends.shape)
    total, taken, ended, discount = steps.reward, jnp.ones_like(steps.reward), ends, gamma
    for k in range(1, count):
        goes_on = ~ended & (first + k < len(ends))
        total += jnp.where(goes_on, discount * _later(steps.reward, k), 0.0)
        taken += goes_on
        ended = ended | (goes_on & _later(ends, k))
        discount = discount * gamma
    complete = steps.waits & (ended | (taken == count))
    last = first + taken.astype(jnp.int32) - 1
    envs = jnp.broadcast_to(jnp.arange(ends.shape[1])[None], ends.shape)
    next_obs, terminated = jax.tree.map(lambda leaf: leaf[last, envs], (steps.next_obs, terminated))
    steps = steps._replace(waits=steps.waits & ~complete)
    after: Window = jax.tree.map(lambda leaf: leaf[1 - count :], steps)
    return Sample(steps.obs, steps.action, total, next_obs, terminated, taken), complete, after


def _later(rows: Array, k: int) -> Array:
    """Row t + k in the place of row t; zeros where there is none."""
    return jnp.concatenate([rows[k:], jnp.zeros_like(rows[:k])])
