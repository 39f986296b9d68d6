"""Films of episodes: what is drawn is what was seen and done."""

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageColor

from proxima.domains.control import film
from proxima.report import style

NAN = float("nan")


def centroid(frame, colour):
    """The mean (x, y) of the pixels near a colour; y grows downwards."""
    pixels = np.asarray(frame, dtype=int)
    distance = np.abs(pixels - np.array(ImageColor.getrgb(colour))).sum(axis=2)
    rows, columns = np.nonzero(distance < 30)
    assert len(rows) > 20
    return columns.mean(), rows.mean()


def test_pole_leans_and_cart_moves_the_right_way():
    left, upright, right = (
        centroid(film.scene("CartPole-v1", [0, 0, angle, 0]), style.VERMILLION)[0]
        for angle in (-0.2, 0.0, 0.2)
    )
    assert left < upright - 5 < upright + 5 < right
    moved = centroid(film.scene("CartPole-v1", [1.0, 0, 0, 0]), style.VERMILLION)[0]
    assert moved > upright + 50


def test_push_arrow_points_where_the_action_pushes():
    still = [0.0, 0.0, 0.0, 0.0]
    left, right = (
        centroid(film.scene("CartPole-v1", still, action), style.BLUE)[0] for action in (0, 1)
    )
    assert left < film.WIDTH / 2 < right


def test_pendulum_is_up_at_angle_zero_and_turns_anticlockwise():
    def place(angle):
        return centroid(
            film.scene("Pendulum-v1", [np.cos(angle), np.sin(angle), 0]), style.VERMILLION
        )

    assert place(0.0)[1] < film.SCENE / 2 - 20
    assert place(np.pi)[1] > film.SCENE / 2 + 20
    assert place(np.pi / 2)[0] < film.WIDTH / 2 - 20


def test_acrobot_hangs_at_zero_and_stands_at_pi():
    hanging = film.scene("Acrobot-v1", [1, 0, 1, 0, 0, 0])
    standing = film.scene("Acrobot-v1", [-1, 0, 1, 0, 0, 0])
    folded = film.scene("Acrobot-v1", [1, 0, -1, 0, 0, 0])
    lower = [centroid(frame, style.VERMILLION)[1] for frame in (standing, folded, hanging)]
    assert lower == sorted(lower)
    swung = film.scene("Acrobot-v1", [0, 1, 1, 0, 0, 0])
    assert centroid(swung, style.BLUE)[0] > film.WIDTH / 2


@pytest.mark.parametrize("name", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_car_is_higher_and_further_right_near_the_goal(name):
    valley = centroid(film.scene(name, [-0.52, 0]), style.BLUE)
    goal = centroid(film.scene(name, [0.4, 0]), style.BLUE)
    assert goal[0] > valley[0] + 100
    assert goal[1] < valley[1] - 100


def test_minatar_cells_are_where_the_observation_says():
    observation = np.zeros((10, 10, 4), dtype=bool)
    observation[9, 7, 0] = True
    observation[0, 2, 3] = True
    observation[9, 7, 2] = True  # under the player
    frame = film.scene("Breakout-MinAtar", observation)
    x, y = centroid(frame, film.CHANNELS[3])
    assert (x - 200) / 25 + 5 == pytest.approx(2.5, abs=0.1)
    assert y < 30
    hidden = ImageColor.getrgb(film.CHANNELS[2])
    assert not (np.asarray(frame) == hidden).all(axis=2).any()


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("CartPole-v1", (4,), True),
        ("CartPole-v1", (5,), False),
        ("MountainCarContinuous-v0", (2,), True),
        ("Breakout-MinAtar", (10, 10, 4), True),
        ("MinAtar/Seaquest-v1", (10, 10, 10), True),
        ("Breakout-MinAtar", (400,), False),
        ("Ant-v5", (27,), False),
    ],
)
def test_can_draw(name, shape, expected):
    assert film.can_draw(name, shape) is expected


EPISODES = {
    "CartPole-v1": ((4,), np.zeros(12, dtype=int)),
    "Pendulum-v1": ((3,), np.linspace(-2, 2, 12)[:, None]),
    "Acrobot-v1": ((6,), np.arange(12) % 3),
    "MountainCar-v0": ((2,), np.arange(12) % 3),
    "MountainCarContinuous-v0": ((2,), np.linspace(-1, 1, 12)[:, None]),
    "Freeway-MinAtar": ((10, 10, 7), np.arange(12) % 3),
    "MinAtar/Breakout-v1": ((10, 10, 4), np.arange(12) % 3),
}


@pytest.mark.parametrize("name", EPISODES)
def test_film_has_a_frame_per_observation_and_they_differ(name, tmp_path):
    shape, actions = EPISODES[name]
    observations = np.random.default_rng(0).uniform(-0.5, 0.5, size=(13, *shape))
    path = tmp_path / "deep" / "film.gif"
    film.film(path, name, observations, actions, np.ones(12))
    with Image.open(path) as image:
        assert image.n_frames == 13
        assert image.size == (film.WIDTH, film.HEIGHT)
        frames = []
        for place in range(13):
            image.seek(place)
            frames.append(np.asarray(image.convert("RGB"), dtype=int))
    for before, after in pairwise(frames):
        assert (before != after)[: film.SCENE].any()  # the scene
        assert (before != after)[film.SCENE :].any()  # the caption


def test_long_film_is_thinned_but_shown_to_the_end(tmp_path):
    positions = np.linspace(-2, 2, 100)
    observations = np.stack([positions, *np.zeros((3, 100))], axis=1)
    film.film(
        tmp_path / "film.gif",
        "CartPole-v1",
        observations,
        np.ones(100, int),
        np.ones(100),
        max_frames=10,
    )
    with Image.open(tmp_path / "film.gif") as image:
        assert image.n_frames == 10
        image.seek(9)
        last = np.asarray(image.convert("RGB"))
    expected = centroid(film.scene("CartPole-v1", observations[-1], 1), style.VERMILLION)
    assert centroid(last, style.VERMILLION) == pytest.approx(expected, abs=2)


def test_film_of_a_policy_that_diverged_is_still_written(tmp_path):
    observations = np.full((3, 3), NAN)
    film.film(tmp_path / "film.gif", "Pendulum-v1", observations, np.full((3, 1), NAN), [NAN] * 3)
    assert (tmp_path / "film.gif").stat().st_size > 0
