"""A tracker's settings, the one that they ask for, and the one that does nothing.

A tracker copies what the local files already hold to somewhere people look at many runs side by
side. None of its functions waits for that place except `finish`, and none of them raises because
of it: a failure is said once and handed back in the outcome.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxima.core.errors import ProximaError
from proxima.track.types import RunIds, Tracker, TrackingOutcome


@dataclass(frozen=True, kw_only=True)
class TrackingConfig:
    """Where runs are recorded besides the local files."""

    enabled: bool = True
    """Record the run in MLflow; the local files are written in any case."""
    uri: str | None = None
    """MLflow server or store; null takes MLFLOW_TRACKING_URI or else the embedded sqlite file.
    A password in it is not stored: to resume, give the address again in MLFLOW_TRACKING_URI."""
    register: bool = True
    """Register a converged trial's policy in the Model Registry."""


def no_tracker() -> Tracker:
    """A tracker that records nothing."""
    outcome = TrackingOutcome(None, (), (), None, None)
    return Tracker(
        log_metrics=lambda trial, step, metrics: None,
        log_parent_metrics=lambda step, metrics: None,
        log_artifacts=lambda trial, path, artifact_path: None,
        register=lambda trial, directory, metrics: None,
        finish=lambda trial_statuses, status: outcome,
        ids=lambda: None,
    )


def failed_tracker(error: str, ids: RunIds | None) -> Tracker:
    """A tracker that records nothing, though it should have."""
    parent, children = ids or (None, ())
    outcome = TrackingOutcome(parent, children, (), error, None)
    return no_tracker()._replace(finish=lambda trial_statuses, status: outcome, ids=lambda: ids)


def warn_on_stderr(message: str) -> None:
    """Say a message where it does not mix with a command's results."""
    print(message, file=sys.stderr)


def connect(
    config: TrackingConfig,
    name: str,
    run_id: str,
    params: Mapping[str, Any],
    trials: Sequence[int],
    *,
    stages: Sequence[str] = (),
    resume_from: RunIds | None = None,
    warn: Callable[[str], None] = warn_on_stderr,
) -> Tracker:
    """A tracker for run `run_id` of experiment `name` whose trials have these seeds; never waits.

    Each trial is a child run, or with `stages` one per stage; these are numbered trial by trial.

    With `resume_from` the named runs are opened again and go on. Metrics keep the values first
    logged: what a resumed trial reports a second time, at a step the store already holds for that
    metric, is left out. Parameters are not written again, since MLflow lets none change.
    """
    if not config.enabled:
        return no_tracker()
    from proxima.track.messages import ChildRun, Plan
    from proxima.track.process import start_writer
    from proxima.track.store import resolve_uri

    try:
        uri = resolve_uri(config.uri)
    except ProximaError as error:
        words = f"{error}. The run goes on without tracking; the local files hold everything."
        warn(words)
        return failed_tracker(words, resume_from)
    texts = {key: str(value) for key, value in flatten(params).items()}
    children = [
        ChildRun(f"trial_{k}_{stage}" if stage else f"trial_{k}", k, int(seed), stage)
        for k, seed in enumerate(trials)
        for stage in (stages or ("",))
    ]
    plan = Plan(uri, name, run_id, texts, children, *(resume_from or ()))
    return start_writer(plan, config.register, warn)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested mappings under dotted names, `{"a": {"b": 1}}` as `{"a.b": 1}`."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves
