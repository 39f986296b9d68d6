"""Statistics of configurations against slow loops, and on data whose answer is known."""

from itertools import pairwise

import numpy as np
import pytest
import search_results as searches
from search_results import EPOCHS, NET, RATE, configuration, one_setting, search

from proxima.report.statistics import mean_interval
from proxima.tune import effects

NAN = float("nan")


def slow_best_so_far(result):
    steps, values, best = [], [], None
    for row in sorted(result.configurations, key=lambda row: row.finished):
        if row.value is not None and (best is None or row.value > best):
            best = row.value
            steps.append(row.finished)
            values.append(best)
    return steps, values


def test_best_so_far_equals_a_slow_loop():
    result = searches.surface()
    shuffled = np.random.default_rng(0).permutation(len(result.configurations))
    rows = tuple(result.configurations[index] for index in shuffled)
    found = effects.best_so_far(result._replace(configurations=rows))
    steps, values = slow_best_so_far(result)
    assert len(steps) > 2
    assert found.steps.tolist() == steps and found.values.tolist() == values


def numbered(*values, **changes):
    return search([configuration(k, {"x": k}, value) for k, value in enumerate(values)], **changes)


def test_best_so_far_goes_down_where_lower_is_better():
    result = numbered(3.0, 5.0, None, 1.0, 2.0, direction="minimise")
    assert effects.best_so_far(result).values.tolist() == [3.0, 1.0]
    assert len(effects.best_so_far(numbered(None, None)).steps) == 0


def test_ranks_have_the_best_first_and_the_broken_last():
    assert effects.ranks(numbered(1.0, None, 3.0, NAN, 3.0)) == [2, 4, 0, 1, 3]
    assert effects.ranks(numbered(1.0, None, 3.0, direction="minimise")) == [0, 2, 1]
    fewer_steps = numbered(300.0, 100.0, objective="steps_to_target")
    assert effects.ranks(fewer_steps) == [1, 0]


def slow_share(labels, values):
    """ε² by its definition, a loop at a time."""
    bins = {
        label: [v for k, v in zip(labels, values, strict=True) if k == label] for label in labels
    }
    mean = sum(values) / len(values)
    total = sum((value - mean) ** 2 for value in values)
    between = within = 0.0
    for inside in bins.values():
        middle = sum(inside) / len(inside)
        between += len(inside) * (middle - mean) ** 2
        within += sum((value - middle) ** 2 for value in inside)
    each = within / (len(values) - len(bins))
    return max(0.0, (between - (len(bins) - 1) * each) / total)


@pytest.mark.parametrize("seed", range(5))
def test_the_share_of_variance_equals_a_slow_loop(seed):
    generator = np.random.default_rng(seed)
    labels = generator.choice([0, 1, 4, 7], size=40)  # bins in between are empty
    values = generator.normal(size=40) + 0.5 * labels
    share = effects.variance_share(labels, values)
    assert 0.1 < share == pytest.approx(slow_share(labels.tolist(), values.tolist()))


def test_a_share_needs_two_values_per_bin():
    values = np.arange(8.0)
    assert effects.variance_share(np.arange(8), values) is None
    assert effects.variance_share(np.arange(8) // 2, values) > 0.9
    assert effects.variance_share(np.zeros(8, int), values) == 0.0


def test_a_setting_that_explains_everything():
    found = effects.importance(one_setting(lambda a: 1.0 if a > 0.5 else 0.0, count=120))
    assert found.shares["x.a"] > 0.8 and found.shares["x.b"] < found.chance < 0.15
    assert list(found.shares) == ["x.a", "x.b"]
    (pair,) = found.pairs
    assert pair.share > 0.7


def test_a_choice_that_explains_everything_explains_all():
    rows = [configuration(k, {"x": ("a", "b")[k % 2], "y": k}, float(k % 2)) for k in range(20)]
    found = effects.importance(search(rows, space={"x": "choice:a,b", "y": "int:0:19"}))
    assert found.shares["x"] == 1.0 and found.shares["y"] < found.chance


def test_noise_explains_nothing():
    shares = []
    for seed in range(20):
        found = effects.importance(one_setting(lambda a: 0.0, noise=1.0, seed=seed))
        shares += [(share, share > found.chance) for share in found.shares.values()]
    assert np.mean([share for share, _ in shares]) < 0.04
    assert sum(beyond for _, beyond in shares) <= 4  # of 20 searches, one by design


def test_a_hump_is_found_where_a_line_would_see_nothing():
    found = effects.importance(one_setting(lambda a: -abs(a - 0.5), count=40))
    assert found.shares["x.a"] > 0.8


def test_what_two_settings_do_only_together_is_seen_in_their_pair():
    found = effects.importance(searches.many_settings(count=100))
    best = found.pairs[0]
    matter = {"algorithm.setting_number_0", "algorithm.nested.setting_number_1"}
    assert {best.first, best.second} == matter
    assert best.share > 2 * sum(found.shares[path] for path in matter)


def test_broken_configurations_count_as_the_worst():
    """Half the range of x breaks down; all else is equal but for a little noise."""
    generator = np.random.default_rng(0)
    rows = [
        configuration(k, {"x": k / 40}, None if k >= 20 else 10 + float(generator.uniform()))
        for k in range(40)
    ]
    found = effects.importance(search(rows, space={"x": "0:1"}))
    as_worst = min(row.value for row in rows if row.value is not None)
    filled = [row._replace(value=as_worst) if row.value is None else row for row in rows]
    assert found == effects.importance(search(filled, space={"x": "0:1"}))
    assert found.shares["x"] > 0.4 > found.chance
    lower = effects.importance(search(rows, space={"x": "0:1"}, direction="minimise"))
    assert lower.shares["x"] != found.shares["x"]  # filled up with the highest value


@pytest.mark.parametrize(
    "result",
    [
        numbered(*map(float, range(7))),
        numbered(*[5.0] * 20),
        numbered(*[None] * 20),
        search([]),
    ],
    ids=["seven", "equal", "broken", "empty"],
)
def test_where_nothing_can_be_said(result):
    assert effects.importance(result) is None


def test_from_eight_configurations_on_something_is_said():
    assert effects.importance(numbered(*map(float, range(8)))) is not None


def test_slices_equal_a_slow_loop():
    result = searches.surface()
    found = effects.slices(result)
    assert list(found) == list(searches.SPACE)
    for path, kind in ((NET, str), (RATE, float)):
        assert all(isinstance(row.settings[path], kind) for row in result.configurations)
    for index, choice in enumerate(("tanh", "relu", "swish")):
        rows = [row for row in result.configurations if row.settings[NET] == choice]
        values = [row.value for row in rows if row.value is not None]
        each = found[NET][index]
        assert each.mean == pytest.approx(sum(values) / len(values))
        assert (each.known, each.broken) == (len(values), len(rows) - len(values))
        assert (each.low, each.high) == pytest.approx(mean_interval(values))


def test_slices_of_numbers_have_equally_many_and_follow_the_axis():
    rates = effects.slices(searches.surface())[RATE]
    sizes = [each.known + each.broken for each in rates]
    assert sum(sizes) == 64 and len(rates) == 6 and max(sizes) - min(sizes) <= 1
    assert rates[0].first >= -5 and rates[-1].last <= -1  # powers of ten
    assert all(a.last < b.first for a, b in pairwise(rates))
    assert rates[-1].known == 0 or rates[-1].broken > 0


def test_slices_leave_empty_choices_out_and_keep_broken_ones():
    rows = [configuration(k, {"x": "ab"[k % 2]}, None if k % 2 else 1.0) for k in range(6)]
    a, b = effects.slices(search(rows, space={"x": "choice:a,b,never"}))["x"]
    assert (a.mean, a.low, a.high, a.known, a.broken) == (1.0, 1.0, 1.0, 3, 0)
    assert (b.mean, b.low, b.high, b.known, b.broken) == (None, None, None, 0, 3)
    assert effects.slices(search([])) == {}


def test_cells_of_a_pair_equal_a_slow_loop():
    result = searches.surface(200)
    axes = {axis.path: axis for axis in effects.axes_of(result)}
    across, _, means = effects.pair_means(result, axes[EPOCHS], axes[NET])
    assert means.shape == (3, across.size) and across.size == 5
    worst = min(row.value for row in result.configurations if row.value is not None)
    for y, choice in enumerate(("tanh", "relu", "swish")):
        for x in range(across.size):
            low, high = across.edges[x], across.edges[x + 1]
            inside = [
                worst if row.value is None else row.value
                for row in result.configurations
                if row.settings[NET] == choice
                and (low <= row.settings[EPOCHS] < high or row.settings[EPOCHS] == high == 10)
            ]
            assert means[y, x] == pytest.approx(np.mean(inside))


def test_a_grid_has_a_cell_for_each_point():
    rows = [
        configuration(5 * i + j, {"x": i, "y": 10.0**-j}, float(i * j))
        for i in range(5)
        for j in range(5)
    ]
    result = search(rows, space={"x": "int:0:4", "y": "log:0.0001:1"})
    x, y = effects.axes_of(result)
    *_, means = effects.pair_means(result, x, y)
    assert means[::-1].tolist() == [[float(i * j) for i in range(5)] for j in range(5)]
    assert (
        effects.importance(result).pairs[0].share is None
    )  # one value in a cell says nothing about noise
