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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from proxima.core.errors import ProximaError
from proxima.report import statistics
from proxima.run.files import plain, read_json, write_json

FORMAT = 1  # of all these files; one more whenever an older reader would misread them
MOST_ROWS = 12  # trials that a summary shows as text
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
REMEDY = "put the file back, or run the scenario again"
Details = tuple[type | None, type | None]  # of a trial and of a summary; None: nothing is added
Number = float | None  # a number that is not finite is null, as JSON has no such thing


def by_name(record: Any, name: str) -> Any:
    """`record["name"]` is `record.name`: in a notebook, results read like the files they are in."""
    if name not in {each.name for each in dataclasses.fields(record)}:
        raise KeyError(name)
    return getattr(record, name)


def text_of(record: Any) -> str:
    """A result in a line, a summary as a table: their numbers by the thousand are in the fields."""
    return _TEXTS[type(record).__name__](record)


def _episodes_text(episodes: "Episodes") -> str:
    spread = f"return {_number(episodes.return_mean)} ± {_number(episodes.return_std)}"
    return (
        f"Episodes({spread} over {episodes.episodes}, from {_number(episodes.return_min)} to "
        + (f"{_number(episodes.return_max)}, {_number(episodes.length_mean)} steps long)")
    )


def _stage_text(stage: "StageResult") -> str:
    return (
        f"StageResult({stage.stage or 'training'}, trial {stage.trial}, {stage.steps:,} steps, "
        f"{stage.stopped})"
    )


def _trial_text(trial: "TrialResult") -> str:
    returns = (
        f"{name} {_number(each.return_mean)} ± {_number(each.return_std)}"
        for name, each in (("greedy", trial.evaluation), ("random", trial.random))
        if each is not None
    )
    parts = [f"{trial.environment_steps:,} steps", *returns, trial.stopped]
    return f"TrialResult({trial.scenario} · {trial.algorithm}, trial {trial.trial}: {', '.join(parts)})"


def _summary_text(summary: "Summary") -> str:
    lines = [f"Summary({summary.scenario} · {summary.algorithm}, run {summary.run_id})"]
    rows: list[tuple[str, ...]] = [("trial", "steps", "episodes", "greedy", "random", "stopped")]
    for trial in summary.trials[:MOST_ROWS]:
        means = (
            "–" if each is None else _number(each.return_mean)
            for each in (trial.evaluation, trial.random)
        )
        counts = f"{trial.environment_steps:,}", f"{trial.episodes:,}"
        rows.append((str(trial.trial), *counts, *means, trial.stopped))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    if len(summary.trials) > MOST_ROWS:
        lines.append(f"… and {len(summary.trials) - MOST_ROWS} more")
    if summary.aggregate is not None:
        interval = summary.aggregate
        lines.append(
            f"{summary.metric}: {_number(interval.iqm)}, 95 % interval {_number(interval.low)} to "
            f"{_number(interval.high)}"
        )
    return "\n".join([*lines, f"in {summary.paths.get('run', '')}"])


def _number(value: "Number") -> str:
    return "–" if value is None else f"{value:,.4g}"


_TEXTS: dict[str, Callable[[Any], str]] = {
    "Episodes": _episodes_text,
    "StageResult": _stage_text,
    "TrialResult": _trial_text,
    "Summary": _summary_text,
}


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Episodes:
    """Episodes of one policy: what each returned, and how long it was."""

    episodes: int
    returns: tuple[Number, ...]
    lengths: tuple[int, ...]
    return_mean: Number
    return_std: Number
    return_min: Number
    return_max: Number
    length_mean: Number

    __getitem__ = by_name
    __repr__ = text_of


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A warning that sounded: what kind, in words with what to do, and since which step of which trial."""

    kind: str
    text: str
    step: int
    trial: int

    __getitem__ = by_name


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Outcome:
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
    details: Any = None
    """What only the domain can say, in a type of its own."""

    __getitem__ = by_name


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class StageResult:
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

    __getitem__ = by_name
    __repr__ = text_of


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class TrialResult:
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
    details: Any
    stages: Mapping[str, StageResult]
    time: Mapping[str, float]
    mlflow_run_id: str | None = None

    __getitem__ = by_name
    __repr__ = text_of


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """A figure over trials: interquartile mean and its 95 % interval, null where it cannot be said."""

    iqm: Number
    low: Number
    high: Number
    n: int
    failed: int

    __getitem__ = by_name


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Change:
    """A held-out figure before a stage's first update and at its end."""

    before: Aggregate
    after: Aggregate

    __getitem__ = by_name


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Registered:
    """A policy in the tracker's registry."""

    name: str
    version: str
    uri: str

    __getitem__ = by_name


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class Summary:
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
    details: Any
    paths: Mapping[str, str]
    time: Mapping[str, float]
    memory_peak_mb: float
    mlflow_run_id: str | None = None
    mlflow_uri: str | None = None
    registered: tuple[Registered, ...] = ()
    tracking_error: str | None = None

    __getitem__ = by_name
    __repr__ = text_of


Status = Literal["running", "finishing", "finished", "interrupted", "failed"]


@with_config(STRICT)
@dataclass(frozen=True, kw_only=True)
class RunInfo:
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

    __getitem__ = by_name


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


def to_json(record: Any) -> dict[str, Any]:
    """A result as plain JSON holds it."""
    return plain(dataclasses.asdict(record))


def write(path: Path, record: Any) -> None:
    """A result's file, whole or not at all."""
    write_json(path, to_json(record))


def read(path: Path, kind: Any, details: Details = (None, None)) -> Any:
    """The result in a file; `details` are the types of what its domain adds to a trial and to a summary."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ProximaError(f"{path}: is damaged: expected keys and values; {REMEDY}")
    _check_format(path, content)
    try:
        return _with_details(_adapter(kind).validate_json(json.dumps(content)), details)
    except (ValidationError, RecursionError) as failure:
        words = _first_words(failure)
        raise ProximaError(f"{path}: is damaged: {words}; {REMEDY}") from failure


def json_schema(details: Mapping[str, Details]) -> dict[str, Any]:
    """The JSON schemas of results.json and summary.json, with the `details` of each domain.

    `details`: by domain, the type of a trial's and of a summary's.
    """
    trial, summary = (_adapter(kind).json_schema() for kind in (TrialResult, Summary))
    for schema, position in ((trial, 0), (summary, 1)):
        definitions = schema.setdefault("$defs", {})
        schema["allOf"] = []
        for domain, kinds in details.items():
            kind = kinds[position]
            if kind is None:
                continue
            added = _adapter(kind).json_schema()
            definitions |= added.pop("$defs", {})
            schema["allOf"].append(
                {
                    "if": {"properties": {"domain": {"const": domain}}},
                    "then": {"properties": {"details": added}},
                }
            )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "results.json": trial,
        "summary.json": summary,
    }


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


def _with_details(record: Any, details: Details) -> Any:
    """The record with `details` in the domain's types, those of its trials and stages too."""
    if isinstance(record, RunInfo):
        return record
    if isinstance(record, StageResult):
        return dataclasses.replace(record, outcome=_with_details(record.outcome, details))
    of_trial, of_all = details
    if isinstance(record, Summary):
        trials = tuple(_with_details(trial, details) for trial in record.trials)
        return dataclasses.replace(record, trials=trials, details=_typed(record.details, of_all))
    if isinstance(record, TrialResult):
        stages = {name: _with_details(stage, details) for name, stage in record.stages.items()}
        record = dataclasses.replace(record, stages=stages)
    return dataclasses.replace(record, details=_typed(record.details, of_trial))


def _typed(value: Any, kind: type | None) -> Any:
    if value is None or kind is None:
        return value
    return _adapter(kind).validate_json(json.dumps(value))


def _first_words(failure: Exception) -> str:
    """The first thing that is wrong, by its path."""
    if not isinstance(failure, ValidationError):
        return "it is nested too deeply"
    first, *others = failure.errors(include_url=False)
    where = ".".join(map(str, first["loc"])) or "it"
    more = f", and {len(others)} more" if others else ""
    return f"{where}: {first['msg'].lower()}{more}"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
