"""Sobol points: as even as they are said to be, and those of SciPy."""

import itertools

import numpy as np
import pytest
from scipy.stats.qmc import Sobol
from searches import NET, SPACE, allowed, by_share, whole_config

from proxima.core.errors import ProximaError
from proxima.scenario.search import Range
from proxima.tune.methods.sobol import sobol_points, sobol_settings


def points(count, dimensions, seed=0):
    return np.array(list(itertools.islice(sobol_points(dimensions, seed), count)))


@pytest.mark.parametrize("exponent", range(8))
def test_every_dyadic_interval_holds_as_many(exponent):
    count = 2**exponent
    shares = np.floor(points(2 * count, 5) * count).astype(int)
    for half in (shares[:count], shares[count:]):
        assert (np.sort(half, axis=0) == np.arange(count)[:, None]).all()


def test_every_elementary_box_of_the_first_two_dimensions_holds_one():
    """They are a net of quality 0 (Sobol 1967): 64 boxes of any shape, one point in each."""
    first = points(64, 2, seed=3)
    for wide in range(7):
        boxes = np.floor(first * (2**wide, 2 ** (6 - wide))).astype(int)
        assert len(np.unique(boxes, axis=0)) == 64


def test_blocks_are_one_sequence():
    assert (points(128, 3, seed=7) == Sobol(3, rng=7).random_base2(7)).all()


def test_scrambling_depends_on_the_seed():
    assert not np.isin(points(64, 2, seed=1), points(64, 2, seed=2)).any()


def test_numbers_and_choices_are_spread_alike():
    ranges = {"net": NET, "envs": Range("int", 1, 8), "rate": Range("log", 1, 16)}
    drawn = sobol_settings(whole_config(configs=64), ranges, allowed)
    envs = [each["envs"] for each in drawn]
    assert [envs.count(number) for number in range(1, 9)] == [8] * 8
    assert sorted(int(np.log2(each["rate"])) for each in drawn) == sorted([*range(4)] * 16)
    counts = [sum(each["net"] == net for each in drawn) for net in NET.choices]
    assert sum(counts) == 64 and all(20 <= count <= 23 for count in counts)


def test_what_contradicts_is_skipped_and_the_rest_stays():
    everything = sobol_settings(whole_config(configs=64), SPACE, allowed)
    some = sobol_settings(whole_config(configs=20), SPACE, by_share)
    assert some == [each for each in everything if by_share(each) is None][:20]


def test_a_space_in_which_all_contradicts_is_refused():
    with pytest.raises(ProximaError, match=r"of 1,000 .*: never; narrow"):
        sobol_settings(whole_config(), SPACE, lambda settings: "never")
