"""A collector for spans: a real server that takes OTLP over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Collected:
    """What arrived: the headers of every request, and the messages in them."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.headers: list[dict[str, str]] = []
        self.requests: list[ExportTraceServiceRequest] = []

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


def attributes_of(holder: Any) -> dict[str, Any]:
    """A span's or a resource's attributes as plain values."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes
    }


@contextmanager
def collector(port: int = 0) -> Iterator[Collected]:
    """A collector on this machine, at a port of its own unless told otherwise."""
    collected = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collected.headers.append(dict(self.headers))
            collected.requests.append(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    collected.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collected
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
