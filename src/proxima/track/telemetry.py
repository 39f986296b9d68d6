"""What a run tells of itself while it runs, besides its results: its settings, and spans.

A span says what a run was doing from when to when. Spans go to a collector by OTLP (`otlp.py`), or
nowhere; as with a tracker, adding one never waits and never raises.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from proxima.track.tracker import Status

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, kw_only=True)
class TelemetryConfig:
    """What is measured and sent besides the metrics of every chunk."""

    phases: bool = False
    """When training has ended, measure how long rollout, environments, acting and learning take."""
    otlp_endpoint: str | None = None
    """Collector for spans, http://localhost:4318 for example; null takes OTEL_EXPORTER_OTLP_ENDPOINT."""


class Spans(NamedTuple):
    """The functions a run calls."""

    add: Callable[[str, int, int, Attributes], None]
    """(name, start, end, attributes): something that has ended, times in nanoseconds since 1970."""
    finish: Callable[[Status], None]
    """(the run's status): ends the span of the whole run; waits a moment for what is left to go out."""


def no_spans() -> Spans:
    """Spans that go nowhere."""
    return Spans(lambda name, start, end, attributes: None, lambda status: None)
