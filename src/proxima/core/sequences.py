"""Rollouts in sequences of consecutive steps, which a net with memory is unrolled along.

A batch here is a NamedTuple with the fields `obs`, `weight`, `ended` (after which steps the memory begins
anew) and `memory` (before each step; of sequences, before the first; None if the net has none).
"""

import math
from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.faults import Fault
from proxima.core.trees import merge_leading
from proxima.core.types import PyTree

Batch = TypeVar("Batch", bound=Any)


def steps_or_sequences(batch: Batch, config: Any) -> Batch:
    """What minibatches are made of: the steps of a batch (T, B, ...) or, with a memory, its sequences."""
    if batch.memory is None:
        return merge_leading(batch)  # type: ignore[no-any-return]
    return in_sequences(batch, sequence_steps(config, len(batch.weight)))


def sequence_steps(config: Any, steps: int) -> int:
    """Steps of a sequence: what is set, or the longest that rollouts of `steps` and minibatches allow."""
    length: int = config.sequence_length or math.gcd(steps, config.minibatch_size)
    return length


def in_sequences(batch: Batch, length: int) -> Batch:
    """The batch (T, B, ...) as sequences (N, length, ...), each with the memory at its start (N, ...)."""

    def divided(leaf: Array) -> Array:
        parts = leaf.reshape(-1, length, *leaf.shape[1:])  # (T / length, length, B, ...)
        return jnp.swapaxes(parts, 1, 2).reshape(-1, length, *leaf.shape[2:])

    sequences: Batch = jax.tree.map(divided, batch)
    first = jax.tree.map(lambda leaf: leaf[:, 0], sequences.memory)
    return sequences._replace(memory=first)  # type: ignore[no-any-return]


def along_sequences(net: Any, batch: Batch) -> tuple[PyTree, Batch]:
    """What the net sees at every step, and the batch in the same order: of sequences, time first."""
    if batch.memory is None:
        return batch.obs, batch
    start = batch.memory
    batch = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch._replace(memory=None))
    return net.unroll(start, batch.obs, batch.ended), batch


def sequence_faults(scenario: Any) -> Iterator[Fault]:
    """A sequence that does not divide an environment's steps in a batch, or a minibatch."""
    config = scenario.algorithm
    steps, samples = config.batch_size // scenario.env.num_envs, config.minibatch_size
    length = config.sequence_length
    if length is not None and (steps % length or samples % length):
        yield Fault(
            (("algorithm", "sequence_length"), ("algorithm", "batch_size"), ("env", "num_envs")),
            f"{length} divides not both the {steps} steps of each environment in a batch and "
            f"algorithm.minibatch_size ({samples}); the longest that does: {math.gcd(steps, samples)}",
        )
