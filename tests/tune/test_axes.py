"""Where a setting's values lie, how they are cut into bins, and how they are written."""

import numpy as np
import pytest
import search_results as searches

from proxima.tune import axes
from proxima.tune.axes import Axis


@pytest.mark.parametrize(
    ("written", "values", "kind"),
    [
        ("0:1", [0.5, 1], "uniform"),
        ("log:0.001:1", [0.5, 0.01], "log"),
        ("log:0.001:1", [0.5, 0.0], "uniform"),  # no logarithm
        ("int:1:4", [1, 2], "int"),
        ("int:1:4", [1, None], "choice"),
        ("choice:1,2", [1, 2], "choice"),
        ("", [1e-5, 1e-1], "log"),  # a table's column has no range
        ("", [1, 50], "uniform"),
        ("", [-1.0, 1000.0], "uniform"),
        ("", [True, False], "choice"),
        ("", ["a", 1], "choice"),
        ("0:1", [], "uniform"),
    ],
)
def test_the_kind_of_an_axis(written, values, kind):
    assert axes.axis_of("x", written, values).kind == kind


def test_choices_keep_their_order_and_what_is_equal_in_python_is_told_apart():
    axis = axes.axis_of("x", "choice:b,a,null", ["a", True, 1, "1"])
    assert axis.choices == ("b", "a", None, True, 1, "1")
    assert axes.positions(axis, [1, True, 1.0, "1", "b", "other"]).tolist()[:5] == [4, 3, 4, 5, 0]
    assert np.isnan(axes.positions(axis, ["other"])[0])


def test_positions_of_numbers():
    assert axes.positions(Axis("x", "log"), [0.01, 1, 0]).tolist()[:2] == [-2, 0]
    assert np.isnan(axes.positions(Axis("x", "log"), [0, None, "a"])).all()
    assert axes.positions(Axis("x", "int"), [3, 4.0]).tolist() == [3, 4]


@pytest.mark.parametrize("count", [7, 20, 61])
def test_bins_hold_equally_many_and_every_value_is_within_its_bin(count):
    places = np.random.default_rng(count).normal(size=count)
    bins = axes.cut(Axis("x", "uniform"), places, 4 if count < 10 else 6)
    sizes = np.bincount(bins.labels, minlength=bins.size)
    if count > 7:
        assert bins.size == 6 and sizes.max() - sizes.min() <= 2
    for place, label in zip(places, bins.labels, strict=True):
        assert bins.edges[label] <= place <= bins.edges[label + 1]


def test_values_that_are_often_the_same_leave_no_bin_empty():
    places = np.array([0.0] * 30 + list(range(1, 9)))
    bins = axes.cut(Axis("x", "int"), places, 6)
    assert (np.bincount(bins.labels, minlength=bins.size) > 0).all()
    assert len(bins.edges) == bins.size + 1


def test_few_numbers_have_a_bin_each():
    bins = axes.cut(Axis("x", "log"), np.array([-1.0, -3.0, -2.0, -1.0]), 3)
    assert bins.labels.tolist() == [2, 0, 1, 2]
    assert bins.edges.tolist() == [-3.5, -2.5, -1.5, -0.5]
    lone = axes.cut(Axis("x", "uniform"), np.array([7.0, 7.0]), 3)
    assert (lone.labels.tolist(), lone.edges.tolist()) == ([0, 0], [6.5, 7.5])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), (3, "3"), (1_000_000, "1000000"), (0.00012345, "0.0001234"),
        (1e-5, "1e-5"), (2e20, "2e20"), ("relu", "relu"), ("1", '"1"'), ("true", '"true"'), ("", '""'),
        ("x" * 40, "x" * 31 + "…"),
    ],
)  # fmt: skip
def test_values_are_written_as_in_a_scenario(value, text):
    assert axes.spelled(value) == text


def test_places_are_written_as_values():
    assert axes.spelled_at(Axis("x", "log"), -3.0) == "0.001"
    assert axes.spelled_at(Axis("x", "int"), 2.0) == "2"
    assert axes.spelled_at(Axis("x", "choice", ("a", None)), 1.0) == "null"


def test_names_are_as_short_as_they_can_be():
    names = axes.short_names(["a.rate", "b.rate", "a.b.gamma", "rate"])
    assert names == {"a.rate": "a.rate", "b.rate": "b.rate", "a.b.gamma": "gamma", "rate": "rate"}


def test_a_table_has_an_axis_per_column():
    result = searches.surface(10)._replace(space={})
    kinds = {axis.path: axis.kind for axis in axes.axes_of(result)}
    assert kinds == {
        searches.RATE: "log",
        searches.EPOCHS: "uniform",
        searches.GAMMA: "uniform",
        searches.NET: "choice",
    }
