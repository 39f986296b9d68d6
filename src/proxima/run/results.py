"""What a run leaves behind, as types: frozen, versioned, written once, read strictly.

    run.json                     RunInfo       while it runs and after: status, versions, ids, seconds
    trial_k/[<stage>/]stage.json StageResult   a stage of a trial, once it has ended and was judged
    trial_k/results.json         TrialResult   a trial, once the run has ended
    summary.json                 Summary       all trials and the intervals over them

A domain adds what only it can say as `details`, in types of its own. A file that is damaged, or of another
format, is an error in words.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import numpy as np
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError, ValidationInfo

from proxima.core.errors import ProximaError
from proxima.report import statistics
from proxima.run.files import plain, read_json, write_json

FORMAT = 1  # of all these files; one more whenever an older reader would misread them
MOST_ROWS = 12  # trials that a summary shows as text
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
REMEDY = "put the file back, or run the scenario again"
Details = tuple[type | None, type | None]  # of a trial and of a summary; None: nothing is added
Number = float | None  # a number that is not finite is null, as JSON has no such thing


def by_name(result: Any, name: str) -> Any:
    """`result["name"]` is `result.name`: in a notebook, results read like the files they are in."""
    if name not in {field.name for field in dataclasses.fields(result)}:
        raise KeyError(name)
    return getattr(result, name)


class Result:
    """What is common to all results: files are read into them strictly, and by name they can be indexed."""

    __pydantic_config__ = STRICT
    __getitem__ = by_name


R = TypeVar("R", bound=Result)


def _typed(position: int, value: Any, info: ValidationInfo) -> Any:
    """What a domain added, in the type of its own that whoever reads the file names."""
    kind = info.context[position] if info.context else None
    if value is None or kind is None:
        return value
    return _adapter(kind).validate_json(json.dumps(value))


TrialDetails = Annotated[Any, AfterValidator(partial(_typed, 0))]
SummaryDetails = Annotated[Any, AfterValidator(partial(_typed, 1))]


def _number(value: Number) -> str:
    return "–" if value is None else f"{value:,.4g}"


@dataclass(frozen=True, kw_only=True)
class Episodes(Result):
    """Episodes of one policy: what each returned, and how long it was."""

    episodes: int
    returns: tuple[Number, ...]
    lengths: tuple[int, ...]
    return_mean: Number
    return_std: Number
    return_min: Number
    return_max: Number
    length_mean: Number

    def __repr__(self) -> str:
        low, high, length = map(_number, (self.return_min, self.return_max, self.length_mean))
        return (
            f"Episodes(return {self.spread()} over {self.episodes}, from {low} to {high}, "
            f"{length} steps long)"
        )

    def spread(self) -> str:
        return f"{_number(self.return_mean)} ± {_number(self.return_std)}"


@dataclass(frozen=True, kw_only=True)
class Alarm(Result):
    """A warning that sounded: what kind, in words with what to do, and since which step of which trial."""

    kind: str
    text: str
    step: int
    trial: int


@dataclass(frozen=True, kw_only=True)
class Level(Result):
    """What a trial's policy earns on one level of its curriculum."""

    parameters: Mapping[str, float]
    beyond: bool
    """Whether it was never trained on."""
    return_mean: Number
    return_std: Number
    random: Number
    """Mean return of the random policy on the same episodes."""
    episodes: int


@dataclass(frozen=True, kw_only=True)
class Outcome(Result):
    """What judging finds out about one trial when a stage is over."""

    evaluation: Episodes | None = None
    """The trained policy; null where the stage has no episodes."""
    sampled: Episodes | None = None
    random: Episodes | None = None
    reference: Episodes | None = None
    """What the policy was before this stage."""
    baselines: Mapping[str, Number] = field(default_factory=dict)
    """Mean returns of others on the same episodes."""
    scores: Mapping[str, Number] = field(default_factory=dict)
    """In the problem's own terms; null where there is none, as of paths when no maze was solved."""
    levels: tuple[Level, ...] = ()
    """Of a curriculum, those beyond what was trained on last; none where there is no curriculum."""
    details: TrialDetails = None
    """What only the domain can say, in a type of its own."""


@dataclass(frozen=True, kw_only=True)
class StageResult(Result):
    """A stage of a trial that has ended."""

    format: Literal[1] = 1
    stage: str
    trial: int
    seed: int
    stopped: str
    steps: int
    updates: int
    episodes: int
    converged: bool
    converged_at_step: int | None
    nan_at_step: int | None
    best: Number
    compile_seconds: float
    training_seconds: float
    evaluate_seconds: float
    phases: Mapping[str, float] | None
    first: Mapping[str, Number]
    """Figures of the first evaluation."""
    last: Mapping[str, Number]
    """Figures of the last one."""
    outcome: Outcome

    def __repr__(self) -> str:
        name = self.stage or "training"
        return f"StageResult({name}, trial {self.trial}, {self.steps:,} steps, {self.stopped})"


@dataclass(frozen=True, kw_only=True)
class TrialResult(Result):
    """A trial of a run that has ended; what it is worth is what its last stage says."""

    format: Literal[1] = 1
    scenario: str
    domain: str
    algorithm: str
    run_id: str
    trial: int
    seed: int
    environment_steps: int
    updates: int
    episodes: int
    compile_seconds: float
    training_seconds: float
    steps_per_second: Number
    converged: bool
    converged_at_step: int | None
    stopped: str
    nan_at_step: int | None
    best_return: Number
    phases: Mapping[str, float] | None
    evaluation: Episodes | None
    sampled: Episodes | None
    random: Episodes | None
    reference: Episodes | None
    baselines: Mapping[str, Number]
    scores: Mapping[str, Number]
    details: TrialDetails
    stages: Mapping[str, StageResult]
    time: Mapping[str, float]
    levels: tuple[Level, ...] = ()
    mlflow_run_id: str | None = None

    def __repr__(self) -> str:
        policies = {"greedy": self.evaluation, "random": self.random}
        returns = [f"{name} {e.spread()}" for name, e in policies.items() if e is not None]
        parts = ", ".join([f"{self.environment_steps:,} steps", *returns, self.stopped])
        return f"TrialResult({self.scenario} · {self.algorithm}, trial {self.trial}: {parts})"


@dataclass(frozen=True, kw_only=True)
class Aggregate(Result):
    """A figure over trials: interquartile mean and its interval, null where it cannot be said.

    A 95 % interval of five trials or more; of four, three and two it contains the truth 88, 75 and 50 times
    in a hundred.
    """

    iqm: Number
    low: Number
    high: Number
    n: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class LevelSummary(Result):
    """A level of a curriculum over all trials."""

    parameters: Mapping[str, float]
    beyond: bool
    """Whether it was never trained on."""
    returns: Aggregate
    random: Aggregate


@dataclass(frozen=True, kw_only=True)
class Change(Result):
    """A held-out figure before a stage's first update and at its end."""

    before: Aggregate
    after: Aggregate


@dataclass(frozen=True, kw_only=True)
class Registered(Result):
    """A policy in the tracker's registry."""

    name: str
    version: str
    uri: str


@dataclass(frozen=True, kw_only=True)
class Summary(Result):
    """All trials of a run, and the intervals over them."""

    format: Literal[1] = 1
    scenario: str
    domain: str
    algorithm: str
    run_id: str
    metric: str
    """What `aggregate` is of."""
    target_reward: float | None
    converged: int
    environment_steps: int
    trials: tuple[TrialResult, ...]
    aggregate: Aggregate | None
    """Null where no stage has episodes."""
    sampled: Aggregate | None
    baselines: Mapping[str, Aggregate]
    references: Mapping[str, Episodes]
    """What fixed rules got on the episodes of the closing evaluation."""
    scores: Mapping[str, Aggregate]
    figures: Mapping[str, Change]
    """Held-out figures of the stages, named stage/figure."""
    alarms: tuple[Alarm, ...]
    details: SummaryDetails
    paths: Mapping[str, str]
    time: Mapping[str, float]
    memory_peak_mb: float
    levels: tuple[LevelSummary, ...] = ()
    """Of a curriculum, those beyond what was trained on last."""
    mlflow_run_id: str | None = None
    mlflow_uri: str | None = None
    registered: tuple[Registered, ...] = ()
    tracking_error: str | None = None

    def __repr__(self) -> str:
        """A table of the trials: their numbers by the thousand are in the fields."""
        rows = [("trial", "steps", "episodes", "greedy", "random", "stopped")]
        for trial in self.trials[:MOST_ROWS]:
            counts = f"{trial.environment_steps:,}", f"{trial.episodes:,}"
            greedy, random = (
                "–" if episodes is None else _number(episodes.return_mean)
                for episodes in (trial.evaluation, trial.random)
            )
            rows.append((str(trial.trial), *counts, greedy, random, trial.stopped))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
        if len(self.trials) > MOST_ROWS:
            lines.append(f"… and {len(self.trials) - MOST_ROWS} more")
        if (interval := self.aggregate) is not None:
            iqm, low, high = map(_number, (interval.iqm, interval.low, interval.high))
            words = statistics.interval_words(interval.n)
            lines.append(f"{self.metric}: {iqm}, {words} {low} to {high}")
        title = f"Summary({self.scenario} · {self.algorithm}, run {self.run_id})"
        return "\n".join([title, *lines, f"in {self.paths.get('run', '')}"])

    def _repr_html_(self) -> str:
        """The same in a notebook, with baselines and scores."""
        from proxima.run.notebook import summary_html

        return summary_html(self)


Status = Literal["running", "finishing", "finished", "interrupted", "failed"]


@dataclass(frozen=True, kw_only=True)
class SettingsChange(Result):
    """Settings with which a run went on that were not those of before."""

    at: str
    stage: str
    """Empty where the run has only one."""
    trial: int
    step: int
    """How far the run had come, in steps or updates of the stage."""
    before: Mapping[str, Any]
    """Dotted keys and their values."""
    after: Mapping[str, Any]

    def words(self) -> list[str]:
        """What changed from what to what."""
        pairs = {key: (self.before[key], self.after[key]) for key in self.after}
        return [f"{key} {' → '.join(map(json.dumps, pair))}" for key, pair in pairs.items()]


@dataclass(frozen=True, kw_only=True)
class RunInfo(Result):
    """What run.json holds of a run, whatever its state."""

    format: Literal[1] = 1
    run_id: str
    name: str
    domain: str
    trials: int
    started: str
    status: Status
    versions: Mapping[str, str]
    data: Mapping[str, Any] | None
    """What identifies the data it was started on; null where there is none."""
    directories: tuple[str, ...] = ()
    """Where modules that its settings name may stand: the working directory and the scenario file's."""
    training_seconds: Mapping[str, float] = field(default_factory=dict)
    """By trial and stage, those before a resume included."""
    time: Mapping[str, float] = field(default_factory=dict)
    mlflow_run_id: str | None = None
    mlflow_children: tuple[str, ...] = ()
    mlflow_uri: str | None = None
    standing: str = ""
    """Who trains what at the last checkpoint, where that is not the run's own process."""
    changes: tuple[SettingsChange, ...] = ()
    """Oldest first; the scenario is as the last one left it."""


def aggregate_of(values: Sequence[float | None]) -> Aggregate:
    """A figure over trials; one that is missing or not finite counts as failed."""
    numbers = [np.nan if value is None else value for value in values]
    return Aggregate(**statistics.aggregate(numbers))  # type: ignore[arg-type]


def described(returns: Any, lengths: Any) -> Episodes:
    """The episodes of one policy with their summary."""
    returns, lengths = np.asarray(returns, np.float64), np.asarray(lengths, np.float64)
    return Episodes(
        episodes=len(returns),
        returns=tuple(returns.tolist()),
        lengths=tuple(lengths.astype(int).tolist()),
        return_mean=float(returns.mean()),
        return_std=float(returns.std()),
        return_min=float(returns.min()),
        return_max=float(returns.max()),
        length_mean=float(lengths.mean()),
    )


def to_json(result: Any) -> dict[str, Any]:
    """A result as plain JSON holds it."""
    content: dict[str, Any] = plain(dataclasses.asdict(result))
    return content


def write(path: Path, result: Any) -> None:
    """A result's file, whole or not at all."""
    write_json(path, dataclasses.asdict(result))


def read(path: Path, kind: type[R], details: Details = (None, None)) -> R:
    """The result in a file; `details` are the types of what its domain adds to a trial and to a summary."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ProximaError(f"{path}: is damaged: expected keys and values; {REMEDY}")
    _check_format(path, content)
    try:
        adapter: TypeAdapter[R] = _adapter(cast(Any, kind))
        return adapter.validate_json(json.dumps(content), context=details)
    except ValidationError as failure:
        first, *others = failure.errors(include_url=False)
        key = ".".join(map(str, first["loc"])) or "it"
        more = f", and {len(others)} more" if others else ""
        message = f"{key}: {first['msg'].lower()}{more}"
        raise ProximaError(f"{path}: is damaged: {message}; {REMEDY}") from failure
    except RecursionError as failure:
        raise ProximaError(f"{path}: is damaged: it is nested too deeply; {REMEDY}") from failure


def json_schema(details: Mapping[str, Details]) -> dict[str, Any]:
    """The JSON schemas of results.json and summary.json, with the `details` of each domain."""
    schemas: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    for name, kind, position in (("results.json", TrialResult, 0), ("summary.json", Summary, 1)):
        schemas[name] = schema = _adapter(kind).json_schema() | {"allOf": []}
        for domain, kinds in details.items():
            if kinds[position] is not None:
                added = _adapter(kinds[position]).json_schema()
                schema["$defs"] |= added.pop("$defs", {})
                condition = {"properties": {"domain": {"const": domain}}}
                branch = {"if": condition, "then": {"properties": {"details": added}}}
                schema["allOf"].append(branch)
    return schemas


def _check_format(path: Path, content: Mapping[str, Any]) -> None:
    if "format" not in content:
        raise ProximaError(
            f"{path}: was written by proxima 0.1 or is damaged: it does not say its format, and this "
            f"version reads format {FORMAT}; install proxima 0.1 to look at it, or run the scenario again"
        )
    if content["format"] != FORMAT:
        raise ProximaError(
            f"{path}: is of format {content['format']!r}, and this version reads {FORMAT}; install the "
            "version that made it, or run the scenario again"
        )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
