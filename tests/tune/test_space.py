"""Ranges as functions of a number from 0 to 1."""

import math

import numpy as np
import pytest

from proxima.scenario.search import Range, read_range
from proxima.tune.space import index_of, perturbed, points_of, settings_at, unit_of, value_at


def random_range(rng) -> Range:
    """Of any kind, narrow or wide, far from 0 or about it."""
    kind = ("uniform", "log", "int", "choice")[rng.integers(4)]
    size = 10.0 ** rng.integers(-12, 13)
    if kind == "choice":
        return Range(kind, choices=tuple(range(2, 4 + int(rng.integers(9)))))
    if kind == "log":
        return Range(kind, float(size * rng.random()), float(size * (1 + 100 * rng.random())))
    if kind == "int":
        low = int(rng.integers(-1000, 1000))
        return Range(kind, float(low), float(low + rng.integers(1, 10_000)))
    low = float(size * (rng.random() - 0.5))
    return Range(kind, low, low + float(10.0 ** rng.integers(-3, 9)))


def is_inside(span: Range, value) -> bool:
    if span.kind == "choice":
        return value in span.choices
    wanted = int if span.kind == "int" else float
    return type(value) is wanted and span.low <= value <= span.high


def test_values_are_inside_their_ranges_and_of_their_type():
    rng = np.random.default_rng(0)
    for _ in range(3_000):
        span = random_range(rng)
        units = [0.0, 1.0, math.nextafter(1, 0), 5e-324, *rng.random(4).tolist()]
        values = [value_at(span, unit) for unit in units]
        values += [perturbed(span, values[4], float(1 + 10.0 ** rng.integers(-9, 300)), rng)]
        values += points_of(span, int(rng.integers(2, 9)))
        assert all(is_inside(span, value) for value in values), (span, values)


@pytest.mark.parametrize("written", ["-1e308:1e308", "log:5e-324:1e308", "int:-1e15:1e15"])
def test_the_widest_ranges(written):
    span = read_range(written)
    values = [value_at(span, unit) for unit in np.linspace(0, 1, 101)]
    assert all(span.low <= value <= span.high for value in values)
    assert values == sorted(set(values))


def test_rounding_leads_past_no_end():
    """Between neighbouring numbers the formula of a logarithmic range is often off by the last bit."""
    rng = np.random.default_rng(2)
    for _ in range(1_000):
        low, unit = rng.random(2).tolist()
        for kind in ("uniform", "log"):
            span = Range(kind, low, math.nextafter(low, 2))
            assert is_inside(span, value_at(span, unit))


def test_a_value_leads_back_to_its_place():
    rng = np.random.default_rng(1)
    for _ in range(1_000):
        span, unit = random_range(rng), float(rng.random())
        value = value_at(span, unit)
        back = unit_of(span, value)
        if span.kind in ("int", "choice"):
            assert value_at(span, back) == value
        else:
            scale = max(abs(span.low), abs(span.high))
            assert value_at(span, back) == pytest.approx(value, rel=1e-9, abs=1e-9 * scale)


def test_shares_are_equal():
    units = (np.arange(7_000) + 0.5) / 7_000
    for span in (Range("int", -3, 3), Range("choice", choices=tuple("abcdefg"))):
        values = [value_at(span, unit) for unit in units]
        assert [values.count(value) for value in dict.fromkeys(values)] == [1_000] * 7


def test_a_logarithmic_range_is_even_in_the_logarithm():
    span = Range("log", 1e-5, 1e-1)
    assert [value_at(span, unit) for unit in (0, 0.25, 0.5, 1)] == pytest.approx(
        [1e-5, 1e-4, 1e-3, 1e-1], rel=1e-12
    )


def test_points():
    assert points_of(Range("uniform", -1, 1), 5) == [-1, -0.5, 0, 0.5, 1]
    assert points_of(Range("log", 1e-5, 0.1), 2) == [1e-5, 0.1]
    assert points_of(Range("log", 1, 100), 3) == pytest.approx([1, 10, 100])
    assert points_of(Range("int", 1, 3), 5) == [1, 2, 3]
    assert points_of(Range("int", 0, 10), 4) == [0, 3, 7, 10]
    assert points_of(Range("choice", choices=(True, None, "a")), 2) == [True, None, "a"]


def test_points_of_whole_numbers_are_all_different():
    for high in range(1, 60):
        for count in range(2, 12):
            points = points_of(Range("int", 0, high), count)
            assert len(set(points)) == len(points) == min(count, high + 1)
            assert (points[0], points[-1]) == (0, high)


def test_choices_that_python_takes_for_the_same_stay_apart():
    span = Range("choice", choices=(1, True, 1.0, "1"))
    assert [index_of(span, choice) for choice in span.choices] == [0, 1, 2, 3]
    assert unit_of(span, True) == 0.375


def reached(span, value, factor=1.2):
    rng = np.random.default_rng(0)
    return {perturbed(span, value, factor, rng) for _ in range(100)}


def test_what_is_near_a_number():
    assert reached(Range("uniform", 0, 10), 6.0) == {6.0 * 1.2, 6.0 / 1.2}
    assert reached(Range("log", 1e-3, 1e-1), 0.09) == {0.1, 0.09 / 1.2}
    assert reached(Range("uniform", -10, 10), -6.0) == {-6.0 * 1.2, -6.0 / 1.2}
    assert reached(Range("int", 1, 100), 50) == {60, 42}


def test_whole_numbers_move_by_one_at_least():
    assert reached(Range("int", 0, 9), 1) == {0, 2}
    assert reached(Range("int", 0, 9), 0) == {0, 1}
    assert reached(Range("int", -9, 9), 0) == {-1, 1}
    assert reached(Range("int", -9, 9), -1) == {-2, 0}
    assert reached(Range("int", -9, 9), -1, 1.5) == {-2, 0}
    assert reached(Range("int", 0, 9), 9) == {8, 9}


def test_what_is_near_a_choice():
    span = Range("choice", choices=("a", "b", "c", "d"))
    assert reached(span, "b") == {"a", "b", "c"}
    assert reached(span, "d") == {"c", "d"}


def test_a_point_needs_a_coordinate_per_range():
    ranges = {"a": Range("uniform", 0, 1), "b": Range("int", 1, 4)}
    assert settings_at(ranges, [0.25, 0.5]) == {"a": 0.25, "b": 3}
    with pytest.raises(ValueError):
        settings_at(ranges, [0.25])
