"""Fixed rules: shortest paths against a plain breadth-first search, largest item first by hand."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.types import View
from proxima.domains.packing.baselines import (
    distances,
    largest_item_first,
    maze_scores,
    scores,
    shortest_path,
)
from proxima.domains.packing.grid import MOVES
from proxima.domains.packing.jumanji import make
from proxima.domains.packing.scenario import PackingEnvConfig
from proxima.train.compiled.episodes import play
from proxima.train.program import Evaluation


def plain_distances(walls: np.ndarray, target: tuple[int, int]) -> np.ndarray:
    """Breadth-first search with a queue."""
    found = np.full(walls.shape, np.inf)
    found[target] = 0
    queue = deque([target])
    while queue:
        row, column = queue.popleft()
        for down, right in MOVES:
            to = row + down, column + right
            inside = 0 <= to[0] < walls.shape[0] and 0 <= to[1] < walls.shape[1]
            if inside and not walls[to] and np.isinf(found[to]):
                found[to] = found[row, column] + 1
                queue.append(to)
    return found


def test_distances_are_those_of_breadth_first_search():
    rng = np.random.default_rng(0)
    walls = rng.random((20, 7, 9)) < 0.35
    targets = np.array([rng.choice(np.argwhere(~each)) for each in walls])
    ours = jnp.moveaxis(distances(jnp.asarray(walls), jnp.asarray(targets)), -1, 0)
    for each, target, distance in zip(walls, targets, np.asarray(ours), strict=True):
        np.testing.assert_array_equal(distance, plain_distances(each, tuple(target)))


def test_the_rule_arrives_by_a_shortest_path():
    env = make(PackingEnvConfig(name="Maze-v0", params={"num_rows": 7, "num_cols": 6}), 0)
    episodes = 30
    played = play(shortest_path, env, 0, episodes)
    np.testing.assert_array_equal(played.returns, 1.0)
    from proxima.core.seeds import evaluation_keys

    keys = jax.vmap(lambda key: jax.random.split(key)[0])(evaluation_keys(jnp.uint32(0), episodes))
    _, obs = jax.vmap(env.reset)(keys)
    for index in range(episodes):
        found = plain_distances(
            np.asarray(obs["walls"][index]), tuple(np.asarray(obs["target_position"][index]))
        )
        here = tuple(np.asarray(obs["agent_position"][index]))
        assert played.lengths[0, index] == found[here]


def test_largest_item_first_takes_the_tightest_space():
    obs = {
        "items": jnp.array([[[0.2, 0.2, 0.2], [0.5, 0.5, 0.5], [0.9, 0.9, 0.9]]]),
        "ems": jnp.array([[[0, 1, 0, 1, 0, 1], [0, 0.6, 0, 0.6, 0, 0.6], [0, 0.3, 0, 1, 0, 1]]]),
        # item 2 is placed already; item 1 fits the first two spaces, item 0 all
        "action_mask": jnp.array([[1, 1, 0, 1, 1, 0, 1, 0, 0]], bool),
    }
    assert largest_item_first(View(obs)).tolist() == [1 * 3 + 1]


def test_scores_in_the_problems_terms():
    returns = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    lengths, shortest = np.array([[6, 100, 4], [100, 100, 100]]), np.array([[5, 9, 4]])
    played = Evaluation(returns, lengths)
    told = maze_scores(played, shortest)
    assert told["success_rate"] == pytest.approx([2 / 3, 0])
    assert told["path_ratio"][0] == pytest.approx(10 / 9)
    assert np.isnan(told["path_ratio"][1])
    assert told["length_ratio"] == pytest.approx([110 / 18, 300 / 18])
    filled = scores("BinPack-v2", Evaluation(np.array([[0.5, 0.7]]), np.array([[3, 4]])), {})
    assert filled["utilisation"] == pytest.approx([0.6])
    assert filled["utilisation_min"] == pytest.approx([0.5])
    assert scores("Snake-v1", played, {}) == {}
