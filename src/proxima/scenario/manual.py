"""Every setting as a Markdown page: its default, what it may be and means, from the config classes."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from proxima.build import DOMAINS
from proxima.scenario.schema import json_schema
from proxima.scenario.tree import LAST, choices_of

Schema = Mapping[str, Any]
OPENING = """# Every setting

Written by `proxima schema --markdown` from the classes that read a scenario; do not edit it by hand.

A scenario is one YAML file. What it leaves out has the default below. A setting is changed in the file, by
`--set SECTION.KEY=VALUE`, or from Python by `proxima.load(NAME, {"section.key": value})`; a key that is not
here, or a value that is not allowed, is an error. *Number* and *whole number* are finite. Steps are those of
one environment, an update is one collection and what is learnt from it, and times are seconds unless a
setting says otherwise. `proxima scenarios NAME` shows a scenario with all of its settings."""
PLAIN_TYPES = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "string": "text",
    "object": "keys and values",
    "null": "null",
}
BOUNDS = {
    "exclusiveMinimum": "more than {}",
    "minimum": "at least {}",
    "exclusiveMaximum": "less than {}",
    "maximum": "at most {}",
    "minItems": "{} entries or more",
    "maxItems": "at most {} entries",
}


class Section(NamedTuple):
    """A config class at a place of a scenario."""

    path: str  # dotted; empty: the scenario itself
    kind: str  # the class's name
    choice: str  # what the section says to be of this class, such as `name: ppo`


def settings_page() -> str:
    """The page: a table for each section, those that several domains have once."""
    schema = json_schema()
    classes, domains = schema["$defs"], [branch["then"] for branch in schema["allOf"]]
    owners: dict[Section, list[str]] = {}
    for name, domain in zip(DOMAINS, domains, strict=True):
        keys = {choice.section: choice.key for choice in choices_of(name)}
        for section in _sections(domain["properties"], "", classes, keys):
            owners.setdefault(section, []).append(name)
    parts = [OPENING, _scenario_part(domains)]
    for section in sorted(owners, key=lambda section: (_top(section, owners), section.path)):
        parts.append(_section_part(section, owners, classes))
    return "\n\n".join(parts) + "\n"


def _top(section: Section, owners: Mapping[Section, list[str]]) -> int:
    """Sections stay in the order in which scenarios have them, with what is inside them."""
    tops = list(dict.fromkeys(known.path.partition(".")[0] for known in owners))
    first = sorted(tops, key=lambda top: top in LAST)
    return first.index(section.path.partition(".")[0])


def _sections(
    properties: Schema, above: str, classes: Schema, keys: Mapping[str, str]
) -> Iterator[Section]:
    """Every class that is reached from these properties, with its path; `keys` name what chooses it."""
    for key, schema in properties.items():
        path = f"{above}.{key}".lstrip(".")
        for kind in _classes_in(schema):
            inner = classes[kind]["properties"]
            choice = f"{keys[path]}: {inner[keys[path]]['const']}" if path in keys else ""
            yield Section(path, kind, choice)
            yield from _sections(inner, path, classes, {})


def _class_of(reference: str) -> str:
    return reference.rpartition("/")[2]


def _classes_in(schema: Any) -> list[str]:
    """The classes that a schema is made of."""
    if "$ref" in schema:
        return [_class_of(schema["$ref"])]
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    inner += [schema["items"]] if isinstance(schema.get("items"), dict) else []
    return [kind for part in inner for kind in _classes_in(part)]


def _scenario_part(domains: list[Schema]) -> str:
    """The scenario's own keys, its sections among them; which of these a scenario has, its domain says."""
    properties: dict[str, Any] = {}
    meanings: dict[str, dict[str, None]] = {}  # of each key, every domain's once, in their order
    for domain in domains:
        for key, schema in domain["properties"].items():
            properties.setdefault(key, schema)
            meanings.setdefault(key, {})[schema["description"]] = None
    properties = {
        key: {**schema, "description": " ".join(meanings[key])}
        for key, schema in properties.items()
    }
    first = {key: properties[key] for key in sorted(properties, key=lambda key: key in LAST)}
    return "\n\n".join(["## The scenario itself", _table("", first, [])])


def _section_part(section: Section, owners: Mapping[Section, list[str]], classes: Schema) -> str:
    schema, named = classes[section.kind], owners[section]
    depth = "###" if "." in section.path else "##"
    same = [other for other in owners if other.path == section.path]
    where = [f"`{section.choice}`"] if section.choice else []
    differs = any(owners[other] != named for other in same)
    if differs or (len(same) == 1 and len(named) < len(DOMAINS) and depth == "##"):
        where.append(" and ".join(filter(None, (", ".join(named[:-1]), named[-1]))))
    title = f"{depth} `{section.path}`" + (f", {', '.join(where)}" if where else "")
    table = _table(section.path, schema["properties"], schema.get("required", []))
    return "\n\n".join([title, schema["description"].replace("\n", " "), table])


def _table(path: str, properties: Schema, required: list[str]) -> str:
    rows = ["| setting | default | allowed | meaning |", "| --- | --- | --- | --- |"]
    for key, schema in properties.items():
        name = f"{path}.{key}".lstrip(".")
        default = "must be given" if key in required and "const" not in schema else _default(schema)
        meaning = " ".join(schema.get("description", "").split())
        cells = f"`{name}`", default, _allowed(schema), meaning
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _default(schema: Schema) -> str:
    if "default" in schema:
        return f"`{_written(schema['default'])}`"
    if "const" in schema:
        return f"`{schema['const']}`"
    if _classes_in(schema):
        return "its own below"
    return {"object": "`{}`", "array": "`[]`"}.get(schema.get("type", ""), "")


def _written(value: Any) -> str:
    """A value as YAML has it."""
    if value == "":
        return '""'
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _allowed(schema: Any) -> str:
    """The type and the bounds in words."""
    if schema is True or not schema:
        return "anything"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{_written(value)}`" for value in schema["enum"])
    if "$ref" in schema:
        return "a section"
    if inner := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        return " or ".join(dict.fromkeys(map(_allowed, inner)))
    bounds = [text.format(_number(schema[key])) for key, text in BOUNDS.items() if key in schema]
    kind = schema.get("type", "")
    name = "a list" + _entries(schema) if kind == "array" else PLAIN_TYPES.get(kind, "anything")
    return ", ".join([name, *bounds])


def _entries(schema: Schema) -> str:
    """What the entries of a list are."""
    if isinstance(items := schema.get("items"), dict) and items:
        return " of: " + _allowed(items)
    if "prefixItems" in schema:
        return " of: " + "; ".join(map(_allowed, schema["prefixItems"]))
    return ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
