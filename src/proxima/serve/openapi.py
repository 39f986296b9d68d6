"""The service described: OpenAPI 3.1 made of what policy.json says, and a page of it without scripts."""

import html
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from proxima.domains.domain import TextModel
from proxima.serve.http import JSON, Route

Schema = dict[str, Any]
PROBLEM: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
REFUSALS = {
    **{"400": "Not JSON, or a field is wrong.", "401": "The token is missing or wrong."},
    **{"404": "Not there.", "408": "The body did not come in time."},
    **{"409": "The session was begun otherwise.", "413": "Too much at once."},
    **{"415": "The body is not application/json.", "421": "Another host's name."},
    **{"422": "JSON that is wrong here; the message says what.", "503": "Too busy."},
    "504": "It took too long.",
}
STYLE = "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;color-scheme:light dark}"


def policy_operations(about: Mapping[str, Any]) -> dict[str, Schema]:
    """What is said of a policy's routes, by name."""
    observation = _one_or_many(about["observation"])
    fields: Schema = {"observation": observation}
    if about.get("raw") is not None:
        fields |= {"raw": {"type": ["object", "array"]}, "state": {"type": ["object", "null"]}}
    flags: Schema = {"type": "array", "items": {"type": "boolean"}}
    action = {"type": "object", "required": ["action"], "properties": {"action": {}}}
    session = {
        "type": "object",
        "required": ["session", "idle_seconds"],
        "properties": {"session": {"type": "string"}, "idle_seconds": {"type": "number"}},
    }
    needs = [] if "raw" in fields else ["observation"]
    parameter = {"name": "session", "in": "path", "required": True, "schema": {"type": "string"}}
    going_on = body(fields | {"episode_start": flags}, needs)
    return {
        "predict": {
            "summary": "The greedy action at one observation, or those at a batch.",
            "requestBody": body(fields, needs),
            "responses": answers({"200": ("Actions.", action)}),
        },
        "begin": {
            "summary": "Begin a session: episodes that are remembered between requests.",
            "responses": answers({"201": ("It has begun.", session)}),
        },
        "go_on": {
            "summary": "The next actions in the episodes of a session.",
            "parameters": [parameter],
            "requestBody": going_on,
            "responses": answers({"200": ("Actions.", action)}),
        },
        "end": {
            "summary": "End a session.",
            "parameters": [parameter],
            "responses": answers({"204": ("It has ended.", None)}),
        },
    }


def text_operations(model: TextModel) -> dict[str, Schema]:
    """What is said of the routes of a model that writes, by name."""
    text = {"type": "string"}
    whole = {"type": ["integer", "null"], "minimum": 1, "maximum": 2**31 - 1}
    part = {
        "type": "object",
        "properties": {"type": {"const": "text"}, "text": text},
        "required": ["type", "text"],
    }
    content = {"anyOf": [text, {"type": "array", "items": part}]}
    role = {"enum": ["system", "developer", "user", "assistant"]}
    message = {
        "type": "object",
        "properties": {"role": role, "content": content},
        "required": ["role", "content"],
    }
    ids = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
    several = {"type": "array", "items": {"anyOf": [text, ids]}, "minItems": 1}
    stop = text | {"minLength": 1, "maxLength": 256}
    stops = {"type": "array", "items": stop, "maxItems": 4}
    flag = {"type": ["boolean", "null"]}
    temperature = {"type": "number", "minimum": 0.01, "maximum": 2}
    fields: Schema = {
        "model": {"enum": [model.name, None]},
        **{"max_tokens": whole, "max_completion_tokens": whole},
        "n": {"type": ["integer", "null"], "minimum": 1, "maximum": model.rows},
        "temperature": {"anyOf": [{"const": 0}, temperature, {"type": "null"}]},
        "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**31 - 1},
        "stop": {"anyOf": [stop, stops, {"type": "null"}]},
        "stream": flag,
        "stream_options": {
            "type": ["object", "null"],
            "properties": {"include_usage": flag, "include_obfuscation": flag},
            "additionalProperties": False,
        },
    }
    written = answers({"200": ("Texts; with stream, server-sent events.", {"type": "object"})})
    written["200"]["content"]["text/event-stream"] = {}
    listed = answers({"200": ("What is served.", {"type": "object"})})
    messages = {"type": "array", "items": message, "minItems": 1}
    parameter = {"name": "model", "in": "path", "required": True, "schema": text}
    return {
        "chat": {
            "summary": "The next turn of a conversation, as OpenAI's clients ask for it.",
            "requestBody": body({"messages": messages} | fields, ["messages"]),
            "responses": written,
        },
        "complete": {
            "summary": "How a text goes on; no template is put around it.",
            "requestBody": body({"prompt": {"anyOf": [text, ids, several]}} | fields, ["prompt"]),
            "responses": written,
        },
        "models": {"summary": "What is served, in a list of one.", "responses": listed},
        "model": {
            "summary": "What is served under this name.",
            "parameters": [parameter],
            "responses": listed,
        },
    }


def answers(good: Mapping[str, tuple[str, Schema | None]]) -> Schema:
    """Responses: these, and the refusals."""
    refused = {
        status: {"description": words} | _content(PROBLEM) for status, words in REFUSALS.items()
    }
    given = {
        status: {"description": words} | ({} if schema is None else _content(schema))
        for status, (words, schema) in good.items()
    }
    return given | refused


def _content(schema: Schema) -> Schema:
    return {"content": {JSON: {"schema": schema}}}


def body(fields: Schema, required: list[str]) -> Schema:
    schema = {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }
    return {"required": True} | _content(schema)


def _one_or_many(kind: Mapping[str, Any]) -> Schema:
    """One observation, or rows of them; fields by name each the same."""
    if "fields" in kind:
        if "layout" in kind:  # nested: the sentence of a refusal is clearer than a schema
            return {"type": ["object", "array"]}
        fields = {name: _one_or_many(field) for name, field in kind["fields"].items()}
        return {"type": "object", "properties": fields, "required": sorted(fields)}
    one: Schema = {"type": "integer" if kind["dtype"].startswith(("int", "uint")) else "number"}
    if kind["dtype"] == "bool":
        one = {"type": ["boolean", "integer"]}
    for size in reversed(kind["shape"]):
        one = {"type": "array", "items": one, "minItems": size, "maxItems": size}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def document(title: str, description: str, routes: tuple[Route, ...], has_token: bool) -> Schema:
    """The OpenAPI document of these routes."""
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = dict(route.described)
    secured: Schema = {}
    if has_token:
        scheme = {"token": {"type": "http", "scheme": "bearer"}}
        secured = {"components": {"securitySchemes": scheme}, "security": [{"token": []}]}
    info = {"title": title, "version": version("proxima"), "description": description}
    return {"openapi": "3.1.0", "info": info, "paths": paths} | secured


def page(document: Mapping[str, Any]) -> str:
    """The document for people."""
    info = document["info"]
    parts = [f"<h1>{html.escape(info['title'])}</h1><p>{html.escape(info['description'])}</p>"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(operation['summary'])}</p>")
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"][JSON]["schema"]
                shown = html.escape(json.dumps(schema, indent=2))
                parts.append(f"<details><summary>Body</summary><pre>{shown}</pre></details>")
    title = html.escape(info["title"])
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    return f"<!doctype html><html lang=en>{head}<style>{STYLE}</style>{''.join(parts)}</html>"
