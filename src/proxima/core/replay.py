"""A ring buffer of samples as pure functions: the newest `capacity` rows, sampled uniformly.

A row is a whole sample packed into float32 (`core/trees.pack_rows`), so that adding is one scatter and
sampling one gather. The buffer is part of the learner and is saved with it. In a compiled loop whose
state is donated, adding writes in place: the cost does not grow with the capacity.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Replay(NamedTuple):
    """The rows kept so far; those from `size` on hold nothing yet."""

    rows: Array  # (capacity, width)
    position: Array  # where the next row goes, int32 scalar
    size: Array  # rows that hold a sample, int32 scalar


def empty(capacity: int, width: int) -> Replay:
    """A buffer without samples."""
    zero = jnp.zeros((), jnp.int32)
    return Replay(jnp.zeros((capacity, width)), zero, zero)


def add(replay: Replay, rows: Array, mask: Array) -> Replay:
    """The buffer after the `rows` (N, width) that `mask` (N,) lets in, in order, over the oldest.

    Rows that are masked out take no place, so that none can ever be sampled. Of more rows than the buffer
    holds, the last ones stay.
    """
    capacity = replay.rows.shape[0]
    place = jnp.cumsum(mask, dtype=jnp.int32) - 1  # of a row among those let in
    count = jnp.sum(mask, dtype=jnp.int32)
    kept = mask & (place >= count - capacity)  # no place is written twice
    index = jnp.where(kept, (replay.position + place) % capacity, capacity)
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
    """Rows (count, width), drawn uniformly with replacement among those that hold a sample.

    A remainder of 32 random bits favours no row by more than size / 2³², and is half of `randint`'s work.
    """
    size = jnp.maximum(replay.size, 1).astype(jnp.uint32)
    return replay.rows[jax.random.bits(key, (count,)) % size]
