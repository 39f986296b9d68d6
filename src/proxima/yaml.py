"""YAML by the 1.2 rules, read strictly: `3e-4` is a number, `no` is text, a key stands once.

Values are built from the composed nodes, so that every complaint can name its line. Mappings and lists
cannot be shared by aliases, which keeps a file as large as it looks.
"""

import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from proxima.core.addresses import masked
from proxima.core.errors import ProximaError

LONGEST_TEXT = 100_000  # characters; the longest scenario that is shipped has 2,500
DEEPEST = 64  # collections in each other; composing thousands would take minutes
MOST_DIGITS = 100  # of a whole number; more than 64 bits is refused where the setting is known


def read_yaml(text: str, source: str) -> Any:
    """The plain value that a text spells out, None for nothing; errors call it `source`."""
    if len(text) > LONGEST_TEXT:
        size = f"has {len(text):,} characters, and {LONGEST_TEXT:,} is the most"
        raise ProximaError(f"{source}: {size}; is it a scenario?")
    try:
        if _is_too_deep(text):
            raise ProximaError(f"{source}: is nested too deeply for a scenario")
        node = _parser().compose(text)
        return None if node is None else _construct(node, source, set())
    except ReaderError as failure:
        line = text.count("\n", 0, failure.position) + 1
        problem = f"the character {failure.character:#x} is not allowed in YAML"
        raise ProximaError(f"{source}: line {line}: {problem}") from failure
    except MarkedYAMLError as failure:
        remedy = "; indent with spaces, not tabs" if "'\\t'" in failure.problem else ""
        where = f"{source}: line {failure.problem_mark.line + 1}"
        raise ProximaError(f"{where}: not valid YAML: {failure.problem}{remedy}") from failure


def _parser() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 2)
    return yaml


def _is_too_deep(text: str) -> bool:
    """Whether there are more collections in each other than a scenario has; read no further than that."""
    depth = 0
    for event in _parser().parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > DEEPEST:
            return True
    return False


def _whole_number(text: str) -> int:
    has_base = text.lstrip("+-")[:2].lower() in ("0x", "0o", "0b")
    return int(text, 0 if has_base else 10)  # 017 is 17 in YAML 1.2


_TAGS = "tag:yaml.org,2002:"
_SCALARS: dict[str, Callable[[str], Any]] = {
    f"{_TAGS}null": lambda text: None,
    f"{_TAGS}bool": lambda text: {"true": True, "false": False}[text.lower()],
    f"{_TAGS}int": _whole_number,
    f"{_TAGS}float": lambda text: float(re.sub(r"\.(inf|nan)", r"\1", text.lower())),
    # the last three are text in YAML 1.2's core rules
    **{_TAGS + name: str for name in ("str", "timestamp", "value", "merge")},
}
_COLLECTIONS: dict[type[Node], str] = {MappingNode: f"{_TAGS}map", SequenceNode: f"{_TAGS}seq"}


def _construct(node: Node, source: str, seen: set[int]) -> Any:
    """The plain value of a YAML node; `seen` holds the collections met so far."""
    where = f"{source}: line {node.start_mark.line + 1}"
    tag = str(node.tag)
    if isinstance(node, ScalarNode) and tag in _SCALARS:
        if tag == f"{_TAGS}int" and len(node.value) > MOST_DIGITS:
            size = f"a whole number of {len(node.value):,} digits"
            raise ProximaError(f"{where}: {size} is not allowed: at most {MOST_DIGITS}")
        try:
            return _SCALARS[tag](node.value)
        except (KeyError, ValueError) as failure:
            kind = tag.removeprefix(_TAGS)
            raise ProximaError(f"{where}: {shown(node.value)} is not a YAML {kind}") from failure
    if tag != _COLLECTIONS.get(type(node)):
        name = tag.replace(_TAGS, "!!")
        raise ProximaError(f"{where}: the tag {name} is not allowed; write plain values")
    if id(node) in seen:
        raise ProximaError(f"{where}: an alias repeats a mapping or list; write it out instead")
    seen.add(id(node))
    if isinstance(node, MappingNode):
        return _construct_mapping(node, source, seen)
    return [_construct(item, source, seen) for item in node.value]


def _construct_mapping(node: MappingNode, source: str, seen: set[int]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = _construct(key_node, source, seen)
        where = f"{source}: line {key_node.start_mark.line + 1}"
        if not isinstance(key, str):
            raise ProximaError(f"{where}: the key {shown(key)} is not text; put it in quotes")
        if key in result:
            raise ProximaError(f"{where}: the key {key} stands here a second time; delete one")
        result[key] = _construct(value_node, source, seen)
    return result


def write_yaml(content: Mapping[str, Any]) -> str:
    """Text from which `read_yaml` makes equal content."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.allow_unicode = False  # rare line separators survive only when escaped
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = io.StringIO()
    yaml.dump(content, text)
    return text.getvalue()


def shown(value: Any) -> str:
    """A value as an error message quotes it."""
    text = masked(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 60 else f"{text[:59]}…"
