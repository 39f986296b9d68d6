"""A ring buffer of samples as pure functions: the newest `capacity` rows, sampled uniformly.

A row is a whole sample packed into float32 (`core/trees.pack_rows`), so that adding is one scatter and
sampling one gather; of samples with bytes, pictures for example, a second matrix holds these as bytes.
The buffer is part of the learner and is saved with it. In a compiled loop whose state is donated, adding
writes in place: the cost does not grow with the capacity.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.trees import Rows, pack_flags, pack_rows
from proxima.core.types import PyTree

NOWHERE = 2**30  # an index beyond any buffer: what goes there is not stored
# Samples to rows, and the way back.
Pack = Callable[[PyTree], tuple[Rows, Callable[[Rows], PyTree]]]


class Replay(NamedTuple):
    """The rows stored so far; those from `size` on are empty."""

    rows: Rows  # (capacity, width)
    position: Array  # where the next row goes, int32 scalar
    size: Array  # rows that hold a sample, int32 scalar


def pack_samples(samples: PyTree) -> tuple[Rows, Callable[[Rows], PyTree]]:
    """Samples (N, ...) as rows (N, width), and the way back."""
    narrow, widen = pack_flags(samples, 1)
    rows, unpack = pack_rows(narrow, 1)
    return rows, lambda rows: widen(unpack(rows))


def empty(capacity: int, example: PyTree, pack: Pack = pack_samples) -> Replay:
    """A buffer without samples, for rows such as `pack` makes of an example."""
    rows = jax.eval_shape(lambda: pack(example)[0])
    zero = jnp.zeros((), jnp.int32)
    zeros = jax.tree.map(lambda part: jnp.zeros((capacity, part.shape[-1]), part.dtype), rows)
    return Replay(zeros, zero, zero)


def capacity_of(replay: Replay) -> int:
    """How many rows the buffer holds when it is full."""
    capacity: int = jax.tree.leaves(replay.rows)[0].shape[0]
    return capacity


def slots(replay: Replay, mask: Array) -> tuple[Array, Array]:
    """Where `add` puts rows, (N,), NOWHERE for those that it leaves out; and how many it lets in."""
    capacity = capacity_of(replay)
    rank = jnp.cumsum(mask, dtype=jnp.int32) - 1  # of a row among those let in
    count = jnp.sum(mask, dtype=jnp.int32)
    stored = mask & (rank >= count - capacity)  # no index is written twice
    return jnp.where(stored, (replay.position + rank) % capacity, NOWHERE), count


def add(replay: Replay, rows: Rows, mask: Array) -> Replay:
    """The buffer after the `rows` (N, width) that `mask` (N,) lets in replaced the oldest, in order.

    Rows that are masked out are not stored, so that none can ever be sampled. Of more rows than the buffer
    holds, the last ones remain.
    """
    capacity = capacity_of(replay)
    index, count = slots(replay, mask)
    if len(mask) == 1:
        # A scatter of one row becomes an update that XLA repeats for each reader, on copies of the
        # whole buffer; a second row that goes nowhere keeps it a scatter, which writes in place.
        rows = jax.tree.map(lambda part: jnp.tile(part, (2, 1)), rows)
        index = jnp.append(index, NOWHERE)
    return Replay(
        rows=jax.tree.map(lambda old, new: old.at[index].set(new, mode="drop"), replay.rows, rows),
        position=(replay.position + count) % capacity,
        size=jnp.minimum(replay.size + count, capacity),
    )


def sample(replay: Replay, key: Array, count: int) -> Rows:
    """Rows (count, width), drawn uniformly with replacement among those that hold a sample."""
    # A remainder of 32 random bits favours no row by more than size / 2³²; `randint` works twice as hard.
    size = jnp.maximum(replay.size, 1).astype(jnp.uint32)
    return take(replay, jax.random.bits(key, (count,)) % size)


def take(replay: Replay, index: Array) -> Rows:
    """The rows (count, width) at these places."""
    rows: Rows = jax.tree.map(lambda part: part[index], replay.rows)
    return rows


def pack_sequences(steps: PyTree) -> tuple[Rows, Callable[[Rows], PyTree]]:
    """Steps (T, B, ...) as rows (B, width), one per environment, and the way back to (T, rows, ...)."""
    by_env = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps)
    narrow, widen = pack_flags(by_env, 2)
    rows, unpack = pack_rows(narrow, 1)

    def restore(rows: Rows) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), widen(unpack(rows)))

    return rows, restore
