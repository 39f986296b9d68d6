"""The page's server: static files, the list and a run as server-sent events, stop and resume."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.live.guard import Guard
from proxima.live.watch import Watch
from proxima.report import tokens
from proxima.run.files import plain

LOOPBACK = "127.0.0.1"  # the page can stop runs: never offered to the network
STATIC = Path(__file__).parent / "static"
FILES = {
    "": ("index.html", "text/html"),
    "live.js": ("live.js", "text/javascript"),
    "live.css": ("live.css", "text/css"),
    "uPlot.js": ("uPlot.js", "text/javascript"),
    "uPlot.css": ("uPlot.css", "text/css"),
}
TOKENS = "tokens.css"  # shared with reports
POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
EVERY_SECONDS = 1.0
READING_SECONDS = 0.1  # the same while a large run is still being read
ALIVE_SECONDS = 15  # after which a silent stream says that it is still there


def make_app(watch: Watch, guard: Guard) -> Any:
    """The application; every request passes the guard first."""
    with needs_extra("live", "proxima live"):
        from fastapi import FastAPI, Request
        from fastapi.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def guarded(request: Request, call_next: Any) -> Any:
        query = request.query_params.get("token")
        given = query or request.cookies.get(guard.cookie) or request.headers.get("x-proxima-token")
        refusal = guard.refusal(request.headers, given, request.method not in ("GET", "HEAD"))
        if refusal is not None:
            return JSONResponse({"error": refusal}, 403, headers=HEADERS)
        if query is not None:  # from here on the cookie says it, and the address can be shown
            answer = RedirectResponse(request.url.path, 303, headers=HEADERS)
            answer.set_cookie(guard.cookie, guard.token, httponly=True, samesite="strict")
            return answer
        answer = await call_next(request)
        answer.headers.update(HEADERS)
        return answer

    @app.get("/api/runs")
    async def runs() -> Any:
        return JSONResponse(await asyncio.to_thread(_listed, watch, guard))

    @app.get("/api/run")
    async def run(id: str, metric: str | None = None) -> Any:
        return await _answered(lambda: plain(watch.details(id, metric)))

    @app.post("/api/stop")
    async def stop(id: str) -> Any:
        return await _answered(lambda: {"text": watch.stop(id)})

    @app.post("/api/resume")
    async def resume(id: str) -> Any:
        return await _answered(lambda: {"text": watch.resume(id)})

    @app.get("/api/events")
    async def events(id: str | None = None, metric: str | None = None) -> Any:
        stream = _events(watch, guard, id, metric)
        return StreamingResponse(stream, media_type="text/event-stream")

    @app.get(f"/{TOKENS}")
    async def tokens_style() -> Any:
        return Response(tokens.style(), media_type="text/css")

    @app.get("/{name}")
    async def static(name: str) -> Any:
        if name not in FILES:
            return JSONResponse({"error": "no such page"}, 404)
        file, kind = FILES[name]
        return Response((STATIC / file).read_bytes(), media_type=kind)

    app.get("/")(lambda: Response((STATIC / "index.html").read_bytes(), media_type="text/html"))

    async def _answered(work: Callable[[], dict[str, Any]]) -> Any:
        try:
            return JSONResponse(await asyncio.to_thread(work))
        except ProximaError as error:
            return JSONResponse({"error": str(error)}, 409)

    return app


def _listed(watch: Watch, guard: Guard) -> dict[str, Any]:
    entries = [entry._asdict() for entry in watch.entries()]
    content: dict[str, Any] = plain({"runs": entries, "read_only": guard.read_only})
    return content


async def _events(
    watch: Watch, guard: Guard, run: str | None, metric: str | None
) -> AsyncIterator[str]:
    """The list and the open run whenever they changed; what has not changed is not sent again."""
    before: dict[str, str] = {}
    silent = 0.0
    while True:
        messages = {"runs": await asyncio.to_thread(_listed, watch, guard)}
        if run is not None:
            try:
                messages["run"] = plain(await asyncio.to_thread(watch.details, run, metric))
            except ProximaError as error:
                messages["problem"] = {"error": str(error)}
        for name, content in messages.items():
            text = json.dumps(content, allow_nan=False)
            if before.get(name) != text:
                before[name], silent = text, 0.0
                yield f"event: {name}\ndata: {text}\n\n"
        silent += EVERY_SECONDS
        if silent >= ALIVE_SECONDS:
            silent = 0.0
            yield ": still here\n\n"
        done, of = messages.get("run", {}).get("read", (0, 0))
        await asyncio.sleep(EVERY_SECONDS if done == of else READING_SECONDS)


def serve(output: str, port: int, read_only: bool, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; the address that is said holds the token."""
    with needs_extra("live", "proxima live"):
        import fastapi  # noqa: F401
        import uvicorn
    import socket

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except OSError as error:
        raise ProximaError(
            f"--port {port}: is not free ({error.strerror}); choose another one, or 0 for any"
        ) from error
    guard = Guard(secrets.token_urlsafe(24), listening.getsockname()[1], read_only)
    app = make_app(Watch(Path(output)), guard)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="off"
    )
    say(f"Live page at http://{LOOPBACK}:{guard.port}/?token={guard.token}  (Ctrl-C ends it)")
    uvicorn.Server(config).run(sockets=[listening])
