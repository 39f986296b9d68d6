"""Connecting a run with those who record it besides the local files: a tracker, and spans."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proxima.core.addresses import is_masked
from proxima.core.errors import ProximaError
from proxima.track.messages import ChildRun, Plan
from proxima.track.process import start_writer
from proxima.track.store import resolve_uri
from proxima.track.tracker import (
    Attributes,
    RunIds,
    Spans,
    TelemetryConfig,
    Tracker,
    TrackingConfig,
    TrackingOutcome,
    no_spans,
    no_tracker,
)


def connect(
    config: TrackingConfig,
    name: str,
    run_id: str,
    params: Mapping[str, Any],
    trials: Sequence[int],
    *,
    stages: Sequence[str] = (),
    resume_from: RunIds | None = None,
    warn: Callable[[str], None],
) -> Tracker:
    """A tracker for run `run_id` of experiment `name` whose trials have these seeds; never waits.

    Each trial is a child run, or with `stages` one per stage; these are numbered trial by trial.

    With `resume_from` the named runs are opened again and go on. Metrics keep the values first
    logged: what a resumed trial reports a second time, at a step the store already holds for that
    metric, is left out. Parameters are not written again, since MLflow lets none change.
    """
    if not config.enabled:
        return no_tracker()

    try:
        uri = resolve_uri(config.uri)
    except ProximaError as error:
        words = f"{error}. The run goes on without tracking; the local files hold everything."
        warn(words)
        parent, known = resume_from or (None, ())
        outcome = TrackingOutcome(parent, known, (), words, None)
        return no_tracker()._replace(finish=lambda *statuses: outcome, ids=lambda: resume_from)
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


def connect_spans(
    config: TelemetryConfig, run_id: str, attributes: Attributes, warn: Callable[[str], None]
) -> Spans:
    """The spans of a run, below one that is the run itself and carries these attributes."""
    given = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    endpoint = config.otlp_endpoint or given
    if endpoint and is_masked(endpoint):  # a resumed run's
        endpoint = given
        if not endpoint:
            warn(
                f"telemetry.otlp_endpoint was stored without its password ({config.otlp_endpoint}); "
                "set OTEL_EXPORTER_OTLP_ENDPOINT. The run goes on without spans."
            )
    if not endpoint:
        return no_spans()
    from proxima.track.otlp import start_exporter  # protocol buffers take a while

    return start_exporter(endpoint, run_id, attributes, warn)
