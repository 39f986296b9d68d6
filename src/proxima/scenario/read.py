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
from typing import Any

from pydantic import TypeAdapter, ValidationError

from proxima.core.addresses import masked, masked_tree
from proxima.core.errors import ProximaError
from proxima.core.paths import expand_home
from proxima.domains.language.checks import LANGUAGE_CHECKS
from proxima.domains.language.scenario import DOMAIN, LanguageScenario
from proxima.scenario.checks import FIELD_CHECKS
from proxima.scenario.tree import (
    CHOICES,
    KeyPath,
    Problem,
    Scenario,
    dotted,
    free_mappings,
    name_choices,
    root_of,
    section_keys,
)
from proxima.scenario.words import either, present, type_problems
from proxima.yaml import read_yaml, shown, write_yaml

Overrides = Mapping[str, Any] | Sequence[str]
AnyScenario = Scenario | LanguageScenario
_FREE = set(free_mappings())
PATH_KEYS = {"path", "output_directory", "uri"}  # of settings, in whichever section


def load(name_or_path: str | os.PathLike[str], overrides: Overrides | None = None) -> AnyScenario:
    """The scenario shipped under a name or written in a file, with the overrides laid over it."""
    path, source = _locate(name_or_path)
    written = parse(_read_text(path, source), source)
    problems = []
    if written.get("name", path.stem) != path.stem:
        told = f"{shown(written['name'])} is not the file's name; write {path.stem} or leave it out"
        problems.append(Problem((("name",),), told))
    changes = list(_changes(overrides or {}))
    return _resolve({**written, "name": path.stem}, source, changes, problems)


def from_mapping(mapping: Mapping[str, Any], source: str) -> AnyScenario:
    """The scenario that a mapping spells out; errors call it `source`."""
    return _resolve(mapping, source, [], [])


def with_environment(scenario: AnyScenario, instead: str) -> Scenario:
    """The scenario if it has an environment; for one about language an error that says what to do instead."""
    if isinstance(scenario, LanguageScenario):
        raise ProximaError(f"{scenario.name}: is about language and has no environment; {instead}")
    return scenario


def to_mapping(scenario: AnyScenario) -> dict[str, Any]:
    """The whole scenario in plain values that JSON can hold."""
    return _plain(asdict(scenario), "scenario", ())


def to_stored(scenario: AnyScenario) -> dict[str, Any]:
    """What files, trackers and pages may hold of a scenario: all of it but passwords in addresses."""
    return masked_tree(to_mapping(scenario))


def dump(scenario: AnyScenario) -> str:
    """YAML from which `parse` and `from_mapping` make an equal scenario, but for masked passwords."""
    return write_yaml(to_stored(scenario))


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file, for editors."""
    kinds = {}
    definitions: dict[str, Any] = {}
    for kind in (Scenario, LanguageScenario):
        kinds[kind] = _adapter(kind).json_schema()
        definitions |= kinds[kind].pop("$defs")
    for choice in CHOICES.values():
        _, *others = dict.fromkeys(choice.classes.values())
        for each in others:  # without the key that names them, the first is meant
            definitions[each.__name__]["required"] = [choice.key]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        "if": {"properties": {"domain": {"const": DOMAIN}}, "required": ["domain"]},
        "then": kinds[LanguageScenario],
        "else": kinds[Scenario],
    }


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


def _changes(overrides: Overrides) -> Iterator[tuple[KeyPath, Any]]:
    """The single values that overrides set, with their paths."""
    if isinstance(overrides, Mapping):
        yield from _leaves(overrides, ())
        return
    for text in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, value = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise ProximaError(f"--set: {masked(text)}: expected section.key=value")
        yield from _leaves({key.strip(): read_yaml(value, f"--set: {key.strip()}")}, ())


def _leaves(mapping: Mapping[str, Any], above: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """A section's mapping is laid over what is there, key by key; a free one takes its place."""
    for key, value in mapping.items():
        path = (*above, *str(key).split("."))
        if isinstance(value, Mapping) and path not in _FREE:
            yield from _leaves(value, path)
        else:
            yield path, value


def _resolve(
    base: Mapping[str, Any],
    source: str,
    changes: Sequence[tuple[KeyPath, Any]],
    problems: Sequence[Problem],
) -> AnyScenario:
    """The scenario that base and changes make, or one error with the problems, given and found."""
    # a section whose keys are all commented out is null, and means its defaults
    sections = _sections_of(base.get("domain"))
    used = {k: {} if v is None and k in sections else v for k, v in base.items()}
    written, merged = _plain(used, source, ()), _plain(used, source, ())
    _restart_sections(merged, changes)
    for path, value in changes:
        _assign(merged, path, _plain(value, "--set", path))
    _expand_homes(merged)
    name_choices(merged)
    scenario, found = _validate(merged)
    if scenario is not None:
        found = _field_problems(scenario)
    if scenario is None or problems or found:
        lines = [f"{source}: {dotted(paths[0])}: {text}" for paths, text in problems]
        for paths, text in found:
            changed = any(_is_changed(path, changes, written) for path in paths)
            lines.append(f"{'--set' if changed else source}: {dotted(paths[0])}: {text}")
        raise ProximaError("\n".join(lines))
    return scenario


def _expand_homes(merged: dict[str, Any]) -> None:
    """Replace the leading `~` of every setting that is a path."""
    for key, value in merged.items():
        if isinstance(value, dict):
            _expand_homes(value)
        elif key in PATH_KEYS and isinstance(value, str):
            merged[key] = expand_home(value)


def _sections_of(domain: Any) -> set[str]:
    """The sections that are always there."""
    shape: dict[str, Any] = {"env": {}, "algorithm": {}, "domain": domain}
    return {key for key in section_keys(shape) if key and "." not in key}


def _field_problems(scenario: AnyScenario) -> list[Problem]:
    if isinstance(scenario, LanguageScenario):
        return [problem for check in LANGUAGE_CHECKS for problem in check(scenario)]
    return [problem for check in FIELD_CHECKS for problem in check(scenario)]


def _restart_sections(merged: dict[str, Any], changes: Sequence[tuple[KeyPath, Any]]) -> None:
    """Empty the sections that a change makes another kind: what the file says is about the old one."""
    for path, value in changes:
        choice = CHOICES.get(str(path[0])) if len(path) == 2 else None
        if choice is None or path[1] != choice.key:
            continue
        written = merged.get(str(path[0]), {})
        if not isinstance(written, dict):
            continue
        kinds = [choice.classes.get(str(kind)) for kind in (written.get(choice.key), value)]
        if written.get(choice.key) is None:
            kinds[0] = next(iter(choice.classes.values()))
        if None not in kinds and kinds[0] is not kinds[1]:
            merged[str(path[0])] = {}


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


def _validate(merged: dict[str, Any]) -> tuple[AnyScenario | None, list[Problem]]:
    """The scenario if all keys and types are right, else what is wrong with them."""
    if merged.get("domain", DOMAIN) != DOMAIN:
        told = f"{shown(merged['domain'])} is not allowed: must be {DOMAIN}, or left out"
        return None, [Problem((("domain",),), told)]
    try:  # as JSON, where strict types still let a mapping be a config and a list a tuple
        kind: Any = root_of(merged)
        return _adapter(kind).validate_json(json.dumps(merged)), []
    except ValidationError as failure:
        errors = failure.errors(include_url=False)
    whole = [e["loc"] for e in errors if e["type"] == "int_type" and _is_whole(e["input"])]
    if not whole:
        return None, type_problems(errors, merged)
    for location in whole:  # 1e5 is how people write 100000
        path, value = present(location, merged)
        present(path[:-1], merged)[1][path[-1]] = int(value)
    return _validate(merged)


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()
