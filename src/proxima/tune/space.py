"""A range as a function of a number from 0 to 1, and back; and what is near a value in it."""

import math
from collections.abc import Iterable
from typing import cast

import numpy as np

from proxima.scenario.search import Range, Value
from proxima.tune.method import Ranges, Settings


def settings_at(ranges: Ranges, units: Iterable[float]) -> Settings:
    """The settings at a point of the unit cube, which has one coordinate per range."""
    spans = zip(ranges.items(), units, strict=True)
    return {path: value_at(span, float(unit)) for (path, span), unit in spans}


def value_at(span: Range, unit: float) -> Value:
    """The value at `unit`, from 0 to 1; whole numbers and choices have equal shares."""
    if span.kind == "choice":
        return span.choices[_share(unit, len(span.choices))]
    if span.kind == "int":
        return int(span.low) + _share(unit, _whole_numbers(span))
    return _between(span, unit)


def unit_of(span: Range, value: Value) -> float:
    """Where a value is between 0 and 1: the middle of its share for whole numbers and choices."""
    if span.kind == "choice":
        return (index_of(span, value) + 0.5) / len(span.choices)
    number = cast(float, value)
    if span.kind == "int":
        return (number - span.low + 0.5) / _whole_numbers(span)
    if span.kind == "log":
        low, high, number = math.log(span.low), math.log(span.high), math.log(number)
    else:
        low, high = span.low, span.high
    return (number - low) / (high - low)


def points_of(span: Range, count: int) -> list[Value]:
    """`count` values at equal distances, both ends among them; of a choice all values."""
    if span.kind == "choice":
        return list(span.choices)
    if span.kind == "int":
        count = min(count, _whole_numbers(span))
    points = [_between(span, step / (count - 1)) for step in range(count)]
    return [round(point) for point in points] if span.kind == "int" else list(points)


def perturbed(span: Range, value: Value, factor: float, rng: np.random.Generator) -> Value:
    """A value nearby: a number multiplied or divided by `factor`, a choice as it is or its neighbour."""
    if span.kind == "choice":
        index = index_of(span, value) + int(rng.integers(-1, 2))
        return span.choices[min(max(index, 0), len(span.choices) - 1)]
    number = cast(float, value)
    is_multiplied = rng.random() < 0.5
    moved = min(max(number * factor if is_multiplied else number / factor, span.low), span.high)
    if span.kind != "int":
        return moved
    whole = round(moved)
    if whole == number:  # too small to be changed by the factor
        whole += 1 if is_multiplied == (number >= 0) else -1
    return min(max(whole, int(span.low)), int(span.high))


def index_of(span: Range, value: Value) -> int:
    """The index of a choice; not by equality, by which True is 1."""
    return [repr(choice) for choice in span.choices].index(repr(value))


def _between(span: Range, unit: float) -> float:
    """From `low` to `high`, exact at both ends; evenly, or evenly in the logarithm."""
    if span.kind == "log":
        value = math.pow(span.low, 1 - unit) * math.pow(span.high, unit)
    else:
        value = span.low * (1 - unit) + span.high * unit
    return min(max(value, span.low), span.high)  # rounding may lead past an end


def _whole_numbers(span: Range) -> int:
    return int(span.high) - int(span.low) + 1


def _share(unit: float, count: int) -> int:
    """Which of `count` equal shares holds `unit`; the last one also holds 1."""
    return min(int(unit * count), count - 1)
