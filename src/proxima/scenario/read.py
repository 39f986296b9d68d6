"""A scenario: one YAML file that says everything about an experiment, read strictly.

    defaults < YAML < overrides → merged → types checked → fields checked together → Scenario

Whatever is wrong is said in one ProximaError, a line per problem with its file and the key's path.
"""

import difflib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from proxima.build import DOMAINS, algorithm, domain, domain_of, make_importable
from proxima.core.addresses import masked, masked_tree
from proxima.core.errors import Contradiction, ProximaError
from proxima.core.faults import Fault, KeyPath
from proxima.core.paths import expand_home, path_problem, usable_path
from proxima.scenario.bounds import bound, size_faults
from proxima.scenario.tree import (
    EnvironmentScenario,
    Scenario,
    choices_of,
    class_of,
    domain_name,
    dotted,
    free_mappings,
    is_optional,
    network,
    section_types,
)
from proxima.scenario.words import common_faults, either, present, type_faults
from proxima.yaml import read_yaml, shown, write_yaml

Overrides = Mapping[str, Any] | Sequence[str]
Changes = Sequence[tuple[KeyPath, Any]]  # single values with their paths
PATH_KEYS = {"path", "output_directory", "uri"}  # of settings, in whichever section


def load(name_or_path: str | os.PathLike[str], overrides: Overrides | None = None) -> Scenario:
    """The scenario shipped under a name or written in a file, with the overrides laid over it."""
    path, source = _locate(name_or_path)
    make_importable(Path.cwd(), *([] if path in shipped().values() else [path.parent]))
    written = parse(_read_text(path, source), source)
    _find_beside(written, path)
    problems = []
    if written.get("name", path.stem) != path.stem:
        remedy = f"write {path.stem} or leave it out"
        name = shown(written["name"])
        problems.append(f"{source}: name: {name} is not the file's name; {remedy}")
    return _resolve({**written, "name": path.stem}, source, overrides or {}, problems)


def _find_beside(written: dict[str, Any], path: Path) -> None:
    """A table of configurations that lies beside the scenario's file is named by its whole path."""
    search = written.get("search")
    if not isinstance(search, dict):
        return
    table = search.get("path")
    if isinstance(table, str) and (path.parent / table).is_file():
        search["path"] = str((path.parent / table).resolve())


def from_mapping(mapping: Mapping[str, Any], source: str) -> Scenario:
    """The scenario that a mapping spells out; errors call it `source`."""
    return _resolve(mapping, source, {})


def changed(scenario: Scenario, overrides: Overrides, source: str) -> Scenario:
    """The scenario with overrides laid over it; errors call it `source`."""
    return _resolve(to_mapping(scenario), source, overrides)


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
    kind: Any = type(scenario)
    return {name: plain[name] for name in section_types(kind)}


def to_stored(scenario: Scenario) -> dict[str, Any]:
    """What files, trackers and pages may hold of a scenario: all of it but passwords in addresses."""
    return {name: masked_tree(value) for name, value in to_mapping(scenario).items()}


def dump(scenario: Scenario) -> str:
    """YAML from which `parse` and `from_mapping` make an equal scenario, but for masked passwords."""
    return write_yaml(to_stored(scenario))


def shipped() -> dict[str, Path]:
    """The scenarios that come with the package, by name."""
    folder = Path(__file__).parent.parent / "scenarios"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


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
        return Path(usable_path(text)), text
    known = shipped()
    if text in known:
        return known[text], known[text].name
    usable_path(f"{text}.yaml")
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


def _resolve(
    base: Mapping[str, Any], source: str, overrides: Overrides, problems: Sequence[str] = ()
) -> Scenario:
    """The scenario that base and overrides make, or one error with the problems, given and noticed."""
    changes = list(_changes(overrides, base))
    written = _overlaid(base, source, [])
    changed = _overlaid(base, source, changes)
    sections = _sections(changed, "--set" if ("domain",) in dict(changes) else source)
    # a section whose keys are all commented out is null, and means its defaults
    written |= {key: {} for key in sections if key in written and written[key] is None}
    outdated: dict[str, Any] = {key: {} for key in _outdated(written, changed)}
    merged = _overlaid(written | outdated, source, changes)
    faults = list(_expand_homes(merged))
    scenario, kind = None, ProximaError
    if not faults:
        scenario, faults = _validate(merged)
    if scenario is not None:
        scenario, kind = _with_defaults(scenario, merged), Contradiction
        faults = list(_faults(scenario))
    if scenario is not None and not faults and not problems:
        return scenario
    lines = list(problems)
    for paths, text in faults:
        is_override = any(_is_changed(path, changes, written) for path in paths)
        lines.append(f"{'--set' if is_override else source}: {dotted(paths[0])}: {text}")
    raise kind("\n".join(lines))


def _changes(overrides: Overrides, base: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """The single values that overrides set, with their paths."""
    name = domain_name(base)
    is_known = name in DOMAINS or ":" in name
    # keys whose mappings are not ours; of a scenario whose domain nobody knows, none
    free = set(free_mappings(domain(name).scenario)) if is_known else set()
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
    """A section's mapping is laid over what the file says, key by key; a free one replaces it."""
    for key, value in mapping.items():
        path = (*above, *str(key).split("."))
        if isinstance(value, Mapping) and path not in free:
            yield from _leaves(value, path, free)
        else:
            yield path, value


def _overlaid(base: Mapping[str, Any], source: str, changes: Changes) -> dict[str, Any]:
    """A plain copy of the base with the changes in it."""
    merged: dict[str, Any] = _plain(base, source, ())
    for path, value in changes:
        section: dict[Any, Any] = merged
        for key in path[:-1]:
            if not isinstance(section.get(key), dict):
                section[key] = {}
            section = section[key]
        section[path[-1]] = _plain(value, "--set", path)
    return merged


def _sections(merged: Mapping[str, Any], source: str) -> list[str]:
    """The sections that such a scenario always has; an error where its domain is not known."""
    if not isinstance(merged.get("domain"), str | None):
        raise ProximaError(f"{source}: domain: expected text, got {shown(merged['domain'])}")
    name = domain_name(merged)
    if name not in DOMAINS and ":" not in name:
        near = difflib.get_close_matches(name, DOMAINS, 1)
        hint = f"did you mean {near[0]}? It" if near else "It"
        names = either([*DOMAINS, "your own as package.module:DOMAIN"])
        raise ProximaError(f"{source}: domain: {shown(name)} is not known; {hint} must be {names}")
    types = section_types(domain(name).scenario)
    return [key for key, hint in types.items() if hint not in (str, int) and not is_optional(hint)]


def _outdated(written: Mapping[str, Any], changed: Mapping[str, Any]) -> Iterator[str]:
    """The sections that changes make another kind: what the file says there is about the old one."""
    before, after = domain_name(written), domain_name(changed)
    if before != after:
        yield from (key for key in ("env", "network") if isinstance(written.get(key), dict))
    for choice in choices_of(after):
        old, new = written.get(choice.section), changed.get(choice.section)
        if isinstance(old, dict) and isinstance(new, dict):
            first = choice.names[0]
            if (old.get(choice.key) or first) != (new.get(choice.key) or first):
                yield choice.section


def _faults(scenario: Scenario) -> Iterator[Fault]:
    """What is wrong with settings that are each right alone."""
    yield from common_faults(scenario)
    yield from size_faults(to_mapping(scenario))
    yield from domain_of(scenario).checks(scenario)
    if isinstance(scenario, EnvironmentScenario):
        yield from network(domain_of(scenario), scenario.network.kind).checks(scenario)
        yield from algorithm(scenario.algorithm.name).checks(scenario)


def _expand_homes(merged: dict[str, Any], above: KeyPath = ()) -> Iterator[Fault]:
    """Replace the leading `~` of every setting that is a path; what no path can be is a fault."""
    for key, value in merged.items():
        if isinstance(value, dict):
            yield from _expand_homes(value, (*above, key))
        elif key in PATH_KEYS and isinstance(value, str):
            if problem := path_problem(value):
                yield Fault(((*above, key),), f"{shown(value)} {problem}")
            merged[key] = expand_home(value)


def _plain(value: Any, source: str, path: KeyPath) -> Any:
    """A copy made of dicts, lists and scalars only."""
    if problem := bound(value, len(path)):
        raise ProximaError(f"{source}: {dotted(path)}: {problem}")
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, source, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, source, (*path, index)) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str) and value.encode(errors="ignore").decode() == value:
        return value
    kinds = "number, text, true, false, null, list or mapping with text keys"
    raise ProximaError(f"{source}: {dotted(path)}: {value!r} is not a {kinds}")


def _is_changed(path: KeyPath, changes: Changes, written: Mapping[str, Any]) -> bool:
    """Whether what stands at a path came from an override and not from the file."""
    known, value = present(path, written)
    is_in_file = known == path and isinstance(value, dict)
    return any(
        path[: len(changed)] == changed or (changed[: len(path)] == path and not is_in_file)
        for changed, _ in changes
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _validate(merged: dict[str, Any]) -> tuple[Scenario | None, list[Fault]]:
    """The scenario if all keys and types are right, else what is wrong with them."""
    faults = list(_name_choices(merged))
    if faults:
        return None, faults
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
    return _validate(merged)


def _with_defaults(scenario: Scenario, merged: Mapping[str, Any]) -> Scenario:
    """The scenario with what its algorithm chooses by the number of environments, where it does not say."""
    if not isinstance(scenario, EnvironmentScenario):
        return scenario
    config, whole = scenario.algorithm, to_mapping(scenario)
    chosen = algorithm(config.name).defaults(merged["algorithm"], whole["env"]["num_envs"])
    return replace(scenario, algorithm=replace(config, **chosen))


def _name_choices(merged: dict[str, Any]) -> Iterator[Fault]:
    """Write the keys by which classes are chosen where they were left out; names that no table has."""
    merged["domain"] = domain_name(merged)
    for choice in choices_of(merged["domain"]):
        section = merged.setdefault(choice.section, {})
        if not isinstance(section, dict):
            yield Fault(((choice.section,),), f"expected keys and values, got {shown(section)}")
            continue
        name = section.setdefault(choice.key, choice.names[0])
        if name in choice.names:
            continue
        text = f"{shown(name)} is not allowed: must be {either(choice.names)}"
        if isinstance(name, str) and ":" in name:
            if get_type_hints(choice.config(name)).get(choice.key) is str:
                continue
            text = (
                f"the config of {name} needs a field `{choice.key}: str`: its path is written there"
            )
        yield Fault(((choice.section, choice.key),), text)


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()
