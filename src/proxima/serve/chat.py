"""What is served of a model that writes text: OpenAI's requests and answers, for the clients that exist.

POST /v1/chat/completions    {"model": …, "messages": [{"role": "user", "content": …}]}
POST /v1/completions         {"model": …, "prompt": …}, which no template is put around
GET  /v1/models

What a request asks for and is not there, such as tools, is refused: nothing is left out in silence.
"""

import asyncio
import json
import math
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.domains.domain import Piece, TextJob, TextModel, TextRequest
from proxima.serve import openapi
from proxima.serve.http import Answer, Refusal, Request, Route, answer_json, as_refusal, problem
from proxima.serve.limits import Limits
from proxima.serve.metrics import Metrics
from proxima.serve.texts import Writing

LARGEST_SEED = 2**31 - 1
SMALLEST_TEMPERATURE = 0.01  # below it, logits divided by it may be no numbers
STOPS = 4  # as many as OpenAI takes
STOP_LENGTH = 256
ROLES = ("system", "developer", "user", "assistant")
NOTED = ("user", "metadata", "safety_identifier")  # say who asks; nothing depends on them
# What is taken only where it asks for nothing.
WITHOUT: Mapping[str, Sequence[Any]] = {
    **{"frequency_penalty": (0,), "presence_penalty": (0,), "logit_bias": ({},)},
    **{"logprobs": (False,), "top_logprobs": (0,), "tools": ([],), "tool_choice": ("none", "auto")},
    **{"response_format": ({"type": "text"},), "modalities": (["text"],), "store": (False,)},
    **{"echo": (False,), "best_of": (1,), "suffix": ("",), "service_tier": ("auto", "default")},
}
FIELDS = (
    "model",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "n",
)
STREAMING = ("stream", "stream_options")
STREAM_OPTIONS = ("include_usage", "include_obfuscation")


class Style(NamedTuple):
    """What differs between conversations and plain completions."""

    prefix: str  # of ids
    whole: str  # an answer's kind
    chunk: str  # a piece's kind
    is_chat: bool


CHAT = Style("chatcmpl-", "chat.completion", "chat.completion.chunk", True)
PLAIN = Style("cmpl-", "text_completion", "text_completion", False)


class Asked(NamedTuple):
    """A request that was read."""

    style: Style
    jobs: Sequence[TextJob]  # one a prompt
    head: Mapping[str, Any]  # of the answer and of every piece: id, created, model
    with_usage: bool  # a last piece of a stream counts tokens

    def number_of(self, piece: Piece) -> int:
        """The number of a piece's text among all of the request's."""
        before = 0
        for job in self.jobs:
            if job is piece.job:
                return before + piece.number
            before += job.request.texts
        raise AssertionError("a piece belongs to one of the jobs")


def serve_texts(model: TextModel, limits: Limits, metrics: Metrics) -> tuple[Route, ...]:
    """The routes of a model that is loaded."""
    writing, created = Writing(model, limits, metrics), int(time.time())
    # Megabytes of text take seconds to become tokens. One thread: chat templates are not for several.
    reading = ThreadPoolExecutor(1, "proxima-prompts")
    words = openapi.text_operations(model)
    listed = {"id": model.name, "object": "model", "created": created, "owned_by": "proxima"}

    async def answer(style: Style, request: Request) -> Answer:
        body = request.body
        if not isinstance(body, dict):
            raise Refusal(400, "the body must be an object of JSON")
        asked = await asyncio.get_running_loop().run_in_executor(reading, read, style, body, model)
        metrics.prompt_tokens += sum(len(job.prompt) for job in asked.jobs)
        pieces = writing.ask(asked.jobs)
        if body.get("stream"):
            return Answer(b"", kind="text/event-stream", events=events(asked, pieces, metrics))
        return answer_json(await whole(asked, pieces, metrics))

    async def chat(request: Request) -> Answer:
        return await answer(CHAT, request)

    async def complete(request: Request) -> Answer:
        return await answer(PLAIN, request)

    async def models(request: Request) -> Answer:
        return answer_json({"object": "list", "data": [listed]})

    async def one_model(request: Request) -> Answer:
        _check_model(request.parts["model"], model)
        return answer_json(listed)

    seconds = limits.text_seconds
    return (
        Route("POST", "/v1/chat/completions", chat, words["chat"], seconds),
        Route("POST", "/v1/completions", complete, words["complete"], seconds),
        Route("GET", "/v1/models", models, words["models"]),
        Route("GET", "/v1/models/{model}", one_model, words["model"]),
    )


def read(style: Style, body: Mapping[str, Any], model: TextModel) -> Asked:
    """The texts that a body asks for; refused, naming the field, where something is wrong or not there."""
    _check_fields(style, body)
    _check_model(body.get("model"), model)
    options = _option(body, "stream_options", {})
    if not isinstance(options, dict) or set(options) - set(STREAM_OPTIONS):
        raise Refusal(400, 'stream_options: expected {"include_usage": true}', "stream_options")
    for where, name in ((body, "stream"), *((options, name) for name in STREAM_OPTIONS)):
        if not isinstance(_option(where, name, False), bool):
            raise Refusal(400, f"{name}: expected true or false", name)
    jobs = []
    for request in _requests(style, body, model.rows):
        try:
            jobs.append(model.read(request))
        except ProximaError as error:
            param = "messages" if style.is_chat else "prompt"
            raise Refusal(400, f"{param}: {error}", param) from error
    head = {
        "id": style.prefix + secrets.token_hex(12),
        "created": int(time.time()),
        "model": model.name,
    }
    return Asked(style, jobs, head, bool(options.get("include_usage")))


def _requests(style: Style, body: Mapping[str, Any], rows: int) -> list[TextRequest]:
    lengths = [
        _number(body, name, 1, 2**31 - 1, None, int)
        for name in ("max_tokens", "max_completion_tokens")
    ]
    temperature = _number(body, "temperature", 0, 2, None, float)
    if temperature is not None and 0 < temperature < SMALLEST_TEMPERATURE:
        least = f"{SMALLEST_TEMPERATURE:g} or more, or 0: the likeliest token each time"
        raise Refusal(400, f"temperature: expected {least}", "temperature")
    top_p = _number(body, "top_p", 0, 1, 1.0, float)
    if top_p == 0:
        raise Refusal(400, "top_p: must be above 0 and at most 1, which keeps all tokens", "top_p")
    base = TextRequest(
        prompt="",
        seed=_number(body, "seed", 0, LARGEST_SEED, secrets.randbelow(LARGEST_SEED), int),
        new_tokens=next((length for length in reversed(lengths) if length is not None), None),
        temperature=temperature,
        top_p=top_p,
        stop=_stops(body),
        texts=_number(body, "n", 1, 2**31 - 1, 1, int),
    )
    prompts = [""] if style.is_chat else _prompts(_option(body, "prompt", None))
    if len(prompts) * base.texts > rows:
        raise Refusal(400, f"n: more than {rows} texts; ask for fewer at once", "n")
    if style.is_chat:
        return [base._replace(turns=_turns(_option(body, "messages", None)))]
    return [base._replace(prompt=prompt) for prompt in prompts]


def _option(body: Mapping[str, Any], name: str, default: Any) -> Any:
    """A field of the body; null is as good as none."""
    given = body.get(name)
    return default if given is None else given


def _number(
    body: Mapping[str, Any], name: str, low: float, high: float, default: Any, kind: type
) -> Any:
    given = _option(body, name, default)
    if given is None:
        return None
    is_number = isinstance(given, int if kind is int else int | float)
    if not is_number or isinstance(given, bool) or not low <= given <= high or math.isnan(given):
        what = "a whole number" if kind is int else "a number"
        raise Refusal(400, f"{name}: expected {what} from {low:g} to {high:,.0f}", name)
    return kind(given)


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    given = _option(body, "stop", [])
    texts = [given] if isinstance(given, str) else given
    is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    if not is_list or len(texts) > STOPS or not all(0 < len(text) <= STOP_LENGTH for text in texts):
        raise Refusal(
            400, f"stop: expected up to {STOPS} texts of 1 to {STOP_LENGTH} characters", "stop"
        )
    return tuple(texts)


def _turns(messages: Any) -> list[dict[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise Refusal(
            400,
            'messages: expected a list such as [{"role": "user", "content": "Hello"}]',
            "messages",
        )
    turns = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise Refusal(400, f"{where}.role: expected one of {', '.join(ROLES)}", "messages")
        for name, given in message.items():
            if name not in ("role", "content") and given not in (None, []):
                raise Refusal(400, f"{where}.{name[:60]}: is not there; leave it out", "messages")
        # developer is OpenAI's newer word for it; templates know the older one
        role = "system" if role == "developer" else role
        turns.append({"role": role, "content": _content(message.get("content"), where)})
    return turns


def _content(given: Any, where: str) -> str:
    """A message's text, also where it is given in parts."""
    parts = [{"type": "text", "text": given}] if isinstance(given, str) else given
    is_text = isinstance(parts, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in parts
    )
    if not is_text:
        raise Refusal(400, f"{where}.content: expected a text, or parts of type text", "messages")
    return "".join(part["text"] for part in parts)


def _prompts(given: Any) -> list[str | list[int]]:
    """One prompt or several, each a text or a list of ids."""
    if isinstance(given, str) or _are_ids(given):
        return [given]
    if isinstance(given, list) and given and all(isinstance(p, str) or _are_ids(p) for p in given):
        return given
    raise Refusal(400, "prompt: expected a text, a list of ids, or a list of them", "prompt")


def _are_ids(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(type(index) is int for index in given)


def _check_fields(style: Style, body: Mapping[str, Any]) -> None:
    known = (*FIELDS, *STREAMING, "messages" if style.is_chat else "prompt")
    for name, given in body.items():
        if name in known or name in NOTED or given is None:
            continue
        if name not in WITHOUT:
            there = ", ".join(known)
            raise Refusal(400, f"{name[:60]}: there is no such field; there are {there}", name[:60])
        if not any(_is_same(given, option) for option in WITHOUT[name]):
            raise Refusal(400, f"{name}: is not there; leave it out", name)


def _is_same(given: Any, option: Any) -> bool:
    """Equal as JSON has it, where 0 is not false."""
    return isinstance(given, bool) == isinstance(option, bool) and bool(given == option)


def _check_model(given: Any, model: TextModel) -> None:
    if given is not None and given != model.name:
        message = f"model: {str(given)[:60]!r} is not served; there is {model.name!r}"
        raise Refusal(404, message, "model", "model_not_found")


class Written(NamedTuple):
    """A text that has come to its end."""

    text: str
    tokens: int
    finish: str | None


async def whole(
    asked: Asked, pieces: AsyncGenerator[Piece, None], metrics: Metrics
) -> dict[str, Any]:
    """The answer when all texts have been written."""
    count = sum(job.request.texts for job in asked.jobs)
    written = [Written("", 0, None)] * count
    try:
        async for piece in pieces:
            at = asked.number_of(piece)
            metrics.completion_tokens += 1
            written[at] = Written(written[at].text + piece.text, piece.tokens, piece.finish)
    finally:
        await pieces.aclose()
    choices = [_choice(asked.style, n, entry) for n, entry in enumerate(written)]
    tokens = [entry.tokens for entry in written]
    kind = {"object": asked.style.whole}
    return {**asked.head, **kind, "choices": choices, "usage": _usage(asked, tokens)}


def _choice(style: Style, index: int, entry: Written) -> dict[str, Any]:
    content: dict[str, Any] = {"text": entry.text}
    if style.is_chat:
        content = {"message": {"role": "assistant", "content": entry.text, "refusal": None}}
    return {"index": index, **content, "logprobs": None, "finish_reason": entry.finish}


def _usage(asked: Asked, tokens: Sequence[int]) -> dict[str, int]:
    prompts, completions = sum(len(job.prompt) for job in asked.jobs), sum(tokens)
    return {
        "prompt_tokens": prompts,
        "completion_tokens": completions,
        "total_tokens": prompts + completions,
    }


async def events(
    asked: Asked, pieces: AsyncGenerator[Piece, None], metrics: Metrics
) -> AsyncGenerator[bytes, None]:
    """The answer as server-sent events, a piece each; an error that comes later is one of them."""
    tokens: dict[int, int] = {}
    head = {**asked.head, "object": asked.style.chunk}
    try:
        async for piece in pieces:
            at = asked.number_of(piece)
            if at not in tokens and asked.style.is_chat:
                delta = {"role": "assistant", "content": "", "refusal": None}
                yield _event({**head, "choices": [_part(at, {"delta": delta}, None)]})
            tokens[at] = piece.tokens
            metrics.completion_tokens += 1
            if piece.text or piece.finish:
                yield _event({**head, "choices": [_piece(asked.style, at, piece)]})
        if asked.with_usage:
            usage = _usage(asked, list(tokens.values()))
            yield _event({**head, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield _event(problem(as_refusal(error)))
    finally:
        await pieces.aclose()


def _piece(style: Style, at: int, piece: Piece) -> dict[str, Any]:
    content = {"content": piece.text} if piece.text else {}
    return _part(at, {"delta": content} if style.is_chat else {"text": piece.text}, piece.finish)


def _part(at: int, content: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": at, **content, "logprobs": None, "finish_reason": finish}


def _event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, allow_nan=False).encode() + b"\n\n"
