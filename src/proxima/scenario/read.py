"""A scenario: one YAML file that says everything about an experiment, read strictly.

    defaults < YAML < overrides → merged → types checked → fields checked together → Scenario

Whatever is wrong is told in one ProximaError, a line per problem with its file and the key's path.
"""

import difflib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_type_hints

from pydantic import Discriminator, TypeAdapter, ValidationError

from proxima.build import DOMAINS, algorithm, domain, domain_of, make_importable
from proxima.core.addresses import masked, masked_tree
from proxima.core.errors import ProximaError
from proxima.core.faults import Fault, KeyPath
from proxima.core.paths import expand_home
from proxima.scenario.checks import common_faults
from proxima.scenario.tree import (
    EnvironmentScenario,
    Scenario,
    choices_of,
    class_of,
    domain_name,
    dotted,
    free_mappings,
    is_optional,
    name_choices,
    network,
    section_types,
)
from proxima.scenario.words import either, present, type_faults
from proxima.yaml import read_yaml, shown, write_yaml

Overrides = Mapping[str, Any] | Sequence[str]
PATH_KEYS = {"path", "output_directory", "uri"}  # of settings, in whichever section


def load(name_or_path: str | os.PathLike[str], overrides: Overrides | None = None) -> Scenario:
    """The scenario shipped under a name or written in a file, with the overrides laid over it."""
    path, source = _locate(name_or_path)
    make_importable(Path.cwd(), *([] if path in shipped().values() else [path.parent]))
    written = parse(_read_text(path, source), source)
    faults: list[Fault] = []
    if written.get("name", path.stem) != path.stem:
        told = f"{shown(written['name'])} is not the file's name; write {path.stem} or leave it out"
        faults.append(Fault((("name",),), told))
    base = {**written, "name": path.stem}
    return _resolve(base, source, list(_changes(overrides or {}, _free_keys(base))), faults)


def from_mapping(mapping: Mapping[str, Any], source: str) -> Scenario:
    """The scenario that a mapping spells out; errors call it `source`."""
    return _resolve(mapping, source, [], [])


def changed(scenario: Scenario, overrides: Overrides, source: str) -> Scenario:
    """The scenario with overrides laid over it; errors call it `source`."""
    base = to_mapping(scenario)
    return _resolve(base, source, list(_changes(overrides, _free_keys(base))), [])


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The dotted keys in which two scenarios, as plain mappings, differ."""
    keys = []
    for key in dict.fromkeys([*first, *second]):
        old, new = first.get(key), second.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            keys += [f"{key}.{inner}" for inner in differences(old, new)]
        elif old != new:
            keys.append(str(key))
    return keys


def to_mapping(scenario: Scenario) -> dict[str, Any]:
    """The whole scenario in plain values that JSON can hold."""
    plain = _plain(asdict(scenario), "scenario", ())
    return {name: plain[name] for name in section_types(type(scenario))}


def to_stored(scenario: Scenario) -> dict[str, Any]:
    """What files, trackers and pages may hold of a scenario: all of it but passwords in addresses."""
    return masked_tree(to_mapping(scenario))


def dump(scenario: Scenario) -> str:
    """YAML from which `parse` and `from_mapping` make an equal scenario, but for masked passwords."""
    return write_yaml(to_stored(scenario))


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file, for editors: one for each domain, chosen by what the file says."""
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
    choices = {each.section: each for each in choices_of(name)}
    if not choices:
        schema = _adapter(kind).json_schema()
    else:
        members = [
            _union([choices[section].config(each) for each in choices[section].names], key)
            for section, key in (("algorithm", "name"), ("network", "kind"))
        ]
        schema = _adapter(kind[tuple(members)]).json_schema()
        schema["required"] = []  # a section that is left out has the defaults of its first choice
        for choice in choices.values():
            _, *others = (choice.config(each).__name__ for each in choice.names)
            for each in others:  # without the key that names them, the first is meant
                schema["$defs"][each]["required"] = [choice.key]
    schema["properties"] = {key: schema["properties"][key] for key in section_types(kind)}
    for parent in (Scenario, EnvironmentScenario[None, None]):  # where inherited keys are described
        for key, described in _adapter(parent).json_schema()["properties"].items():
            if key in schema["properties"] and "description" in described:
                schema["properties"][key].setdefault("description", described["description"])
    return schema


def _union(members: Sequence[type], key: str) -> Any:
    if len(members) == 1:
        return members[0]
    return Annotated[Union[tuple(members)], Discriminator(key)]  # noqa: UP007, the members are data


def _is_about(name: str) -> dict[str, Any]:
    """The schema of files that a domain's scenarios are in."""
    named = {"properties": {"domain": {"const": name}}, "required": ["domain"]}
    backends = {"properties": {"backend": {"enum": list(domain(name).backends)}}}
    by_backend = {
        "not": {"required": ["domain"]},
        "properties": {"env": backends | {"required": ["backend"]}},
        "required": ["env"],
    }
    if name != next(iter(DOMAINS)):
        return {"anyOf": [named, by_backend]}
    others = [_is_about(other) for other in DOMAINS if other != name]
    return {"not": {"anyOf": others}}


def shipped() -> dict[str, Path]:
    """The scenarios that come with the package, by name."""
    return {
        path.stem: path
        for path in sorted((Path(__file__).parent.parent / "scenarios").glob("*.yaml"))
    }


def describe(name_or_path: str | os.PathLike[str]) -> str:
    """The description that a scenario gives of itself."""
    return load(name_or_path).description


def parse(text: str, source: str) -> dict[str, Any]:
    """The mapping that a YAML text spells out; errors call it `source`."""
    value = read_yaml(text, source)
    if value is None:
        raise ProximaError(f"{source}: is empty; write at least `env: {{name: CartPole-v1}}`")
    if not isinstance(value, dict):
        raise ProximaError(f"{source}: expected keys and values, got {shown(value)}")
    return value


def _locate(name_or_path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Where a scenario is written, and what errors call that place."""
    text = os.fspath(name_or_path)
    is_name = isinstance(name_or_path, str) and "/" not in text
    if not is_name or text.endswith((".yaml", ".yml")):
        return Path(expand_home(text)), text
    known = shipped()
    if text in known:
        return known[text], known[text].name
    near = difflib.get_close_matches(text.lower(), known)
    local = [f"the file {text}.yaml"] if text and Path(f"{text}.yaml").is_file() else []
    meant = f"did you mean {either([*near, *local])}? " if near or local else ""
    raise ProximaError(f"{text}: no such scenario; {meant}`proxima scenarios` lists all")


def _read_text(path: Path, source: str) -> str:
    if path.is_dir():
        raise ProximaError(f"{source}: is a directory; name the .yaml file in it")
    if not path.exists():
        hint = f"; the shipped scenario is called {path.stem}" if path.stem in shipped() else ""
        raise ProximaError(f"{source}: no such file{hint}")
    if not path.is_file():  # a device or a pipe might never end
        raise ProximaError(f"{source}: is not a regular file")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as failure:
        raise ProximaError(f"{source}: cannot be read: {failure.strerror}") from failure
    except UnicodeDecodeError as failure:
        raise ProximaError(f"{source}: is not UTF-8 text, so not a YAML file") from failure


def _changes(overrides: Overrides, free: set[KeyPath]) -> Iterator[tuple[KeyPath, Any]]:
    """The single values that overrides set, with their paths."""
    if isinstance(overrides, Mapping):
        yield from _leaves(overrides, (), free)
        return
    for text in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, value = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise ProximaError(f"--set: {masked(text)}: expected section.key=value")
        yield from _leaves({key.strip(): read_yaml(value, f"--set: {key.strip()}")}, (), free)


def _leaves(
    mapping: Mapping[str, Any], above: KeyPath, free: set[KeyPath]
) -> Iterator[tuple[KeyPath, Any]]:
    """A section's mapping is laid over what is there, key by key; a free one replaces it."""
    for key, value in mapping.items():
        path = (*above, *str(key).split("."))
        if isinstance(value, Mapping) and path not in free:
            yield from _leaves(value, path, free)
        else:
            yield path, value


def _free_keys(base: Mapping[str, Any]) -> set[KeyPath]:
    """The keys whose mappings are not ours; of a scenario whose domain nobody knows, none."""
    name = domain_name(base)
    return set(free_mappings(domain(name).scenario)) if name in DOMAINS or ":" in name else set()


def _resolve(
    base: Mapping[str, Any],
    source: str,
    changes: Sequence[tuple[KeyPath, Any]],
    faults: Sequence[Fault],
) -> Scenario:
    """The scenario that base and changes make, or one error with the faults, given and found."""
    changed_domain = dict(changes).get(("domain",), base.get("domain"))
    named = {"domain": changed_domain} if changed_domain else {}
    sections = _sections_of({**base, **named}, "--set" if ("domain",) in dict(changes) else source)
    # a section whose keys are all commented out is null, and means its defaults
    used = {k: {} if v is None and k in sections else v for k, v in base.items()}
    written, merged = _plain(used, source, ()), _plain(used, source, ())
    _restart_sections(merged, changes)
    for path, value in changes:
        _assign(merged, path, _plain(value, "--set", path))
    _expand_homes(merged)
    scenario, found = _validate(merged, source)
    if scenario is not None:
        found = list(_faults(scenario))
    if scenario is None or faults or found:
        lines = [f"{source}: {dotted(paths[0])}: {text}" for paths, text in faults]
        for paths, text in found:
            changed = any(_is_changed(path, changes, written) for path in paths)
            lines.append(f"{'--set' if changed else source}: {dotted(paths[0])}: {text}")
        raise ProximaError("\n".join(lines))
    return scenario


def _sections_of(base: Mapping[str, Any], source: str) -> set[str]:
    """The sections that are always there."""
    if not isinstance(base.get("domain"), str | None):
        raise ProximaError(f"{source}: domain: expected text, got {shown(base['domain'])}")
    name = domain_name(base)
    if name not in DOMAINS and ":" not in name:
        near = difflib.get_close_matches(name, DOMAINS, 1)
        hint = f"did you mean {near[0]}? It" if near else "It"
        names = either([*DOMAINS, "your own as package.module:DOMAIN"])
        raise ProximaError(f"{source}: domain: {shown(name)} is not known; {hint} must be {names}")
    types = section_types(domain(name).scenario)
    return {
        key
        for key, hint in types.items()
        if hint not in (str, int) and not is_optional(hint) and key not in ("seed", "trials")
    }


def _faults(scenario: Scenario) -> Iterator[Fault]:
    """What is wrong with settings that are each right alone."""
    yield from common_faults(scenario)
    yield from domain_of(scenario).checks(scenario)
    if isinstance(scenario, EnvironmentScenario):
        yield from network(domain_of(scenario), scenario.network.kind).checks(scenario)
        yield from algorithm(scenario.algorithm.name).checks(scenario)


def _restart_sections(merged: dict[str, Any], changes: Sequence[tuple[KeyPath, Any]]) -> None:
    """Empty the sections that a change makes another kind: what the file says is about the old one."""
    before = domain_name(merged)
    after = domain_name({"domain": merged.get("domain"), **_overlaid(merged, changes)})
    if before != after:
        merged["domain"] = after
        for section in ("env", "network"):
            if isinstance(merged.get(section), dict):
                merged[section] = {}
    for choice in choices_of(after):
        written = merged.get(choice.section)
        if not isinstance(written, dict):
            continue
        old = written.get(choice.key) or choice.names[0]
        new = dict(changes).get((choice.section, choice.key), old)
        if old != new and isinstance(new, str):
            merged[choice.section] = {}


def _overlaid(merged: Mapping[str, Any], changes: Sequence[tuple[KeyPath, Any]]) -> dict[str, Any]:
    """What the merged scenario would say of its domain and backend after the changes."""
    changed, env = dict(changes), merged.get("env")
    backend = env.get("backend") if isinstance(env, dict) else None
    return {
        "domain": changed.get(("domain",), merged.get("domain")),
        "env": {"backend": changed.get(("env", "backend"), backend)},
    }


def _expand_homes(merged: dict[str, Any]) -> None:
    """Replace the leading `~` of every setting that is a path."""
    for key, value in merged.items():
        if isinstance(value, dict):
            _expand_homes(value)
        elif key in PATH_KEYS and isinstance(value, str):
            merged[key] = expand_home(value)


def _plain(value: Any, source: str, path: KeyPath) -> Any:
    """A copy made of dicts, lists and scalars only."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, source, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, source, (*path, index)) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str) and value.encode(errors="ignore").decode() == value:
        return value
    told = f"{value!r} is not a number, text, true, false, null, list or mapping with text keys"
    raise ProximaError(f"{source}: {dotted(path)}: {told}")


def _assign(mapping: dict[Any, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        if not isinstance(mapping.get(part), dict):
            mapping[part] = {}
        mapping = mapping[part]
    mapping[path[-1]] = value


def _is_changed(path: KeyPath, changes: Sequence[tuple[KeyPath, Any]], written: Any) -> bool:
    """Whether what stands at a path came from an override and not from the file."""
    found, value = present(path, written)
    is_in_file = found == path and isinstance(value, dict)
    return any(
        path[: len(changed)] == changed or (changed[: len(path)] == path and not is_in_file)
        for changed, _ in changes
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _validate(merged: dict[str, Any], source: str) -> tuple[Scenario | None, list[Fault]]:
    """The scenario if all keys and types are right, else what is wrong with them."""
    name_choices(merged)
    wrong = list(_choice_faults(merged))
    if wrong:
        return None, wrong
    try:  # as JSON, where strict types still let a mapping be a config and a list a tuple
        return _adapter(class_of(merged)).validate_json(json.dumps(merged)), []
    except ValidationError as failure:
        errors = failure.errors(include_url=False)
    whole = [e["loc"] for e in errors if e["type"] == "int_type" and _is_whole(e["input"])]
    if not whole:
        return None, type_faults(errors, merged)
    for location in whole:  # 1e5 is how people write 100000
        path, value = present(location, merged)
        present(path[:-1], merged)[1][path[-1]] = int(value)
    return _validate(merged, source)


def _choice_faults(merged: Mapping[str, Any]) -> Iterator[Fault]:
    """Names by which a section's class is chosen that stand in no table."""
    for choice in choices_of(merged["domain"]):
        section = merged[choice.section]
        if not isinstance(section, dict):
            yield Fault(((choice.section,),), f"expected keys and values, got {shown(section)}")
            continue
        name = section[choice.key]
        if name in choice.names:
            continue
        if isinstance(name, str) and ":" in name:
            if get_type_hints(choice.config(name)).get(choice.key) is not str:
                text = f"the config of {name} needs a field `{choice.key}: str`: its path is written there"
                yield Fault(((choice.section, choice.key),), text)
            continue
        text = f"{shown(name)} is not allowed: must be {either(list(choice.names))}"
        yield Fault(((choice.section, choice.key),), text)


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()
