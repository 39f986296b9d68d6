"""How a setting's values are laid out on a line, cut into bins, and written."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.scenario.search import Kind, Range, Value, read_range
from proxima.tune.results import SearchResult

FEW = 6  # different numbers up to which each has a bin of its own, as on a grid
WIDE = 100.0  # largest over smallest from which on numbers of no known range are laid out as logarithms
LONGEST = 32  # letters of a setting's value that are shown


class Axis(NamedTuple):
    """The line on which a setting's values lie: as they are, as logarithms, or as numbered choices."""

    path: str
    kind: Kind
    choices: tuple[Value, ...] = ()  # of the kind "choice", in their order on the line


class Bins(NamedTuple):
    """A cut of an axis; a bin may have no values."""

    labels: NDArray[np.int64]  # which bin each value is in
    edges: NDArray[np.float64]  # where bins begin and end, one more than there are bins

    @property
    def size(self) -> int:
        return len(self.edges) - 1


def axes_of(result: SearchResult) -> tuple[Axis, ...]:
    """An axis per searched setting; with a table of configurations, per column."""
    named = (path for each in result.configurations for path in each.settings)
    paths = dict.fromkeys((*result.space, *named))
    return tuple(axis_of(p, result.space.get(p, ""), column(result, p)) for p in paths)


def column(result: SearchResult, path: str) -> list[Value]:
    """A setting's value in every configuration."""
    return [each.settings.get(path) for each in result.configurations]


def axis_of(path: str, written: str, values: Sequence[Value]) -> Axis:
    """The axis of a setting with such a range, or of a kind that its values suggest."""
    read = read_range(written)
    if not all(map(_is_number, values)) or (isinstance(read, Range) and read.kind == "choice"):
        known = read.choices if isinstance(read, Range) else ()
        different = {_identity(value): value for value in (*known, *values)}
        return Axis(path, "choice", tuple(different.values()))
    numbers = [float(value) for value in values if _is_number(value)]  # type: ignore[arg-type]
    least, most = min(numbers, default=0.0), max(numbers, default=0.0)
    if not isinstance(read, Range):
        return Axis(path, "log" if least > 0 and most >= WIDE * least else "uniform")
    return Axis(path, "uniform" if read.kind == "log" and least <= 0 < len(numbers) else read.kind)


def positions(axis: Axis, values: Iterable[Value]) -> NDArray[np.float64]:
    """Where values lie on their axis; NaN for one that has no place on it."""
    if axis.kind == "choice":
        order = {_identity(choice): index for index, choice in enumerate(axis.choices)}
        return np.array([order.get(_identity(value), np.nan) for value in values], dtype=float)
    numbers = np.array([v if _is_number(v) else np.nan for v in values], dtype=float)
    if axis.kind != "log":
        return numbers
    return np.log10(np.where(numbers > 0, numbers, np.nan))


def cut(axis: Axis, places: NDArray[np.float64], most: int) -> Bins:
    """Bins of equally many values, at most so many; a bin for each choice and each of a few numbers."""
    if axis.kind == "choice":
        return Bins(places.astype(int), np.arange(0.0, len(axis.choices) + 1) - 0.5)
    different = np.unique(places)
    if len(different) <= max(FEW, most):
        middles = (different[1:] + different[:-1]) / 2
        gap = np.diff(different).min(initial=np.inf) / 2 if len(different) > 1 else 0.5
        edges = np.array([different[0] - gap, *middles, different[-1] + gap])
        return Bins(np.searchsorted(different, places), edges)
    # edges are values themselves, so that every bin has the value that it begins with
    shares = np.linspace(0, 1, most + 1)
    edges = np.unique(np.quantile(places, shares, method="inverted_cdf"))
    return Bins(np.searchsorted(edges[1:-1], places, side="right"), edges)


def spelled(value: Value) -> str:
    """A setting's value as one writes it in a scenario, in a few digits."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:.4g}".replace("e-0", "e-").replace("e+", "e").replace("e0", "e")
    text = f'"{value}"' if isinstance(value, str) and _looks_otherwise(value) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def spelled_at(axis: Axis, place: float) -> str:
    """What is written at a place on an axis."""
    if axis.kind == "choice":
        return spelled(axis.choices[round(place)])
    value = 10**place if axis.kind == "log" else place
    return f"{value:.0f}" if axis.kind == "int" else spelled(float(value))


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Paths by as few of their last words as tell them apart: learning_rate, not algorithm.learning_rate."""
    paths = list(paths)
    names = {}
    for path in paths:
        words = path.split(".")
        tails = [".".join(words[-count:]) for count in range(1, len(words) + 1)]
        unique = (t for t in tails if sum(f".{p}".endswith(f".{t}") for p in paths) == 1)
        names[path] = next(unique, path)
    return names


def _looks_otherwise(text: str) -> bool:
    """Whether a text would be read as something else without its quotes."""
    try:
        return text in ("null", "true", "false", "") or math.isfinite(float(text))
    except ValueError:
        return False


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _identity(value: Value) -> tuple[bool, Value]:
    """Tells true from 1, which are equal in Python, but not 1 from 1.0."""
    return isinstance(value, bool), value
