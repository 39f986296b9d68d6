"""Fixed rules to compare a policy with: largest item first for BinPack, a shortest path for Maze.

Each is a function of a batch of views, and of the observation alone.
"""

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.spaces import ACTION_MASK
from proxima.core.types import View

# Maze's actions: up, right, down, left, as steps along rows and columns.
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def largest_item_first(view: View) -> Array:
    """The largest item that fits anywhere, into the smallest space that holds it.

    Equal items and equal spaces: the first. Filling the tightest space leaves the large ones whole.
    """
    items, spaces = view.obs["items"], view.obs["ems"]
    batch, count = items.shape[0], items.shape[-2]
    valid = view.obs[ACTION_MASK].reshape(batch, -1, count)
    item_volume = jnp.prod(items, axis=-1)
    space_volume = jnp.prod(spaces[..., 1::2] - spaces[..., 0::2], axis=-1)
    placeable = jnp.any(valid, axis=1)
    item = jnp.argmax(jnp.where(placeable, item_volume, -1.0), axis=-1)
    holds = jnp.take_along_axis(valid, item[:, None, None], axis=2)[..., 0]
    space = jnp.argmin(jnp.where(holds, space_volume, jnp.inf), axis=-1)
    return (space * count + item).astype(jnp.int32)


def shortest_path(view: View) -> Array:
    """The first of the moves that lead nearer to the target."""
    walls, here = view.obs["walls"], view.obs["agent_position"]
    distance = distances(walls, view.obs["target_position"])
    beside = jnp.stack([_shifted(distance, move) for move in MOVES], axis=-1)
    at = beside[jnp.arange(len(walls)), here[:, 0], here[:, 1]]
    return jnp.argmin(at, axis=-1).astype(jnp.int32)


def distances(walls: Array, target: Array) -> Array:
    """Steps from every cell to the target, (B, rows, columns) float32; inf where no way leads there."""
    batch, rows, columns = walls.shape
    row, column = jnp.arange(rows)[None, :, None], jnp.arange(columns)[None, None, :]
    at_target = (row == target[:, 0, None, None]) & (column == target[:, 1, None, None])
    start = jnp.where(at_target, 0.0, jnp.full((batch, rows, columns), jnp.inf))

    def spread(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        distance, _ = carry
        nearest = jnp.min(jnp.stack([_shifted(distance, move) for move in MOVES]), axis=0)
        nearer = jnp.where(walls, jnp.inf, jnp.minimum(distance, nearest + 1.0))
        return nearer, jnp.any(nearer != distance)

    return jax.lax.while_loop(lambda carry: carry[1], spread, (start, jnp.asarray(True)))[0]


def _shifted(distance: Array, move: tuple[int, int]) -> Array:
    """At each cell the value of the cell one move away; inf beyond the edge."""
    (down, right), (rows, columns) = move, distance.shape[1:]
    padded = jnp.pad(distance, ((0, 0), (1, 1), (1, 1)), constant_values=jnp.inf)
    return padded[:, 1 + down : 1 + down + rows, 1 + right : 1 + right + columns]
