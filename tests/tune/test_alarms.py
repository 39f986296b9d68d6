"""What a reader must know first: each box appears where it should, and only there."""

import pytest
import search_results as searches
from page_reader import read
from search_results import configuration, search

from proxima.scenario.search import read_range
from proxima.tune.alarms import alarms, edge
from proxima.tune.results import Confirmed
from proxima.tune.verdict import verdict


def words(result):
    return read("".join(box.html for box in alarms(result, verdict(result)))).words


def calm(best=90.0, own=50.0, seeds=5):
    """A search of which there is nothing to say."""
    rows = [configuration(k, {"x": 4.0 + k}, float(k)) for k in range(3)]
    numbers = tuple(range(seeds))
    test = (
        Confirmed(2, tuple(best + k for k in numbers), numbers),
        Confirmed(None, tuple(own - k for k in numbers), numbers),
    )
    return search(rows, space={"x": "0:9"}, own={"x": 1.0}, test=test)


def test_nothing_is_said_where_nothing_is_wrong():
    assert words(calm()) == ""


@pytest.mark.parametrize(
    ("written", "value", "end"),
    [
        ("0:1", 0.96, "upper"), ("0:1", 0.9, ""), ("0:1", 0.05, "lower"), ("0:1", None, ""),
        ("log:1e-5:1", 2e-5, ""), ("log:1e-5:1", 1.5e-5, "lower"), ("int:1:4", 4, "upper"),
        ("choice:1,2", 1, ""), ("0:1", "text", ""),
    ],
)  # fmt: skip
def test_the_edge_of_a_range(written, value, end):
    assert edge(read_range(written), value) == end


def test_a_best_value_at_an_edge_says_which_range_to_widen():
    said = words(calm()._replace(space={"x": "int:0:6"}))
    assert "x: 6 is at the upper end of int:0:6; widen it there" in said


def test_settings_that_are_no_better_are_called_so():
    assert "keep them" in words(calm(own=100.0))
    unsure = calm(own=50.0)
    values = (49.0, 52.0, 50.5, 47.0, 51.0)
    unsure = unsure._replace(test=(Confirmed(2, values, (0, 1, 2, 3, 4)), unsure.test[1]))
    assert "not told apart from chance" in words(unsure)


def test_few_seeds_are_called_few():
    assert "3 new seeds, whose interval is one of 75 %; 5 are the least" in words(calm(seeds=3))
    assert "1 new seed; 5" in words(calm(seeds=1))


def test_what_was_not_confirmed_is_called_so():
    said = words(calm()._replace(test=()))
    assert "Not confirmed" in said and "that of 1 seed and the luckiest of 3" in said
    broken = Confirmed(2, (None, None), (0, 1))
    assert "every training with the chosen settings broke" in words(calm()._replace(test=(broken,)))
    one = search([configuration(0, {"x": 4.0}, 1.0)], space={"x": "0:9"})
    assert "that of 1 seed" in words(one) and "luckiest" not in words(one)


def test_broken_configurations_are_named_with_their_settings():
    said = words(searches.all_broken(4))
    assert "The loss of 4 of 4" in said and "more" not in said
    first = searches.all_broken(4).configurations[0].settings
    assert f"0: learning_rate {first[searches.RATE]:.4g}, epochs {first[searches.EPOCHS]}" in said
    many = words(searches.all_broken(30))
    assert many.count("learning_rate") == 5 and "25 more" in many
