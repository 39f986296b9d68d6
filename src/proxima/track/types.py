"""What trackers and spans are, as types: the functions that a run calls, and what comes of them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

Status = Literal["finished", "interrupted", "failed"]
STALLED_SECONDS = 60  # after so long without anything written, nobody waits any longer
Attributes = Mapping[str, str | int | float | bool]


class RunIds(NamedTuple):
    """The tracker's own names of a run and of its trials, in the trials' order."""

    parent: str
    children: tuple[str, ...]


class RegisteredModel(NamedTuple):
    """A policy in the Model Registry; the uri is what `mlflow.pyfunc.load_model` takes."""

    name: str
    version: str
    uri: str


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
    log_artifacts: Callable[[int | None, Path, str | None], None]
    """(trial, file or directory, artifact path): read later, so it must stay until `finish`."""
    register: Callable[[int, Path, Mapping[str, float]], None]
    """(trial, exported policy, metrics): a new version in the Model Registry."""
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
