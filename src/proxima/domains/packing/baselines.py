"""What a policy is compared with: fixed rules, and scores in the problem's own terms.

A rule is a function of a batch of views, and of the observation alone: the largest item first in BinPack, a
shortest path through a maze. Scores are the utilisation of the container, and path lengths.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.spaces import ACTION_MASK
from proxima.core.types import View
from proxima.domains.packing.grid import MOVES, shifted
from proxima.train.program import Evaluation


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
    beside = jnp.stack([shifted(distance, move, jnp.inf) for move in MOVES])
    after_move = beside[:, here[:, 0], here[:, 1], jnp.arange(len(walls))]
    return jnp.argmin(after_move, axis=0).astype(jnp.int32)


def distances(walls: Array, target: Array) -> Array:
    """Steps from every cell to the target, (rows, columns, B) float32; inf where no way leads there."""
    walls = jnp.moveaxis(walls, 0, -1)
    row, column, _ = jnp.indices(walls.shape, sparse=True)
    at_target = (row == target[None, None, :, 0]) & (column == target[None, None, :, 1])
    start = jnp.where(at_target, 0.0, jnp.inf)

    def spread(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        distance, _ = carry
        beside = jnp.stack([shifted(distance, move, jnp.inf) for move in MOVES])
        nearest = jnp.minimum(distance, jnp.min(beside, axis=0) + 1.0)
        nearer = jnp.where(walls, jnp.inf, nearest)
        return nearer, jnp.any(nearer != distance)

    return jax.lax.while_loop(lambda carry: carry[1], spread, (start, jnp.asarray(True)))[0]


# By environment, the rules that play its evaluation episodes too.
RULES: Mapping[str, Mapping[str, Callable[[View], Array]]] = {
    "BinPack-v2": {"largest_item_first": largest_item_first},
    "Maze-v0": {"shortest_path": shortest_path},
}


def scores(
    env_name: str, played: Evaluation, rules: Mapping[str, Evaluation]
) -> dict[str, np.ndarray]:
    """What is said of an environment's evaluation, per trial; nothing where it has no terms of its own."""
    if env_name == "BinPack-v2":
        # Each placed item earns its share of the volume, so an episode's return is what it filled.
        filled = played.returns
        return {"utilisation": filled.mean(axis=1), "utilisation_min": filled.min(axis=1)}
    if env_name == "Maze-v0":
        return maze_scores(played, rules["shortest_path"].lengths)
    return {}


def maze_scores(played: Evaluation, shortest: np.ndarray) -> dict[str, np.ndarray]:
    """Per trial: the share of mazes solved in time, and path lengths over those of shortest paths.

    `path_ratio` is over the mazes that were solved, `length_ratio` over all, an unsolved one counting as
    long as its limit. `shortest`: (1 or trials, episodes).
    """
    lengths = played.lengths
    solved = played.returns > 0.5  # the only reward is 1, at the target
    shortest = np.broadcast_to(shortest, lengths.shape)
    taken = np.where(solved, lengths, 0).sum(axis=1)
    needed = np.where(solved, shortest, 0).sum(axis=1)
    with np.errstate(invalid="ignore"):  # none solved: no ratio
        path_ratio = taken / np.where(solved.any(axis=1), needed, np.nan)
    return {
        "success_rate": solved.mean(axis=1),
        "path_ratio": path_ratio,
        "length_ratio": lengths.sum(axis=1) / shortest.sum(axis=1),
    }
