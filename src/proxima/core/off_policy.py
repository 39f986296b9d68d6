"""What learners from a replay buffer share: the samples it keeps, the warm-up, and targets that follow."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core import n_step
from proxima.core.faults import Fault
from proxima.core.losses import absolute_error, smooth_error, value_error
from proxima.core.normalize import Moments, normalize
from proxima.core.spaces import ObservationSpace, Space, zeros
from proxima.core.trees import merge_leading
from proxima.core.types import PyTree, Transition

CRITIC_LOSSES = {"l2": value_error, "l1": absolute_error, "smooth_l1": smooth_error}


class Sample(NamedTuple):
    """What the buffer keeps of a step."""

    obs: PyTree
    action: Array
    reward: Array
    next_obs: PyTree
    terminated: Array


def example_sample(observation_space: ObservationSpace, action_space: Space) -> Sample:
    """A sample (1, ...) of nothing in particular, to shape a buffer with."""
    spaces = (observation_space, action_space)
    obs, action = (jax.tree.map(jnp.asarray, zeros(space, (1,))) for space in spaces)
    return Sample(obs, action, jnp.zeros(1), obs, jnp.zeros(1, bool))


def samples_of(rollout: Transition) -> Sample:
    """The rollout (T, B, ...) as T·B samples."""
    fields = (rollout.obs, rollout.action, rollout.reward, rollout.next_obs, rollout.terminated)
    merged: Sample = merge_leading(Sample(*fields))
    return merged


Batch = TypeVar("Batch", Sample, n_step.Sample)


def scaled(batch: Batch, reward_scale: Array, moments: Moments | None) -> Batch:
    """Samples with normalised observations and scaled rewards; the buffer holds raw ones."""
    return batch._replace(
        obs=normalize(moments, batch.obs),
        next_obs=normalize(moments, batch.next_obs),
        reward=reward_scale * batch.reward,
    )


def in_warmup(steps: Array, warmup_steps: Array, shape: tuple[int, ...]) -> Array:
    """Whether each step of a rollout (T, B) that begins after `steps` is one of the first `warmup_steps`."""
    time, envs = shape
    before = steps + envs * jnp.arange(time)  # each time step
    return jnp.broadcast_to((before < warmup_steps)[:, None], shape)


def ou_path(start: Array, normal: Array, theta: Array) -> Array:
    """An Ornstein-Uhlenbeck path (T, ...) that continues from `start`: x ← (1 − θ) x + ε."""

    def step(x: Array, noise: Array) -> tuple[Array, Array]:
        x = (1.0 - theta) * x + noise
        return x, x

    return jax.lax.scan(step, start, normal)[1]


def soft_update(target: PyTree, net: PyTree, tau: Array) -> PyTree:
    """The target moved towards the net: τθ + (1 − τ)θ̄. With τ = 1 it becomes the net."""
    return jax.tree.map(lambda old, new: old + tau * (new - old), target, net)


def buffer_faults(scenario: Any) -> Iterator[Fault]:
    """A buffer too small for a batch."""
    config = scenario.algorithm
    if config.buffer_size < config.batch_size:
        yield Fault(
            (("algorithm", "buffer_size"), ("algorithm", "batch_size")),
            f"{config.buffer_size} cannot fill a batch of algorithm.batch_size "
            f"({config.batch_size}); take at least as many",
        )
