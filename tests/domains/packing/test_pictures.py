"""Pictures of packings and mazes: what is drawn is what was done."""

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from proxima.domains.packing import pictures as packing
from proxima.train.program import Recording

ITEMS, SPACES = 2, 3


def episode():
    """Two boxes side by side: the left half, then the right one."""
    items = np.tile(np.asarray([[0.5, 1.0, 1.0], [0.5, 1.0, 1.0]]), (2, 1, 1))
    spaces = np.zeros((2, SPACES, 6))
    spaces[0, 0] = (0.0, 1.0, 0.0, 1.0, 0.0, 1.0)
    spaces[1, 2] = (0.5, 1.0, 0.0, 1.0, 0.0, 1.0)
    return {"items": items, "ems": spaces}, np.asarray([0 * ITEMS + 1, 2 * ITEMS + 0])


def walk():
    """Right, right, down, on a board with one wall."""
    walls = np.zeros((3, 3, 3), bool)
    walls[:, 1, 1] = True
    positions = np.asarray([[0, 0], [0, 1], [0, 2]], np.int32)
    target = np.tile(np.asarray([1, 2], np.int32), (3, 1))
    obs = {"walls": walls, "agent_position": positions, "target_position": target}
    return obs, np.asarray([1, 1, 2])


@pytest.mark.parametrize(("name", "make"), [("BinPack-v2", episode), ("Maze-v0", walk)])
def test_a_film_has_a_frame_before_the_first_step_and_one_after_each(name, make, tmp_path):
    obs, actions = make()
    recording = Recording(obs, actions, np.zeros(len(actions)))
    (tmp_path / "plots").mkdir()
    assert not packing.film_of(tmp_path / "film.gif", "CartPole-v1", recording)
    assert packing.film_of(tmp_path / "film.gif", name, recording)
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == len(actions) + 1
        frames = []
        for index in range(film.n_frames):
            film.seek(index)
            frames.append(np.asarray(film.convert("RGB")))
    assert all((one != other).any() for one, other in pairwise(frames))
    with Image.open(tmp_path / "plots" / "episode.png") as last:
        assert last.size == frames[-1].shape[1::-1]


def test_boxes_are_painted_from_the_back_to_the_front():
    # Seen from the corner opposite the origin: the box nearest the origin is farthest away.
    far = np.asarray([[0.0, 0.0, 0.0], [0.5, 1.0, 1.0]])
    near = np.asarray([[0.5, 0.0, 0.0], [1.0, 1.0, 1.0]])
    above = np.asarray([[0.0, 0.0, 1.0], [0.5, 1.0, 1.5]])
    assert packing.back_to_front([near, far]) == [1, 0]
    order = packing.back_to_front([above, near, far])
    assert order.index(2) < order.index(1) and order.index(2) < order.index(0)


def test_the_shortest_way_goes_round_the_wall():
    walls = np.zeros((3, 3), bool)
    walls[0, 1] = walls[1, 1] = True
    way = packing.shortest_way(walls, (0, 0), (0, 2))
    assert way[0] == (0, 0) and way[-1] == (0, 2) and len(way) == 7
    assert not any(walls[place] for place in way)
