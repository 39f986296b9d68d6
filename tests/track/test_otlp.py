"""Spans at a real collector, and what happens where there is none."""

import socket
import subprocess
import sys

import pytest
from collectors import attributes_of, collector
from tracking import wait_until

from proxima.track import otlp
from proxima.track.process import connect_spans
from proxima.track.tracker import TelemetryConfig

RUN = "20260101-000000-aaaa"
ABOUT = {"scenario": "cartpole", "trials": 2}
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No waiting for more spans, and nothing from the environment of whoever tests."""
    monkeypatch.setattr(otlp, "BATCH_SECONDS", 0.01)
    for name in ("ENDPOINT", "HEADERS"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)


def spans_to(endpoint, said, run=RUN):
    return connect_spans(TelemetryConfig(otlp_endpoint=endpoint), run, ABOUT, said.append)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_spans_arrive_below_the_run():
    said: list[str] = []
    with collector() as collected:
        spans = spans_to(collected.endpoint, said)
        spans.add("train", 5 * SECOND, 7 * SECOND, {"step": 64, "share": 0.5, "last": True})
        spans.finish("finished")
    (train,), (whole,) = collected.named("train"), collected.named("experiment")
    assert said == [] and len(collected.spans) == 2
    assert (train.start_time_unix_nano, train.end_time_unix_nano) == (5 * SECOND, 7 * SECOND)
    assert attributes_of(train) == {"step": 64, "share": 0.5, "last": True}
    assert attributes_of(whole) == {"run_id": RUN, "status": "finished", **ABOUT}
    assert train.parent_span_id == whole.span_id and whole.parent_span_id == b""
    assert train.trace_id == whole.trace_id and len(train.trace_id) == 16
    assert whole.start_time_unix_nano < whole.end_time_unix_nano
    assert whole.status.code == otlp.Status.STATUS_CODE_OK
    resource = collected.requests[0].resource_spans[0].resource
    assert attributes_of(resource) == {"service.name": "proxima"}
    assert collected.headers[0]["Content-Type"] == "application/x-protobuf"


def test_a_resumed_run_goes_on_in_its_trace_and_says_how_it_ended():
    with collector() as collected:
        for status in ("interrupted", "failed"):
            spans_to(collected.endpoint, []).finish(status)
        spans_to(collected.endpoint, [], "another").finish("finished")
    first, second, third = collected.named("experiment")
    assert first.trace_id == second.trace_id != third.trace_id
    assert first.span_id != second.span_id
    assert second.status.code == otlp.Status.STATUS_CODE_ERROR


def test_the_environment_names_collector_service_and_headers(monkeypatch):
    with collector() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.endpoint + "/")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Team=a%20b,X-Key=1=2")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        spans_to(None, []).finish("finished")
    assert collected.headers[0]["X-Team"] == "a b" and collected.headers[0]["X-Key"] == "1=2"
    resource = collected.requests[0].resource_spans[0].resource
    assert attributes_of(resource) == {"service.name": "mine"}


def test_a_collector_that_is_down_is_said_once():
    said: list[str] = []
    endpoint = f"http://me:secret@127.0.0.1:{unused_port()}"
    spans = spans_to(endpoint, said)
    for index in range(100):
        spans.add("train", index, index + 1, {})
    spans.finish("finished")
    assert len(said) == 1 and "the run goes on" in said[0] and "secret" not in said[0]


def test_a_collector_that_never_answers_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(otlp, "ANSWER_SECONDS", 0.3)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        said: list[str] = []
        spans = spans_to(f"http://127.0.0.1:{deaf.getsockname()[1]}", said)
        spans.add("train", 0, 1, {})
        wait_until(lambda: said)
        spans.finish("finished")  # would never come back if it waited for an answer
    assert len(said) == 1


def test_what_a_collector_missed_it_gets_when_it_is_up():
    said: list[str] = []
    port = unused_port()
    spans = spans_to(f"http://127.0.0.1:{port}", said)
    spans.add("train", 0, 1, {})
    wait_until(lambda: said)
    with collector(port) as collected:
        spans.finish("finished")
    assert {span.name for span in collected.spans} == {"train", "experiment"}


def test_without_a_collector_nothing_of_it_is_imported():
    code = (
        "import sys; from proxima.track.process import connect_spans; "
        "from proxima.track.tracker import TelemetryConfig; "
        "spans = connect_spans(TelemetryConfig(), 'run', {}, print); spans.add('a', 0, 1, {}); "
        "spans.finish('finished'); "
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
