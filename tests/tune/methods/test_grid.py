"""Grid search beside nested loops."""

import pytest
from searches import NET, SPACE, allowed, by_share, whole_config

from proxima.core.errors import ProximaError
from proxima.scenario.search import Range
from proxima.tune.methods.grid import grid, make_grid


def slow():
    found = []
    for rate in (1e-5, 1e-3, 1e-1):
        for clip in (0.1, 0.25, 0.4):
            for envs in (1, 4, 8):
                found.append(
                    {"algorithm.rate": rate, "algorithm.clip": clip, "train.num_envs": envs}
                )
    return found


@pytest.mark.parametrize("check", [allowed, by_share])
def test_as_nested_loops(check):
    found = grid(whole_config(points=3), SPACE, check)
    expected = [settings for settings in slow() if check(settings) is None]
    assert len(found) == len(expected) > 12
    for settings, other in zip(found, expected, strict=True):
        assert settings == pytest.approx(other)


def test_all_choices_and_no_more_points_than_whole_numbers():
    ranges = {"net": NET, "small": Range("int", 0, 1)}
    found = grid(whole_config(points=5), ranges, allowed)
    assert [tuple(each.values()) for each in found] == [
        (net, small) for net in NET.choices for small in (0, 1)
    ]


def test_the_number_of_configurations_is_that_of_combinations():
    assert len(make_grid(whole_config(configs=2, points=4), SPACE, allowed).settings) == 64


def test_too_many_combinations_are_refused_before_they_are_made():
    with pytest.raises(ProximaError, match="the grid has 125,000 combinations, and 100,000"):
        grid(
            whole_config(points=50),
            {str(number): SPACE["algorithm.rate"] for number in range(3)},
            allowed,
        )
    with pytest.raises(ProximaError, match="and 100,000 is the most"):
        grid(whole_config(points=10**12), SPACE, allowed)
    assert len(grid(whole_config(points=10**12), {"a": Range("int", 1, 3)}, allowed)) == 3


def test_a_grid_of_which_nothing_is_left_is_refused():
    with pytest.raises(ProximaError, match=r"none of the grid's 8 combinations .*: never; narrow"):
        grid(whole_config(points=2), SPACE, lambda settings: "never")
