"""What a run and its tracking process say to each other: one JSON line each, `[kind, *fields]`.

Fields are plain: text, numbers, lists and mappings of those. NaN and the infinities are written
as Python's `json` writes them, since both ends are Python.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

from proxima.track.tracker import Candidate, FinishedRun, RegisteredModel, RunIds, Status


class ChildRun(NamedTuple):
    """A run below the whole: a trial, or one stage of it."""

    name: str
    trial: int
    seed: int
    stage: str = ""


class Plan(NamedTuple):
    """To the process, first: what to open. Parameters are flat text."""

    uri: str
    name: str
    run_id: str
    params: Mapping[str, str]
    children: Sequence[ChildRun]
    # Tags of every run, MLflow's own among them: what runs, by whom, started how.
    about: Mapping[str, str]
    resume_parent: str | None = None
    resume_children: Sequence[str] = ()


class Metrics(NamedTuple):
    """To the process: numbers of a trial, or (None) of the whole, stamped in milliseconds."""

    trial: int | None
    step: int
    timestamp: int
    values: Mapping[str, float]


class FinishedRuns(NamedTuple):
    """To the process: runs below the whole, each with all there is to it."""

    runs: Sequence[FinishedRun]


class Artifacts(NamedTuple):
    """To the process: a file or directory, by its absolute path."""

    trial: int | None
    path: str
    artifact_path: str | None


class Registration(NamedTuple):
    """To the process: an exported policy for the Model Registry."""

    trial: int
    candidate: Candidate


class Finish(NamedTuple):
    """To the process, last: how the trials and the run ended."""

    trials: Sequence[Status]
    parent: Status


class Progress(NamedTuple):
    """From the process: something was written."""


class Warned(NamedTuple):
    """From the process: words for the user."""

    text: str


class Failed(NamedTuple):
    """From the process: words for the user; nothing more will be written."""

    error: str


class Finished(NamedTuple):
    """From the process, last: all that could be done is done."""


Work = Metrics | FinishedRuns | Artifacts | Registration | Finish
# RunIds: the runs are open; RegisteredModel: a policy is in the Model Registry
Answer = RunIds | RegisteredModel | Progress | Warned | Failed | Finished
Message = Plan | Work | Answer
KINDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """The message as a line."""
    fields = json.dumps([type(message).__name__, *message], default=int)  # NumPy's integers
    return fields.encode() + b"\n"


def decode(line: bytes) -> Any:
    """The message of a line."""
    kind, *fields = json.loads(line)
    message = KINDS[kind](*fields)
    if isinstance(message, Plan):  # JSON has lists only
        return message._replace(children=[ChildRun(*child) for child in message.children])
    if isinstance(message, FinishedRuns):
        return FinishedRuns([FinishedRun(*run) for run in message.runs])
    if isinstance(message, Registration):
        return message._replace(candidate=Candidate(*message.candidate))
    return message
