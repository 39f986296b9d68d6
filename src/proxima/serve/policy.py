"""What is served of an exported policy: predictions, with sessions where it remembers or trades.

POST /predict                   {"observation": …}  ─► {"action": …}
POST /sessions                                      ─► {"session": ID}
POST /sessions/{session}/predict                    goes on with what the session remembers
DELETE /sessions/{session}
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from proxima.run.policy import Policy
from proxima.serve import openapi
from proxima.serve.batching import Batcher, Rows, Step, padded_size, run_padded
from proxima.serve.http import Answer, Refusal, Request, Route, answer_json
from proxima.serve.limits import Limits
from proxima.serve.metrics import Metrics
from proxima.serve.observations import as_json, read_rows, with_flags
from proxima.serve.sessions import Session, Sessions
from proxima.track.registry import load_exported
from proxima.track.served_policy import first_memory


class Served(NamedTuple):
    """A policy in use."""

    policy: Policy
    batcher: Batcher
    sessions: Sessions
    limits: Limits
    metrics: Metrics

    @property
    def about(self) -> Mapping[str, Any]:
        """What its policy.json says."""
        return self.policy.about


def serve_policy(policy: Policy, limits: Limits, metrics: Metrics) -> tuple[Route, ...]:
    """The routes of a policy whose programs are compiled."""
    step = load_exported(policy.directory).step
    warm_up(step, policy.about, limits)
    batcher = Batcher(step, limits, metrics)
    served = Served(policy, batcher, Sessions(limits), limits, metrics)
    words = openapi.policy_operations(policy.about)

    async def predict(request: Request) -> Answer:
        return await _predict(served, request)

    async def begin(request: Request) -> Answer:
        _fields(request.body if request.body is not None else {}, ())
        name = served.sessions.begin()
        metrics.sessions = len(served.sessions)
        return answer_json({"session": name, "idle_seconds": limits.idle_seconds}, 201)

    async def go_on(request: Request) -> Answer:
        return await _go_on(served, request)

    async def end(request: Request) -> Answer:
        served.sessions.end(request.parts["session"])
        metrics.sessions = len(served.sessions)
        return Answer(b"", 204)

    one = "/sessions/{session}"
    return (
        Route("POST", "/predict", predict, words["predict"]),
        Route("POST", "/sessions", begin, words["begin"]),
        Route("POST", f"{one}/predict", go_on, words["go_on"]),
        Route("DELETE", one, end, words["end"]),
    )


def warm_up(step: Step, about: Mapping[str, Any], limits: Limits) -> None:
    """Compiles the program for every size that a batch can have."""
    rows = 1
    while rows <= padded_size(limits.batch_rows):
        run_padded(step, Rows(_first(about["observation"], rows), first_memory(about, rows), rows))
        rows *= 2


def _first(kind: Mapping[str, Any], rows: int) -> Any:
    if "fields" in kind:
        return {name: _first(field, rows) for name, field in kind["fields"].items()}
    blank = np.zeros((rows, *kind["shape"]), kind["dtype"])
    return blank + np.asarray(kind.get("start", 0), kind["dtype"])


async def _predict(served: Served, request: Request) -> Answer:
    """Actions at observations that begin their episodes, or what to do at raw input."""
    body = _fields(request.body, ("observation", "raw", "state"))
    if "raw" in body:
        raw, state = _raw(served, body), body.get("state")
        target = await _on_thread(served, served.policy.predict, raw, state)
        return answer_json({"action": target})
    if "state" in body:
        raise Refusal(
            422, "state: goes with raw input; what an episode remembers is kept by /sessions"
        )
    rows, single = read_rows(_observation(body), served.about, served.limits.batch_rows)
    acted = await served.batcher.act(rows)
    return answer_json({"action": as_json(acted.actions, served.about, single)})


async def _go_on(served: Served, request: Request) -> Answer:
    """The next step of a session's episodes; the session is as before where a request is refused."""
    body = _fields(request.body, ("observation", "episode_start", "raw", "state"))
    session = served.sessions.find(request.parts["session"])
    async with session.turn:
        if "raw" in body:
            return await _go_on_raw(served, session, body)
        if "state" in body:
            raise Refusal(422, "state: goes with raw input")
        rows, single = read_rows(_observation(body), served.about, served.limits.session_rows)
        memory = session.state
        if memory is not None and not isinstance(memory, dict):
            raise Refusal(409, "this session takes raw input; POST /sessions begins another")
        if memory:
            known = len(next(iter(memory.values())))
            if known != rows.size:
                raise Refusal(
                    422,
                    f"observation: {rows.size} rows, and this session remembers {known} episodes",
                )
            rows = rows._replace(memory=memory)
        acted = await served.batcher.act(with_flags(rows, body.get("episode_start")))
        content = {"action": as_json(acted.actions, served.about, single)}
        session.state = acted.memory
        return answer_json(content)


async def _go_on_raw(served: Served, session: Session, body: Mapping[str, Any]) -> Answer:
    raw, state = _raw(served, body), body.get("state")
    if state is not None and session.state is not None:
        raise Refusal(409, "state: says how a session begins, and this one has begun")
    if isinstance(session.state, dict):
        raise Refusal(409, "this session takes observations; POST /sessions begins another")
    before = state if session.state is None else session.state
    target, after = await _on_thread(served, served.policy.step, raw, before)
    session.state = after
    return answer_json({"action": target})


def _raw(served: Served, body: Mapping[str, Any]) -> Any:
    """Raw input as the policy's domain takes it: a list of records becomes columns."""
    if served.about.get("raw") is None:
        raise Refusal(422, "raw: this policy takes observations alone; send observation")
    if "observation" in body or "episode_start" in body:
        raise Refusal(422, "raw: goes alone; send either raw or observation")
    raw = body["raw"]
    if isinstance(raw, list) and raw and all(isinstance(row, dict) for row in raw):
        if any(row.keys() != raw[0].keys() for row in raw):
            raise Refusal(422, "raw: its records do not have the same keys")
        raw = {name: [row[name] for row in raw] for name in raw[0]}
    is_table = (
        isinstance(raw, dict) and raw and all(isinstance(part, list) for part in raw.values())
    )
    if not is_table or len({len(part) for part in raw.values()}) != 1:
        raise Refusal(422, "raw: expected columns of equal length by name, or a list of records")
    return raw


async def _on_thread(served: Served, function: Any, *arguments: Any) -> Any:
    """What takes longer than a turn of the loop, one at a time."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(served.batcher.thread, function, *arguments)


def _observation(body: Mapping[str, Any]) -> Any:
    if "observation" not in body:
        raise Refusal(422, 'observation: is missing; send {"observation": …}')
    return body["observation"]


def _fields(body: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
    """A body that is an object of these fields alone."""
    if not isinstance(body, dict):
        raise Refusal(422, "the body must be an object of JSON")
    for name in body:
        if name not in known:
            there = ", ".join(known) or "none"
            raise Refusal(422, f"{name[:60]}: there is no such field; there are: {there}")
    return body
