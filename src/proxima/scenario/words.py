"""What is wrong with the keys and types of a scenario, in words."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from proxima.core.faults import Fault, KeyPath
from proxima.scenario.tree import domains_with, dotted, section_keys
from proxima.yaml import shown


def type_faults(errors: Sequence[Any], merged: dict[str, Any]) -> list[Fault]:
    """One fault per key: a union reports each of its members, a list itself and its entries."""
    by_path: dict[KeyPath, list[Any]] = {}
    for error in errors:
        path = present(error["loc"], merged)[0]
        by_path.setdefault(path, []).append(error)
    inner = {path[:length] for path in by_path for length in range(len(path))}
    return [
        Fault((path,), _type_words(path, found, merged))
        for path, found in by_path.items()
        if path not in inner
    ]


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
    everywhere = [
        (name, f"{where}.{name}".lstrip(".")) for where in sections for name in sections[where]
    ]
    here = difflib.get_close_matches(key, sections[section], n=1)
    like = difflib.get_close_matches(key, [name for name, _ in everywhere], n=1)
    same = [place for name, place in everywhere if name == key]
    meant = same or here or [place for name, place in everywhere if name in like]
    what = "unknown section" if len(path) == 1 and isinstance(value, dict) else "unknown key"
    owners = [] if section else domains_with(key)
    if owners and not same:
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
    found: KeyPath = ()
    for part in path:
        is_key = isinstance(tree, dict) and part in tree
        if is_key or (isinstance(tree, list) and part in range(len(tree))):
            found, tree = (*found, part), tree[part]
    return found, tree
