"""What is wrong with a scenario, in words: its keys and types, and settings that are each right alone."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxima.build import DOMAINS, domain
from proxima.core.faults import Fault, KeyPath
from proxima.scenario.search import search_faults
from proxima.scenario.tree import EnvironmentScenario, Scenario, dotted, section_keys, section_types
from proxima.train.curriculum import curriculum_faults
from proxima.yaml import shown

MOST_OF_A_NAME = 200  # bytes; the file system's 255 less what names of temporary files add


def common_faults(scenario: Scenario) -> Iterator[Fault]:
    """Settings that contradict each other, whatever the scenario is about."""
    name, endpoint = scenario.name, scenario.telemetry.otlp_endpoint
    if name.startswith(".") or set(name) & set("/\\") or not name.isprintable():
        rule = "names a directory: no slashes, line breaks or leading dot"
        yield Fault((("name",),), f"{shown(name)} is not allowed: it {rule}")
    if len(name.encode()) > MOST_OF_A_NAME:
        limit = f"it names a directory, so at most {MOST_OF_A_NAME} bytes"
        yield Fault((("name",),), f"{shown(name)} is not allowed: {limit}")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        remedy = "write http://HOST:4318, OTLP over HTTP's usual port"
        yield Fault((("telemetry", "otlp_endpoint"),), f"{shown(endpoint)} is no address; {remedy}")
    if scenario.search is not None:
        yield from search_faults(scenario.search)
    if isinstance(scenario, EnvironmentScenario):
        training = scenario.training
        if training.max_steps is None and training.max_episodes is None:
            paths = (("training", "max_steps"), ("training", "max_episodes"))
            text = "null, and training.max_episodes is null too: training would never end; set one"
            yield Fault(paths, text)
        block = training.trials_per_block
        if block is not None and scenario.trials % block and scenario.trials > block:
            text = f"{block} does not divide {scenario.trials} trials; blocks have the same width"
            yield Fault((("training", "trials_per_block"), ("trials",)), text)
        if scenario.curriculum is not None:
            source = scenario.convergence.source
            yield from curriculum_faults(scenario.curriculum, training.max_steps, source)


def type_faults(errors: Sequence[Any], merged: dict[str, Any]) -> list[Fault]:
    """One fault per key: a union reports each of its members, a list itself and its entries."""
    by_path: dict[KeyPath, list[Any]] = {}
    for error in errors:
        path = present(error["loc"], merged)[0]
        by_path.setdefault(path, []).append(error)
    inner = {path[:length] for path in by_path for length in range(len(path))}
    outer = [path for path in by_path if path not in inner]
    return [Fault((path,), _type_words(path, by_path[path], merged)) for path in outer]


_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "keys and values",
    "dataclass_type": "keys and values",
}
_LIMITS = {
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be finite",
    "too_short": "must have {min_length} or more entries",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be {expected}",
}


def _type_words(path: KeyPath, errors: Sequence[Any], merged: dict[str, Any]) -> str:
    kind, value = errors[0]["type"], errors[0]["input"]
    if kind == "unexpected_keyword_argument":
        return _unknown_key_words(path, value, merged)
    if kind in _LIMITS:
        limit = _LIMITS[kind].format(**errors[0].get("ctx", {})).replace("'", "")
        return f"{shown(value)} is not allowed: {limit}"
    if kind in _EXPECTED:
        expected = either(list(dict.fromkeys(_EXPECTED[error["type"]] for error in errors)))
        is_number = isinstance(value, bool | int | float)
        remedy = "; put it in quotes" if expected == "text" and is_number else ""
        return f"expected {expected}, got {shown(value)}{remedy}"
    return f"{shown(value)} is not allowed: {errors[0]['msg']}"


def _unknown_key_words(path: KeyPath, value: Any, merged: Mapping[str, Any]) -> str:
    """The nearest right name: the same key elsewhere, a like one here, a like one elsewhere."""
    section = dotted(part for part in path[:-1] if isinstance(part, str))
    key, sections = str(path[-1]), section_keys(merged)
    known = {
        f"{above}.{name}".lstrip("."): name for above, names in sections.items() for name in names
    }
    near = difflib.get_close_matches(key, sections[section], n=1)
    like = difflib.get_close_matches(key, known.values(), n=1)
    same = [full for full, name in known.items() if name == key]
    meant = same or near or [full for full, name in known.items() if name in like]
    what = "unknown section" if len(path) == 1 and isinstance(value, dict) else "unknown key"
    owners = [name for name in DOMAINS if key in section_types(domain(name).scenario)]
    if owners and not same and not section:
        return (
            f"{what} where the domain is {merged['domain']}; {either(owners)} has it: set domain or "
            "env.backend"
        )
    if meant:
        return f"{what}; did you mean {either(meant)}?"
    return f"{what}; {section or 'a scenario'} has {', '.join(sections[section])}"


def either(words: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def present(path: KeyPath, tree: Any) -> tuple[KeyPath, Any]:
    """The parts of a path that lead on through the tree, and where they end."""
    passed: KeyPath = ()
    for part in path:
        is_key = isinstance(tree, dict) and part in tree
        if is_key or (isinstance(tree, list) and part in range(len(tree))):
            passed, tree = (*passed, part), tree[part]
    return passed, tree
