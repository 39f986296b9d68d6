"""Requests and answers over ASGI: routes, the token, bodies within bounds, errors in words.

A framework would do the same and take most of a request's time: a small policy answers in 0.1 ms. Whatever a
client sends wrongly is answered by a 4xx with a sentence; a 500 is a bug of ours.
"""

import asyncio
import hashlib
import hmac
import json
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, NoReturn

from proxima.core.errors import ProximaError
from proxima.serve.limits import Limits
from proxima.serve.metrics import Metrics

JSON = "application/json"
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
OPEN = ("/health",)  # what is answered without the token
Headers = tuple[tuple[bytes, bytes], ...]


class Refusal(Exception):
    """A request that is answered by a status and a sentence; `param` is the field that is wrong."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers


class Request(NamedTuple):
    """What a handler needs of a request."""

    body: Any  # JSON, read; None where there was none
    parts: Mapping[str, str]  # of the path, by name


class Answer(NamedTuple):
    """What is sent back; `events` instead of a body are sent as they come."""

    body: bytes
    status: int = 200
    kind: str = JSON
    headers: Headers = ()  # besides those that every answer has
    events: AsyncGenerator[bytes, None] | None = None


Handler = Callable[[Request], Coroutine[Any, Any, Answer]]


class Route(NamedTuple):
    """A method and a path, `{name}` where a part of it is free, and who answers."""

    method: str
    path: str
    handler: Handler
    described: Mapping[str, Any]  # its operation in OpenAPI
    # What takes long: seconds to answer, unless the client goes first. None: as all others.
    seconds: float | None = None


class Service(NamedTuple):
    """Everything that one server answers with."""

    routes: tuple[Route, ...]
    limits: Limits
    metrics: Metrics
    token: str | None = None
    check_host: bool = True  # only names of this machine: other sites' pages may not ask


def answer_json(content: Any, status: int = 200) -> Answer:
    """Content as JSON, which has no NaN."""
    return Answer(json.dumps(content, allow_nan=False).encode(), status)


def make_app(service: Service) -> Callable[..., Awaitable[None]]:
    """The service as an ASGI application."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})  # before it is accepted: a 403
        if scope["type"] != "http":
            return
        started, route = time.perf_counter(), "other"
        try:
            matched, parts = _find(service.routes, scope["method"], scope["path"])
            route = matched.path
            _check_caller(service, scope)
            body = await _read_in_time(scope, receive, service.limits)
            async with asyncio.timeout(matched.seconds or service.limits.request_seconds):
                answering = matched.handler(Request(body, parts))
                is_long = matched.seconds is not None
                answer = await (_unless_gone(receive, answering) if is_long else answering)
        except Exception as error:
            answer = _explained(error)
        service.metrics.answered(route, answer.status, time.perf_counter() - started)
        await _send(send, receive, answer)

    return app


async def _unless_gone(receive: Any, answering: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer, given up where the client goes before it is there."""
    answer, gone = asyncio.create_task(answering), asyncio.create_task(_until_gone(receive))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Refusal(499, "the client has gone")  # nobody reads it; metrics count it
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.wait((answer, gone))


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _find(routes: tuple[Route, ...], method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    allowed = []
    for route in routes:
        parts = _match(route.path, path)
        if parts is not None:
            if route.method == method:
                return route, parts
            allowed.append(route.method)
    if allowed:
        headers = ((b"allow", ", ".join(allowed).encode()),)
        message = f"{path[:200]}: takes {' and '.join(allowed)}, not {method}"
        raise Refusal(405, message, headers=headers)
    known = ", ".join(sorted({route.path for route in routes}))
    raise Refusal(404, f"{path[:200]}: is not served; there are {known}")


def _match(pattern: str, path: str) -> dict[str, str] | None:
    if "{" not in pattern:
        return {} if pattern == path else None
    wanted, given = pattern.split("/"), path.split("/")
    if len(wanted) != len(given):
        return None
    parts = {}
    for want, part in zip(wanted, given, strict=True):
        if want.startswith("{"):
            parts[want[1:-1]] = part
        elif want != part:
            return None
    return parts


def _check_caller(service: Service, scope: dict[str, Any]) -> None:
    """Refuses who has no token where one is asked for, and pages of other sites where none is."""
    headers = dict(scope["headers"])
    if service.token is not None and scope["path"] not in OPEN:
        given = headers.get(b"authorization", b"")
        if not _same(given, f"Bearer {service.token}".encode()):
            message = "the header Authorization: Bearer TOKEN is missing or wrong"
            raise Refusal(401, message, headers=((b"www-authenticate", b"Bearer"),))
    host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
    name = host[0] if host[1] and not host[2].endswith("]") else host[2]
    if service.check_host and name not in LOCAL_NAMES:
        raise Refusal(
            421,
            f"Host: {name[:100]}: only {', '.join(LOCAL_NAMES)} are served; --token allows others",
        )


def _same(given: bytes, wanted: bytes) -> bool:
    """Compared by digests, in a time that tells neither content nor length."""
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(wanted).digest())


async def _read_in_time(scope: dict[str, Any], receive: Any, limits: Limits) -> Any:
    """The body as JSON; refused where the client does not send all of it."""
    try:
        async with asyncio.timeout(limits.request_seconds):
            return await _read(scope, receive, limits.body_bytes)
    except TimeoutError as error:
        message = (
            f"the body was not there after {limits.request_seconds:g} seconds; check Content-Length"
        )
        raise Refusal(408, message, headers=((b"connection", b"close"),)) from error


async def _read(scope: dict[str, Any], receive: Any, limit: int) -> Any:
    """The body as JSON; None where there is none."""
    chunks, size, more = [], 0, scope["method"] == "POST"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the connection was closed before the body had come")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise Refusal(413, f"the body is longer than {limit:,} bytes; send it in parts")
        more = message.get("more_body", False)
    content = b"".join(chunks)
    if not content:
        return None
    kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != JSON.encode():
        shown = kind.decode("latin-1")[:100] or "missing"
        raise Refusal(415, f"Content-Type: {shown}: must be {JSON}; curl --json sends it")
    return read_json(content)


def read_json(content: bytes) -> Any:
    """JSON without NaN, infinities and numbers of thousands of digits."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        return json.loads(content, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        # Python's own sentence is for whoever runs the server
        is_long = "integer string conversion" in str(error)
        words = "a number has too many digits" if is_long else error
        raise Refusal(400, f"the body is not valid JSON: {words}"[:300]) from error


def _explained(error: Exception) -> Answer:
    """An error as an answer."""
    refusal = as_refusal(error)
    return answer_json(problem(refusal), refusal.status)._replace(headers=refusal.headers)


def as_refusal(error: Exception) -> Refusal:
    """What the client is told of an error; one that nobody foresaw is shown to whoever runs the server."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ProximaError):
        return Refusal(422, str(error))
    if isinstance(error, TimeoutError):
        return Refusal(504, "it took too long; ask for less, or try again when fewer others do")
    traceback.print_exception(error, file=sys.stderr)
    return Refusal(500, "an error of the server; its console says more")


def problem(refusal: Refusal) -> dict[str, Any]:
    """A refusal in the form in which clients of OpenAI's look for it."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    shown = {"message": refusal.message, "type": kind}
    return {"error": shown | {"param": refusal.param, "code": refusal.code}}


async def _send(send: Any, receive: Any, answer: Answer) -> None:
    headers = [(b"content-type", answer.kind.encode()), (b"x-content-type-options", b"nosniff")]
    headers += answer.headers
    if answer.events is None:
        if answer.status != 204:
            headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return
    headers.append((b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    gone = asyncio.create_task(_until_gone(receive))
    try:
        async for event in answer.events:
            if gone.done():  # uvicorn does not say so when it is given what nobody reads
                break
            await send({"type": "http.response.body", "body": event, "more_body": True})
    finally:  # what produces the events ends too
        gone.cancel()
        await answer.events.aclose()
    await send({"type": "http.response.body", "body": b""})
