"""The JSON schema of a scenario file, for editors."""

from dataclasses import is_dataclass
from typing import Annotated, Any, Union

from pydantic import Discriminator, TypeAdapter

from proxima.build import DOMAINS, domain
from proxima.scenario.tree import (
    RULES,
    Choice,
    EnvironmentScenario,
    Scenario,
    choices_of,
    section_types,
)


def json_schema() -> dict[str, Any]:
    """One schema for each domain, chosen by what the file says."""
    definitions: dict[str, Any] = {}
    branches = []
    for name in DOMAINS:
        schema = _domain_schema(name)
        definitions |= schema.pop("$defs")
        branches.append({"if": _is_about(name), "then": schema})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        "allOf": branches,
    }


def _domain_schema(name: str) -> dict[str, Any]:
    """The schema of a domain's scenarios, every choice of theirs in it."""
    kind: Any = domain(name).scenario
    choices = choices_of(name)
    chosen = kind[tuple(map(_any_of, choices))] if choices else kind
    schema = TypeAdapter(chosen).json_schema()
    if choices:
        schema["required"] = []  # a section that is left out has the defaults of its first choice
    for choice in choices:
        for other in choice.names[1:]:  # without the key that names them, the first is meant
            schema["$defs"][choice.config(other).__name__]["required"] = [choice.key]
    schema["properties"] = {key: schema["properties"][key] for key in section_types(kind)}
    for parent in (Scenario, EnvironmentScenario[None, None]):
        _take_descriptions(schema, TypeAdapter(parent).json_schema())
    sections: list[Any] = [each for each in section_types(kind).values() if is_dataclass(each)]
    for section in sections:
        for inherited in filter(is_dataclass, section.__mro__[1:]):
            _take_descriptions(schema["$defs"][section.__name__], _config_schema(inherited))
    return schema


def _config_schema(config: Any) -> dict[str, Any]:
    """The schema of a config class that is no scenario."""
    alone: Any = list  # a class by itself takes no rules from outside; in a list it does
    definitions = TypeAdapter(alone[config], config=RULES).json_schema()["$defs"]
    schema: dict[str, Any] = definitions[config.__name__]
    return schema


def _take_descriptions(schema: dict[str, Any], parent: dict[str, Any]) -> None:
    """Describe inherited keys as the parent does: pydantic reads a class's own docstrings alone."""
    for key, described in parent["properties"].items():
        if key in schema["properties"] and "description" in described:
            schema["properties"][key].setdefault("description", described["description"])


def _any_of(choice: Choice) -> Any:
    """The union of the classes that a section can have."""
    members = tuple(choice.config(name) for name in choice.names)
    if len(members) == 1:
        return members[0]
    return Annotated[Union[members], Discriminator(choice.key)]  # noqa: UP007, the members are data


def _is_about(name: str) -> dict[str, Any]:
    """The schema of files that a domain's scenarios are in."""
    if name == next(iter(DOMAINS)):
        return {"not": {"anyOf": [_is_about(other) for other in DOMAINS if other != name]}}
    named = {"properties": {"domain": {"const": name}}, "required": ["domain"]}
    backends = {"properties": {"backend": {"enum": list(domain(name).backends)}}}
    by_backend = {
        "not": {"required": ["domain"]},
        "properties": {"env": backends | {"required": ["backend"]}},
        "required": ["env"],
    }
    return {"anyOf": [named, by_backend]}
