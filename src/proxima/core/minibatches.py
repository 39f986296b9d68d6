"""A batch of environment steps in minibatches: its sizes, and gradient steps over it again and again."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.faults import Fault
from proxima.core.parallel import masked_mean, shares, sum_over
from proxima.core.shuffle import permutations
from proxima.core.trees import pack_rows
from proxima.core.types import PyTree

Carry = TypeVar("Carry")
# A NamedTuple with a field `weight`, 0 on rows that are no steps.
Batch = TypeVar("Batch", bound=Any)


class Passes(NamedTuple):
    """How often a batch is gone through, and in what parts."""

    epochs: int
    minibatches: int
    axis: str | None  # mesh axis that each minibatch is spread over


def over_minibatches(
    step: Callable[[Carry, Batch], tuple[Carry, Array]],
    start: Carry,
    samples: Batch,
    key: Array,
    passes: Passes,
    prepare: Callable[[Batch], Batch] = lambda minibatches: minibatches,
) -> tuple[Carry, Array]:
    """What `step` carries after every minibatch of every epoch, and the mean of its metrics.

    An epoch goes through the samples (N, ...) in an order of its own. `prepare` gets its minibatches all at
    once, (minibatches, samples, ...); then the weights of each are made to add up to 1. Minibatches in which
    no row is a step do not count in the metrics.
    """
    count, axis = passes.minibatches, passes.axis
    rows, unpack = pack_rows(samples, 1)

    def epoch(carry: Carry, order: Array) -> tuple[Carry, tuple[Array, Array]]:
        shuffled = jax.tree.map(lambda part: part[order].reshape(count, -1, part.shape[-1]), rows)
        batch = prepare(unpack(shuffled))
        weight = shares(batch.weight.reshape(count, -1), axis)
        batch = batch._replace(weight=weight.reshape(batch.weight.shape))

        def unpacked_step(carry: Carry, minibatch: PyTree) -> tuple[Carry, Array]:
            return step(carry, unpack(minibatch))

        carry, metrics = jax.lax.scan(unpacked_step, carry, pack_rows(batch, 2)[0])
        any_rows = sum_over(axis, jnp.sum(weight, axis=-1)) > 0.0
        return carry, (metrics, any_rows)

    orders = permutations(key, passes.epochs, len(jax.tree.leaves(rows)[0]))
    carry, (metrics, any_rows) = jax.lax.scan(epoch, start, orders)
    return carry, masked_mean(metrics, any_rows)


def passes_of(config: Any, axis: str | None) -> Passes:
    """What the settings say."""
    return Passes(config.epochs_per_update, config.batch_size // config.minibatch_size, axis)


def default_sizes(
    given: Mapping[str, Any], num_envs: int, steps: int, minibatches: int
) -> Mapping[str, int]:
    """Sizes of so many steps of each environment, where neither is given: one alone says what is meant."""
    if "batch_size" in given or "minibatch_size" in given:
        return {}
    size = steps * num_envs
    return {"batch_size": size, "minibatch_size": size // minibatches}


def size_faults(scenario: Any) -> Iterator[Fault]:
    """A batch that its environments or its minibatches do not divide."""
    config, envs = scenario.algorithm, scenario.env.num_envs
    size, samples = config.batch_size, config.minibatch_size
    step = math.lcm(envs, samples)
    below = size // step * step
    nearest = " or ".join(str(value) for value in (below, below + step) if value)
    parts = (("env", "num_envs", envs), ("algorithm", "minibatch_size", samples))
    for section, name, part in parts:
        if size % part:
            yield Fault(
                (("algorithm", "batch_size"), (section, name)),
                f"{size} is not a multiple of {section}.{name} ({part}); nearest that work: {nearest}",
            )
