"""A policy's evaluation in the problem's own terms: utilisation of a container, paths through a maze."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating]  # (trials, episodes)


def utilisation(returns: Rows) -> dict[str, Rows]:
    """The share of the container's volume that was filled, mean and worst episode, per trial.

    Each placed item earns its share of the volume, so an episode's return is what it filled.
    """
    return {"utilisation": returns.mean(axis=1), "utilisation_min": returns.min(axis=1)}


def maze_scores(returns: Rows, lengths: Rows, shortest: Rows) -> dict[str, Rows]:
    """Per trial: the share of mazes solved in time, and path lengths over those of shortest paths.

    `path_ratio` is over the mazes that were solved, `length_ratio` over all, an unsolved one counting as
    long as its limit. `shortest`: (1 or trials, episodes).
    """
    solved = returns > 0.5  # the only reward is 1, at the target
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


def scores(
    env_name: str, returns: Rows, lengths: Rows, oracle_lengths: Mapping[str, Rows]
) -> dict[str, Rows]:
    """What is said of an environment's evaluation; nothing where it has no terms of its own."""
    if env_name.startswith("BinPack"):
        return utilisation(returns)
    if env_name.startswith("Maze"):
        return maze_scores(returns, lengths, oracle_lengths["shortest_path"])
    return {}
