"""Random streams of methods, and draws that contradict nothing."""

import itertools

import pytest
from searches import whole_config

from proxima.core.errors import ProximaError
from proxima.tune.draws import TRIES, admissible, library_seed, stream


def test_no_two_methods_generations_or_seeds_share_a_stream():
    places = list(itertools.product(range(4), range(5), range(4)))
    seeds = {library_seed(whole_config(seed=seed), *rest) for seed, *rest in places}
    assert len(seeds) == len(places)
    config = whole_config(seed=2**31 - 1)
    assert stream(config, 1, 2).random() == stream(config, 1, 2).random()


def test_the_first_draw_that_contradicts_nothing():
    draws = ({"a": number} for number in itertools.count())
    assert admissible(draws, lambda each: None if each["a"] % 5 == 4 else "no") == {"a": 4}
    assert admissible(draws, lambda each: None) == {"a": 5}


def test_tries_are_counted_and_the_last_reason_is_quoted():
    draws = ({"a": number} for number in itertools.count(1))

    def too_low(settings):
        return None if settings["a"] > TRIES else f"{settings['a']} is too low"

    with pytest.raises(
        ProximaError, match=r"of 1,000 .* none is possible.* 1000 is too low; narrow"
    ):
        admissible(draws, too_low)
