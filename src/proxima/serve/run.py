"""A server, from its settings to Ctrl-C: what is served, on which address, for whom."""

import ipaddress
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from proxima.build import DOMAINS, domain, domain_of
from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.core.paths import usable_path
from proxima.domains.domain import TextModels
from proxima.run.files import RunFiles, find_policy, find_trial
from proxima.run.policy import load_policy
from proxima.run.read import load_scenario
from proxima.serve import openapi
from proxima.serve.chat import serve_texts
from proxima.serve.http import Answer, Request, Route, Service, answer_json, make_app
from proxima.serve.limits import Limits
from proxima.serve.metrics import Metrics
from proxima.serve.policy import serve_policy
from proxima.track.served_policy import ABOUT

GOODBYE_SECONDS = 5  # for requests that are being answered when the server ends


class Settings(NamedTuple):
    """What is served to whom."""

    reference: str
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    trial: int | None = None
    output_directory: str = "logs"
    limits: Limits = Limits()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None) -> None:
    """Refuses to serve the network without a token, and tokens that anybody guesses."""
    if token is not None and (not token.isascii() or not token.isprintable() or len(token) < 8):
        raise ProximaError("--token: expected at least 8 printable ASCII characters")
    if token is None and not is_loopback(host):
        raise ProximaError(
            f"--host {host}: others could use the policy; give --token TOKEN (or PROXIMA_SERVE_TOKEN in "
            "the environment) to let in who has it, or leave --host out: this machine only"
        )


class Content(NamedTuple):
    """What is served."""

    name: str
    description: str
    facts: Mapping[str, Any]  # what /health says of it
    routes: tuple[Route, ...]


def make_service(settings: Settings) -> Service:
    """Everything the server answers with, ready: loaded and compiled."""
    metrics = Metrics()
    models = find_text_models(settings.reference, settings.output_directory, settings.trial)
    content = (
        policy_content(settings, metrics)
        if models is None
        else text_content(settings, models, metrics)
    )
    routes = (*content.routes, *_common_routes(metrics, content.facts))
    has_token = settings.token is not None
    title = f"Proxima: {content.name}"
    described = openapi.document(title, content.description, routes, has_token)
    every = (*routes, *_pages(described))
    return Service(every, settings.limits, metrics, settings.token, check_host=not has_token)


def find_text_models(reference: str, output_directory: str, trial: int | None) -> TextModels | None:
    """Who loads the model that is meant; None where it is a policy, which acts."""
    path = Path(usable_path(reference))
    if (path / ABOUT).is_file():
        return None
    for name in DOMAINS:
        models = domain(name).text_models
        if models is not None and models.is_folder(path):
            return models
    home = find_trial(reference, output_directory, trial)
    if (home / "policy").is_dir():
        return None
    return domain_of(load_scenario(RunFiles(home.resolve().parent))).text_models


def policy_content(settings: Settings, metrics: Metrics) -> Content:
    """A policy, compiled."""
    directory = find_policy(settings.reference, settings.output_directory, settings.trial)
    policy = load_policy(directory)
    about, taken = policy.about, policy.about["checkpoint"]
    made = f"{taken['kind']} checkpoint, step {taken['step']:,}"
    description = f"{about['algorithm']} on {about['env']}, {made}"
    facts = {name: about[name] for name in ("algorithm", "env", "checkpoint", "weights_sha256")}
    return Content(about["env"], description, facts, serve_policy(policy, settings.limits, metrics))


def text_content(settings: Settings, models: TextModels, metrics: Metrics) -> Content:
    """A model that writes, loaded."""
    where = (settings.reference, settings.output_directory, settings.trial)
    model = models.load(*where, settings.limits.text_rows)
    description = f"{model.about['model']}, asked as OpenAI's clients do"
    return Content(
        model.name, description, model.about, serve_texts(model, settings.limits, metrics)
    )


def _common_routes(metrics: Metrics, facts: Mapping[str, Any]) -> tuple[Route, ...]:
    async def health(request: Request) -> Answer:
        return answer_json({"status": "ok", **facts})

    async def figures(request: Request) -> Answer:
        return Answer(metrics.text().encode(), kind="text/plain; version=0.0.4; charset=utf-8")

    shown = {"200": {"description": "Prometheus' text format.", "content": {"text/plain": {}}}}
    health_words = {
        "summary": "Whether it serves, and what.",
        "security": [],
        "responses": openapi.answers({"200": ("It does.", {"type": "object"})}),
    }
    figures_words = {
        "summary": "Counters and histograms.",
        "responses": openapi.answers({}) | shown,
    }
    return (
        Route("GET", "/health", health, health_words),
        Route("GET", "/metrics", figures, figures_words),
    )


def _pages(described: dict[str, Any]) -> tuple[Route, ...]:
    content, shown = json.dumps(described).encode(), openapi.page(described).encode()

    async def document(request: Request) -> Answer:
        return Answer(content)

    async def page(request: Request) -> Answer:
        return Answer(shown, kind="text/html; charset=utf-8")

    return (Route("GET", "/openapi.json", document, {}), Route("GET", "/docs", page, {}))


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; an error in words where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ProximaError(
            f"{host}:{port}: cannot be served ({error}); try --port or --host"
        ) from error
    return listening


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; requests that have begun are answered first."""
    check_exposure(settings.host, settings.token)
    with needs_extra("serve", "proxima serve"):
        import uvicorn
    with bound_socket(settings.host, settings.port) as listening:
        say(f"Loading and compiling {settings.reference}")
        service = make_service(settings)
        config = uvicorn.Config(
            make_app(service),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=GOODBYE_SECONDS,
        )
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{port}"
        say(f"Serving at {address}  (Ctrl-C ends it); its page:  {address}/docs")
        with suppress(KeyboardInterrupt):  # raised again by uvicorn when it has closed
            uvicorn.Server(config).run(sockets=[listening])
    say("Ended.")
