"""What a run tells of itself while it runs, besides its results: its settings, and spans.

A span says what a run was doing from when to when. Spans go to a collector by OTLP (`otlp.py`), or
nowhere; as with a tracker, adding one never waits and never raises.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from proxima.core.addresses import is_masked
from proxima.track.tracker import warn_on_stderr
from proxima.track.types import Attributes, Spans


@dataclass(frozen=True, kw_only=True)
class TelemetryConfig:
    """What is measured and sent besides the metrics of every chunk."""

    phases: bool = False
    """When training has ended, measure how long rollout, environments, acting and learning take."""
    otlp_endpoint: str | None = None
    """Collector for spans, http://localhost:4318 for example; null takes OTEL_EXPORTER_OTLP_ENDPOINT."""


def no_spans() -> Spans:
    """Spans that go nowhere."""
    return Spans(lambda name, start, end, attributes: None, lambda status: None)


def connect_spans(
    config: TelemetryConfig,
    run_id: str,
    attributes: Attributes,
    warn: Callable[[str], None] = warn_on_stderr,
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
    from proxima.track.otlp import start_exporter

    return start_exporter(endpoint, run_id, attributes, warn)
