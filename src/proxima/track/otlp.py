"""Spans sent to a collector as OTLP over HTTP, one POST a second at most, from a thread of its own.

    add ─► queue ─► sender thread: wait, take all that is there ─► POST <endpoint>/v1/traces

The messages are OpenTelemetry's own (opentelemetry-proto); its SDK is left out, because it retries and
waits at the end where a run must not. What a collector did not take is kept for the next attempt, up to
MOST_WAITING spans. A collector that is down is said once.
"""

import hashlib
import os
import queue
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from proxima.core.addresses import masked, without_secrets
from proxima.track.tracker import Attributes, Spans
from proxima.track.tracker import Status as RunStatus

BATCH_SECONDS = 1.0
ANSWER_SECONDS = 2.0  # how long a collector may take to answer
MOST_WAITING = 10_000
WHOLE = "experiment"  # the span of the whole run, above all others
STATUS_CODES = {
    "finished": Status.STATUS_CODE_OK,
    "interrupted": Status.STATUS_CODE_UNSET,
    "failed": Status.STATUS_CODE_ERROR,
}


def start_exporter(
    endpoint: str, run_id: str, attributes: Attributes, warn: Callable[[str], None]
) -> Spans:
    """Spans that go to a collector."""
    exporter = Exporter(endpoint, warn)
    # A run that is resumed goes on in the trace it began.
    trace_id = hashlib.sha256(run_id.encode()).digest()[:16]
    whole_id, started = secrets.token_bytes(8), time.time_ns()

    def put(name: str, start: int, end: int, attributes: Attributes, **more: Any) -> None:
        span = Span(
            trace_id=trace_id,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start,
            end_time_unix_nano=end,
            attributes=_key_values(attributes),
            **more,
        )
        exporter.queue.put(span)

    def add(name: str, start: int, end: int, attributes: Attributes) -> None:
        put(name, start, end, attributes, span_id=secrets.token_bytes(8), parent_span_id=whole_id)

    def finish(status: RunStatus) -> None:
        about = {"run_id": run_id, "status": status, **attributes}
        code = Status(code=STATUS_CODES[status])
        put(WHOLE, started, time.time_ns(), about, span_id=whole_id, status=code)
        exporter.close()

    return Spans(add, finish)


class Exporter:
    """Owns the thread that sends what is in its queue."""

    def __init__(self, endpoint: str, warn: Callable[[str], None]) -> None:
        self._endpoint, self._warn = endpoint, warn
        self._url = endpoint.rstrip("/").removesuffix("/v1/traces") + "/v1/traces"
        self._failed = False
        self.queue: queue.SimpleQueue[Span | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="otlp-exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send what is left, and wait for that no longer than for one answer."""
        self._closing.set()
        self.queue.put(None)
        self._thread.join(ANSWER_SECONDS)

    def _work(self) -> None:
        waiting: list[Span] = []
        going = True
        while going:
            arrived = [self.queue.get()]
            self._closing.wait(BATCH_SECONDS)
            with suppress(queue.Empty):
                while True:
                    arrived.append(self.queue.get_nowait())
            going = None not in arrived
            waiting += [span for span in arrived if span is not None]
            waiting = waiting[-MOST_WAITING:]
            try:
                self._send(waiting)
                waiting = []
            except Exception as error:  # whatever it is: a run goes on without its spans
                self._fail(error)

    def _send(self, spans: list[Span]) -> None:
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        name = os.environ.get("OTEL_SERVICE_NAME") or "proxima"
        resource.resource.attributes.extend(_key_values({"service.name": name}))
        scope = resource.scope_spans.add()
        scope.scope.name, scope.scope.version = "proxima", version("proxima")
        scope.spans.extend(spans)
        # OTEL_EXPORTER_OTLP_HEADERS asks to send more along, key=value,key=value
        pairs = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")
        split = (pair.partition("=") for pair in pairs if "=" in pair)
        headers = {key.strip(): unquote(value.strip()) for key, _, value in split}
        headers = {"Content-Type": "application/x-protobuf"} | headers
        post = urllib.request.Request(self._url, request.SerializeToString(), headers)
        with urllib.request.urlopen(post, timeout=ANSWER_SECONDS) as answer:
            answer.read()

    def _fail(self, error: Exception) -> None:
        if self._failed:
            return
        self._failed = True
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        with suppress(Exception):  # a console that cannot be written to is no reason to stop
            reason = without_secrets(str(reason), self._endpoint)
            self._warn(
                f"Spans do not arrive at {masked(self._endpoint)} ({reason}); the run goes on. "
                "Is a collector listening there for OTLP over HTTP?"
            )


def _key_values(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any_value(value)) for key, value in attributes.items()]


def _any_value(value: str | int | float | bool) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=str(value))
