"""What a run tells of itself while it runs, besides its files: to a tracker, and as spans.

A tracker copies what the local files already hold to somewhere people look at many runs side by
side. A span says what a run was doing from when to when; spans go to a collector by OTLP. None of
the functions waits for their destination except `finish`, and none raises because of it: a
failure is said once and handed back in the outcome.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

Status = Literal["finished", "interrupted", "failed"]
Attributes = Mapping[str, str | int | float | bool]
STALLED_SECONDS = 60  # after so long without anything written, nobody waits any longer


@dataclass(frozen=True, kw_only=True)
class TrackingConfig:
    """Where runs are recorded besides the local files."""

    enabled: bool = True
    """Record the run in MLflow; the local files are written in any case."""
    uri: str | None = None
    """MLflow server or store; null takes MLFLOW_TRACKING_URI or else the embedded sqlite file.
    A password in it is not stored: to resume, give the address again in MLFLOW_TRACKING_URI."""
    register: bool = True
    """Register a policy in the Model Registry: the best that reached the target, or where there is no
    target the best in evaluations during training."""


@dataclass(frozen=True, kw_only=True)
class TelemetryConfig:
    """What is measured and sent besides the metrics of every chunk."""

    phases: bool = False
    """When training has ended, measure how long rollout, environments, acting and learning take."""
    otlp_endpoint: str | None = None
    """Collector for spans, http://localhost:4318 for example; null takes OTEL_EXPORTER_OTLP_ENDPOINT."""


class RunIds(NamedTuple):
    """The tracker's own names of a run and of its trials, in the trials' order."""

    parent: str
    children: tuple[str, ...]


class RegisteredModel(NamedTuple):
    """A policy in the Model Registry; the uri is what `mlflow.pyfunc.load_model` takes."""

    name: str
    version: str
    uri: str


class Candidate(NamedTuple):
    """A policy to be registered, and what is said of it."""

    directory: str  # of an exported policy, its absolute path
    description: str
    tags: Mapping[str, str]
    score: float | None  # higher is better; the version with the highest is the model's champion


class FinishedRun(NamedTuple):
    """A run below the whole of which the tracker hears when it is over; times are milliseconds since 1970."""

    number: int  # below the whole, where no two runs have the same
    name: str
    params: Mapping[str, str]
    # By name: steps, and the finite value at each.
    metrics: Mapping[str, Sequence[tuple[int, float]]]
    tags: Mapping[str, str]
    start: int
    end: int  # also the time of its metrics


class TrackingOutcome(NamedTuple):
    """What became of a run's tracking; `error` is None when everything arrived."""

    run_id: str | None
    child_run_ids: tuple[str, ...]
    registered: tuple[RegisteredModel, ...]
    error: str | None
    uri: str | None


class Tracker(NamedTuple):
    """The functions a run calls; trial None means the run as a whole."""

    log_metrics: Callable[[int, int, Mapping[str, float]], None]
    """(trial, step, metrics): numbers of one trial at an environment step."""
    log_parent_metrics: Callable[[int, Mapping[str, float]], None]
    """(step, metrics): numbers over all trials."""
    log_finished: Callable[[Sequence[FinishedRun]], None]
    """(runs): whole runs below this one; those whose number it had before it was resumed are left out."""
    log_artifacts: Callable[[int | None, Path, str | None], None]
    """(trial, file or directory, artifact path): read later, so it must stay until `finish`."""
    register: Callable[[int, Candidate], None]
    """(trial, exported policy): a new version in the Model Registry."""
    finish: Callable[[Sequence[Status], Status], TrackingOutcome]
    """(trials' statuses, the run's status): waits until all is written, and says how it went."""
    ids: Callable[[], RunIds | None]
    """The run ids, or None as long as they are not known; never waits."""


class Spans(NamedTuple):
    """The functions a run calls."""

    add: Callable[[str, int, int, Attributes], None]
    """(name, start, end, attributes): something that has ended, times in nanoseconds since 1970."""
    finish: Callable[[Status], None]
    """(the run's status): ends the span of the whole run; waits a moment for what is left to go out."""


def no_tracker() -> Tracker:
    """A tracker that records nothing."""
    outcome = TrackingOutcome(None, (), (), None, None)
    return Tracker(
        log_metrics=lambda trial, step, metrics: None,
        log_parent_metrics=lambda step, metrics: None,
        log_finished=lambda runs: None,
        log_artifacts=lambda trial, path, artifact_path: None,
        register=lambda trial, candidate: None,
        finish=lambda trial_statuses, status: outcome,
        ids=lambda: None,
    )
