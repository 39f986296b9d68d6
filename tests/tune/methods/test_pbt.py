"""Population-based training: who copies whom, and what becomes of the settings."""

import math
from collections import Counter

import numpy as np
import pytest
from searches import NET, SPACE, allowed, by_share, random_value, whole_config

from proxima.core.errors import ProximaError
from proxima.scenario.search import Range
from proxima.tune.methods.pbt import evolve, first_population
from proxima.tune.methods.random import random_settings


def population(members, **changes):
    config = whole_config(method="pbt", configs=members, **changes)
    return config, first_population(config, SPACE, allowed)


def test_the_first_population_is_random():
    config, members = population(7)
    assert members == random_settings(config, SPACE, allowed)


def slow_ranks(values):
    """For each member, how many are better than it, or as good and of a lower number."""
    return [
        sum(other > mine or (other == mine and i < me) for i, other in enumerate(values))
        for me, mine in enumerate(values)
    ]


@pytest.mark.parametrize("seed", range(200))
def test_the_worst_go_on_as_copies_of_the_best(seed):
    rng = np.random.default_rng(seed)
    members, share = int(rng.integers(2, 30)), float(rng.uniform(0.01, 0.5))
    config, settings = population(members, seed=seed, replaced=share)
    values = [random_value(seed, member, 0) for member in range(members)]
    sources, following = evolve(config, SPACE, allowed, seed, values, settings)
    count = max(1, math.floor(share * members))
    for member, rank in enumerate(slow_ranks(values)):
        source = sources[member]
        is_alive = any(value > -math.inf for value in values)
        if rank < members - count or not is_alive:
            assert source == member and following[member] == settings[member]
        else:
            assert slow_ranks(values)[source] < count and values[source] > -math.inf
            for path, span in SPACE.items():
                assert span.low <= following[member][path] <= span.high


def test_the_share_is_that_of_the_number_as_written():
    config, settings = population(100, replaced=0.29)
    sources, _ = evolve(config, SPACE, allowed, 0, list(range(100)), settings)
    assert sum(source != member for member, source in enumerate(sources)) == 29


def test_of_one_member_or_of_broken_ones_nobody_changes():
    for values in ([1.0], [-math.inf] * 6):
        config, settings = population(len(values))
        sources, following = evolve(config, SPACE, allowed, 0, values, settings)
        assert sources == list(range(len(values))) and following == settings


def test_one_that_is_left_alive_is_everybodys_source():
    config, settings = population(4, replaced=0.5)
    values = [-math.inf, -math.inf, 3.0, -math.inf]
    sources, _ = evolve(config, SPACE, allowed, 0, values, settings)
    assert sources == [0, 2, 2, 2]


def copies(ranges, settings, factor=1.2, rounds=4_000):
    """What becomes of the better one's settings, over many generations."""
    config = whole_config(method="pbt", configs=2, perturbation=factor)
    pair = [settings, settings]
    return [evolve(config, ranges, allowed, g, [1.0, 0.0], pair)[1][1] for g in range(rounds)]


def test_a_number_is_multiplied_divided_or_drawn_anew():
    ranges = {"a": Range("uniform", 0, 10), "b": Range("log", 1e-5, 1)}
    found = copies(ranges, {"a": 5.0, "b": 1e-2})
    for path, value in (("a", 5.0), ("b", 1e-2)):
        counts = Counter(each[path] for each in found)
        kept = [counts.pop(value * 1.2), counts.pop(value / 1.2)]
        assert [count / 4_000 for count in kept] == pytest.approx([0.375, 0.375], abs=0.03)
        assert set(counts.values()) == {1}
        anew = np.array(sorted(counts))
        place = anew / 10 if path == "a" else 1 + np.log10(anew) / 5
        assert np.quantile(place, [0.25, 0.5, 0.75]) == pytest.approx([0.25, 0.5, 0.75], abs=0.05)
    together = np.mean([(each["a"] == 6.0) == (each["b"] == 0.012) for each in found])
    assert together == pytest.approx(0.375**2 + 0.625**2, abs=0.03)  # each decides by itself


def test_whole_numbers_and_choices():
    ranges = {"envs": Range("int", 1, 8), "net": NET}
    found = copies(ranges, {"envs": 2, "net": "gru"})
    envs = Counter(each["envs"] for each in found)
    assert set(envs) == set(range(1, 9)) and envs[1] + envs[3] > 3_000
    nets = Counter(each["net"] for each in found)
    assert nets["gru"] > nets["mlp"] > nets[None] > 200
    assert all(type(each["envs"]) is int for each in found)


def test_sources_are_drawn_alike_often():
    config, settings = population(10, replaced=0.3)
    counts = Counter()
    for generation in range(1_000):
        counts.update(evolve(config, SPACE, allowed, generation, range(10), settings)[0][:3])
    assert set(counts) == {7, 8, 9} and all(900 < count < 1_100 for count in counts.values())


def test_a_generation_depends_on_its_number_and_the_seed_alone():
    config, settings = population(10)
    values = list(range(10))
    first = evolve(config, SPACE, allowed, 3, values, settings)
    assert first == evolve(config, SPACE, allowed, 3, values, settings)
    assert first != evolve(config, SPACE, allowed, 4, values, settings)
    other = whole_config(method="pbt", configs=10, seed=1)
    assert first != evolve(other, SPACE, allowed, 3, values, settings)


def test_what_contradicts_is_drawn_again():
    config = whole_config(method="pbt", configs=20, replaced=0.5)
    settings = first_population(config, SPACE, by_share)
    for generation in range(50):
        _, settings = evolve(config, SPACE, by_share, generation, range(20), settings)
        assert [by_share(each) for each in settings] == [None] * 20


def test_where_all_contradicts_a_copy_keeps_the_settings_of_its_source():
    config, settings = population(4)
    sources, following = evolve(config, SPACE, lambda each: "never", 0, [0, 1, 2, 3], settings)
    assert sources == [3, 1, 2, 3]
    assert following == [settings[3], *settings[1:]]
    with pytest.raises(ProximaError, match="never; narrow"):
        first_population(config, SPACE, lambda each: "never")
