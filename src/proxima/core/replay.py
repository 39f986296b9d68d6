"""A ring buffer of samples as pure functions: the newest `capacity` rows, sampled uniformly.

A row is a whole sample packed into float32 (`core/trees.pack_rows`), so that adding is one scatter and
sampling one gather. The buffer is part of the learner and is saved with it. In a compiled loop whose
state is donated, adding writes in place: the cost does not grow with the capacity.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.trees import pack_flags, pack_rows
from proxima.core.types import PyTree


class Replay(NamedTuple):
    """The rows stored so far; those from `size` on are empty."""

    rows: Array  # (capacity, width)
    position: Array  # where the next row goes, int32 scalar
    size: Array  # rows that hold a sample, int32 scalar


def empty(capacity: int, width: int) -> Replay:
    """A buffer without samples."""
    zero = jnp.zeros((), jnp.int32)
    return Replay(jnp.zeros((capacity, width)), zero, zero)


def add(replay: Replay, rows: Array, mask: Array) -> Replay:
    """The buffer after the `rows` (N, width) that `mask` (N,) lets in replaced the oldest, in order.

    Rows that are masked out are not stored, so that none can ever be sampled. Of more rows than the buffer
    holds, the last ones remain.
    """
    capacity = replay.rows.shape[0]
    rank = jnp.cumsum(mask, dtype=jnp.int32) - 1  # of a row among those let in
    count = jnp.sum(mask, dtype=jnp.int32)
    stored = mask & (rank >= count - capacity)  # no index is written twice
    index = jnp.where(stored, (replay.position + rank) % capacity, capacity)
    if len(rows) == 1:
        # A scatter of one row becomes an update that XLA repeats for each reader, on copies of the
        # whole buffer; a second row that goes nowhere keeps it a scatter, which writes in place.
        rows, index = jnp.tile(rows, (2, 1)), jnp.append(index, capacity)
    return Replay(
        rows=replay.rows.at[index].set(rows, mode="drop"),
        position=(replay.position + count) % capacity,
        size=jnp.minimum(replay.size + count, capacity),
    )


def sample(replay: Replay, key: Array, count: int) -> Array:
    """Rows (count, width), drawn uniformly with replacement among those that hold a sample."""
    # A remainder of 32 random bits favours no row by more than size / 2³²; `randint` works twice as hard.
    size = jnp.maximum(replay.size, 1).astype(jnp.uint32)
    return replay.rows[jax.random.bits(key, (count,)) % size]


def pack_sequences(steps: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """Steps (T, B, ...) as rows (B, width), one per environment, and the way back to (T, rows, ...)."""
    by_env = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps)
    narrow, widen = pack_flags(by_env, 2)
    rows, unpack = pack_rows(narrow, 1)

    def restore(rows: Array) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), widen(unpack(rows)))

    return rows, restore
