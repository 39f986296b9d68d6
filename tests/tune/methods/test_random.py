"""Random search beside an explicit loop."""

import math

import numpy as np
import pytest
from searches import NET, SPACE, allowed, by_share, whole_config

from proxima.core.errors import ProximaError
from proxima.scenario.search import Range
from proxima.tune.methods.random import random_settings


def slow(config, check):
    """SPACE, drawn setting by setting."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((config.seed, 0, 0))))
    found = []
    while len(found) < config.configs:
        rate, clip, envs = rng.random(), rng.random(), rng.random()
        settings = {
            "algorithm.rate": 10 ** (-5 + 4 * rate),
            "algorithm.clip": 0.1 + 0.3 * clip,
            "train.num_envs": 1 + math.floor(8 * envs),
        }
        if check(settings) is None:
            found.append(settings)
    return found


@pytest.mark.parametrize("check", [allowed, by_share])
def test_as_an_explicit_loop(check):
    config = whole_config(configs=200, seed=5)
    drawn = random_settings(config, SPACE, check)
    for settings, other in zip(drawn, slow(config, check), strict=True):
        assert settings == pytest.approx(other, rel=1e-12)
        assert check(settings) is None


def test_the_first_ones_are_the_same_however_many_there_are():
    few, many = (random_settings(whole_config(configs=n), SPACE, by_share) for n in (5, 50))
    assert few == many[:5]


def distance(values, low, high):
    """Kolmogorov's distance from the uniform distribution."""
    shares = (np.sort(values) - low) / (high - low)
    places = np.arange(len(values) + 1) / len(values)
    return max(np.max(places[1:] - shares), np.max(shares - places[:-1]))


def test_numbers_are_uniform_and_logarithmic_ones_in_their_logarithm():
    drawn = random_settings(whole_config(configs=4_000), SPACE, allowed)
    bound = 1.63 / math.sqrt(4_000)  # exceeded by one in a hundred seeds
    rates = np.array([settings["algorithm.rate"] for settings in drawn])
    clips = np.array([settings["algorithm.clip"] for settings in drawn])
    assert distance(np.log10(rates), -5, -1) < bound < distance(rates, 1e-5, 1e-1)
    assert distance(clips, 0.1, 0.4) < bound


def test_whole_numbers_and_choices_are_drawn_alike_often():
    ranges = {"int": Range("int", 1, 4), "choice": NET}
    drawn = random_settings(whole_config(configs=4_000), ranges, allowed)
    for path, values in {"int": (1, 2, 3, 4), "choice": NET.choices}.items():
        counts = np.array([sum(each[path] == value for each in drawn) for value in values])
        expected = 4_000 / len(values)
        assert np.sum((counts - expected) ** 2 / expected) < 11.3  # chi-squared, 1 %, 3 degrees
        assert sum(counts) == 4_000


def test_a_space_in_which_all_contradicts_is_refused():
    with pytest.raises(ProximaError, match=r"search\.space: .* the last because: never; narrow"):
        random_settings(whole_config(), SPACE, lambda settings: "never")
