"""Which trials stand for all."""

import numpy as np
import pytest
from page_reader import read

from proxima.report.chosen import chosen_trials, median_index, roles
from proxima.report.trials import MOST_ROWS, trials_table

NAN = float("nan")


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_all_of_a_few_trials_are_chosen(count):
    assert chosen_trials([1.0] * count) == list(range(count))
    assert chosen_trials([None] * count) == list(range(count))


def test_of_many_the_first_median_best_and_worst_are_chosen_in_order():
    scores = [5.0, 9.0, 1.0, 6.0, 4.0, 7.0, 8.0]
    assert chosen_trials(scores) == [0, 1, 2, 3]
    assert roles(scores) == {0: "first", 1: "best", 3: "median", 2: "worst"}


def test_a_trial_that_stands_for_several_is_chosen_once():
    assert chosen_trials([9.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == [0, 1, 3]
    assert roles([9.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == {0: "first, best", 3: "median", 1: "worst"}
    assert chosen_trials([2.0] * 6) == [0, 2, 5]


def test_trials_without_a_score_are_neither_best_nor_worst():
    scores = [None, NAN, 3.0, 1.0, 2.0, float("inf"), None]
    assert chosen_trials(scores) == [0, 2, 3, 4]
    named = roles(scores)
    assert (named[2], named[4], named[3]) == ("best", "median", "worst")
    assert (named[0], named[1], named[5]) == ("first, failed", "failed", "failed")
    assert 6 not in named  # a few are enough
    assert chosen_trials([None] * 6) == [0]


@pytest.mark.parametrize("count", [6, 40, 256])
def test_the_chosen_are_those_of_a_slow_search(count):
    scores = np.random.default_rng(count).normal(size=count).tolist()
    ranked = sorted(scores)
    values = {scores[0], ranked[0], ranked[-1], ranked[(count - 1) // 2]}
    assert chosen_trials(scores) == sorted(map(scores.index, values))


def test_the_median_trial_is_one_of_the_trials():
    assert median_index([3.0, 1.0, 2.0]) == 2
    assert median_index([4.0, 1.0, 2.0, 3.0]) == 2  # the lower one of two
    assert median_index([5.0, NAN, 7.0]) == 0
    assert median_index([NAN, None]) is None


def rows(count):
    return [[f"{k}", f"seed {k}"] for k in range(count)]


def test_a_short_table_is_whole():
    made = trials_table(["Trial", "Seed"], rows(MOST_ROWS), [1.0] * MOST_ROWS).html
    assert made.count("<tr>") == MOST_ROWS + 1 and "<details>" not in made


def test_a_long_table_names_some_and_folds_all():
    scores = np.arange(256.0).tolist()
    made = trials_table(["Trial", "Seed"], rows(256), scores, {7: "lucky", 255: "last"}).html
    short, fold = made.split("<details>")
    words = read(short).words
    for text in ("first, worst 0 seed 0", "median 127 seed 127", "best, last 255", "lucky 7"):
        assert text in words
    assert short.count("<tr>") == 5 and fold.count("<tr>") == 257
    assert "All 256 trials" in read(f"<details>{fold}").words
