"""The chosen settings beside the scenario's own, on seeds that the search had not seen."""

import numpy as np
import pytest
import search_results as searches
from search_results import configuration, search

from proxima.tune.results import Confirmed
from proxima.tune.verdict import improvement, returns_better, verdict

SEEDS = (7, 8, 9)


def run_again(best, own, seeds=SEEDS, own_seeds=SEEDS, **changes):
    rows = [configuration(0, {"x": 1}, 50.0), configuration(1, {"x": 2}, 100.0)]
    test = (Confirmed(1, best, seeds), Confirmed(None, own, own_seeds))
    return search(rows, space={"x": "0:9"}, test=test, **changes)


def test_seeds_are_paired_where_they_are_the_same():
    found = verdict(run_again((90.0, 80.0, 100.0), (70.0, 90.0, 60.0)))
    assert found.best["iqm"] == 90.0 and found.own["n"] == 3
    gained = found.improvement
    assert gained.gain == pytest.approx(np.mean([20, -10, 40]))
    assert gained.probability == pytest.approx(2 / 3) and gained.pairs == 3
    assert gained.low <= gained.gain <= gained.high
    assert found.optimism == 10.0


def test_other_seeds_are_compared_each_with_each():
    found = verdict(run_again((3.0, 1.0), (1.0, 2.0, None), (1, 2), SEEDS))
    gained = found.improvement
    # 3 > 1, 3 > 2, 1 = 1, 1 < 2
    assert (gained.probability, gained.gain, gained.low) == (2.5 / 4, 0.5, None)


def test_lower_returns_are_better_where_the_search_was_told_so():
    result = run_again((80.0, 80.0, 80.0), (90.0, 90.0, 90.0), direction="minimise")
    result = result._replace(chosen=1)
    found = verdict(result)
    assert (found.improvement.gain, found.improvement.probability) == (10.0, 1.0)
    assert found.optimism == -20.0  # 100 in the search, 80 on new seeds
    assert returns_better(result._replace(metric="loss/value")) == 1.0


@pytest.mark.parametrize("changes", [{"metric": "loss/value"}, {"objective": "area"}])
def test_values_of_another_kind_are_not_subtracted(changes):
    assert verdict(run_again((90.0,) * 3, (80.0,) * 3, **changes)).optimism is None


def test_trainings_that_broke_down_are_left_out():
    found = verdict(run_again((90.0, None, 100.0), (80.0, 80.0, None)))
    assert (found.best["n"], found.best["failed"]) == (2, 1)
    assert (found.improvement.pairs, found.improvement.gain) == (1, 10.0)
    nothing = improvement(Confirmed(1, (None,), (1,)), Confirmed(None, (1.0,), (2,)), 1.0)
    assert nothing == (None, None, None, None, 0)


def test_where_there_is_no_verdict():
    assert verdict(searches.one_setting(lambda a: a)) is None
    assert verdict(searches.all_broken()) is None
    assert verdict(run_again((None,) * 3, (1.0,) * 3)) is None
    only = run_again((90.0,) * 3, (80.0,) * 3)
    found = verdict(only._replace(test=only.test[:1]))
    assert found.own is None and found.improvement is None
