"""The section `search`: which settings a search varies, how it draws them, and what it calls better."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt, Interval

from proxima.core.faults import Fault
from proxima.yaml import shown

Kind = Literal["uniform", "log", "int", "choice"]
KINDS: tuple[Kind, ...] = ("uniform", "log", "int", "choice")
FORMS = "LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, or choice:A,B,C"
Value = float | int | str | bool | None


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """A search over settings: `proxima tune` runs it, an experiment takes no notice of it."""

    space: Mapping[str, Any] = field(default_factory=dict)
    """The settings that vary, by dotted path: LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, choice:A,B or a list."""
    method: Literal["auto", "random", "grid", "sobol", "asha", "tpe", "cma-es", "pbt", "table"] = (
        "auto"
    )
    """How configurations are drawn and dropped; auto: asha, or random for language."""
    path: str | None = None
    """With method table: a CSV file whose columns are dotted paths, a configuration per row."""
    configs: Annotated[int, Interval(ge=1, le=100_000)] = 64
    """Configurations; with pbt, members of the population. grid and table say themselves how many."""
    seeds: Annotated[int, Interval(ge=1, le=1_000)] = 1
    """Trainings per configuration, each with a seed of its own; all configurations have the same seeds."""
    seed: Annotated[int, Interval(ge=0, lt=2**31)] = 0
    """Seed of what the method draws."""
    metric: str | None = None
    """The recorded metric that is compared; null takes that of the learning curve, eval/return_mean."""
    objective: Literal["final", "best", "area", "steps_to_target"] = "final"
    """What of the metric's curve counts: its last value, its best, its mean, or when it met the target."""
    direction: Literal["maximise", "minimise"] = "maximise"
    """Which values of the metric are better."""
    evaluations: Annotated[int, Interval(ge=1, le=1_000)] = 10
    """Evaluations of a whole training; a lane can go on with another configuration after each."""
    lanes: Annotated[int, Interval(ge=1, le=10_000)] = 16
    """Trainings that advance side by side in one program."""
    points: Annotated[int, Ge(2)] = 5
    """With method grid: values per number."""
    reduction: Annotated[int, Ge(2)] = 3
    """With method asha: of so many configurations one goes on to a budget so many times as large."""
    generation: Annotated[int, Ge(2)] = 16
    """With tpe and cma-es: configurations that are drawn together, before the results of each other."""
    replaced: Annotated[float, Interval(gt=0, le=0.5)] = 0.2
    """With method pbt: the share of the population that is replaced by copies of the best such share."""
    perturbation: Annotated[float, Gt(1)] = 1.2
    """With method pbt: a copy's settings are multiplied or divided by this."""
    confirm: Annotated[int, Ge(0)] = 3
    """Configurations that are run again on new seeds, to choose the best; 0 leaves that out."""


class Range(NamedTuple):
    """The values that a setting may have: numbers from `low` to `high`, or one of `choices`."""

    kind: Kind
    low: float = 0.0
    high: float = 0.0
    choices: tuple[Value, ...] = ()

    def words(self) -> str:
        """As it is written in a scenario."""
        if self.kind == "choice":
            return "choice:" + ",".join(map(_written, self.choices))
        ends = f"{self.low:g}:{self.high:g}"
        return ends if self.kind == "uniform" else f"{self.kind}:{ends}"


def read_range(written: Any) -> Range | str:
    """The range that is written, or what is wrong with it."""
    if isinstance(written, list | tuple):
        return _choices(tuple(written))
    if not isinstance(written, str):
        return f"{shown(written)} is no range: write {FORMS}"
    kind, _, rest = written.partition(":")
    if kind == "choice":
        return _choices(tuple(_value(part.strip()) for part in rest.split(",")))
    if kind not in KINDS:
        kind, rest = "uniform", written
    ends = [_number(part) for part in rest.split(":")]
    if len(ends) != 2 or any(end is None for end in ends):
        return f"{shown(written)} is no range: write {FORMS}"
    return _numbers(kind, *ends)  # type: ignore[arg-type]


def _choices(values: tuple[Value, ...]) -> Range | str:
    if len(values) < 2 or len({repr(value) for value in values}) < len(values):
        return "needs at least two different values to choose from"
    return Range("choice", choices=values)


def _numbers(kind: Kind, low: float, high: float) -> Range | str:
    ends = f"{low:g}:{high:g}"
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{ends} is no range: both ends must be finite"
    if low >= high:
        return f"{ends} is empty: the first end must be below the second"
    if kind == "log" and low <= 0:
        return f"log:{ends} is not allowed: a logarithmic range begins above 0"
    if kind == "int" and not (low.is_integer() and high.is_integer()):
        return f"int:{ends} is not allowed: both ends must be whole numbers"
    return Range(kind, low, high)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _value(text: str) -> Value:
    """A choice as it would be read from YAML."""
    words = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    number = _number(text)
    if number is None:
        return text
    is_whole = number.is_integer() and text.lstrip("+-").isdigit()
    return int(number) if is_whole else number


def _written(value: Value) -> str:
    words = {True: "true", False: "false", None: "null"}
    return words[value] if value is None or isinstance(value, bool) else f"{value}"


def search_faults(config: SearchConfig) -> Iterator[Fault]:
    """Ranges that are none, and settings of methods that contradict each other."""
    for path, written in config.space.items():
        problem = read_range(written)
        if isinstance(problem, str):
            yield Fault((("search", "space", path),), problem)
    if (config.method == "table") != (config.path is not None):
        text = "method table needs a file of configurations in search.path, and no other method reads one"
        yield Fault((("search", "path"), ("search", "method")), text)


def ranges_of(config: SearchConfig) -> dict[str, Range]:
    """The ranges of a config that has no faults, by path."""
    read = {path: read_range(written) for path, written in config.space.items()}
    return {path: each for path, each in read.items() if isinstance(each, Range)}
