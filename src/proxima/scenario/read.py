"""A scenario: one YAML file that says everything about an experiment, read strictly.

    defaults < YAML < overrides → merged → types checked → fields checked together → Scenario

Whatever is wrong is told in one ProximaError, a line per problem with its file and the key's path.
"""

import difflib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from annotated_types import Ge, Interval
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from proxima.algorithms.ppo import PPOConfig
from proxima.core.errors import ProximaError
from proxima.domains.control.config import EnvConfig
from proxima.nets.actor_critic import NetworkConfig
from proxima.track.tracker import TrackingConfig
from proxima.train.checkpoint import CheckpointConfig
from proxima.train.convergence import ConvergenceConfig
from proxima.train.evaluate import EvaluationConfig
from proxima.train.loop import TrainingConfig
from proxima.yaml import read_yaml, shown, write_yaml

_TYPE_RULES = ConfigDict(
    extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
)


@with_config(_TYPE_RULES)  # holds for the sections too: they bring no rules of their own
@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An experiment: a problem, an algorithm and a budget."""

    name: str = ""
    """The experiment's name, which is the file's name without its ending."""
    description: str = ""
    """One line for the list of scenarios."""
    seed: Annotated[int, Interval(ge=0, lt=2**31)] = 0
    """Seed of the first trial; trial k has seed + k."""
    trials: Annotated[int, Ge(1)] = 1
    """Independent repetitions."""
    output_directory: str = "logs"
    """Directory for results, checkpoints and plots."""
    env: EnvConfig = field(default_factory=EnvConfig)
    """The environment."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The nets."""
    # A second algorithm makes this Annotated[PPOConfig | ..., Discriminator("name")]; `_resolve`
    # then fills in a name left out, and `_section_keys` and `_FIELD_CHECKS` go by the name.
    algorithm: PPOConfig = field(default_factory=PPOConfig)
    """The algorithm and its settings."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The budget."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """How the policy is measured."""
    convergence: ConvergenceConfig = field(default_factory=ConvergenceConfig)
    """What counts as solved."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """What is saved."""
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    """Where runs are recorded."""


KeyPath = tuple[str | int, ...]
Overrides = Mapping[str, Any] | Sequence[str]


class Problem(NamedTuple):
    """What is wrong, and the keys that make it so, the one to name first."""

    paths: tuple[KeyPath, ...]
    text: str


def load(name_or_path: str | os.PathLike[str], overrides: Overrides | None = None) -> Scenario:
    """The scenario shipped under a name or written in a file, with the overrides laid over it."""
    path, source = _locate(name_or_path)
    written = parse(_read_text(path, source), source)
    problems = []
    if written.get("name", path.stem) != path.stem:
        told = f"{shown(written['name'])} is not the file's name; write {path.stem} or leave it out"
        problems.append(Problem((("name",),), told))
    changes = list(_changes(overrides or {}))
    return _resolve({**written, "name": path.stem}, source, changes, problems)


def from_mapping(mapping: Mapping[str, Any], source: str) -> Scenario:
    """The scenario that a mapping spells out; errors call it `source`."""
    return _resolve(mapping, source, [], [])


def to_mapping(scenario: Scenario) -> dict[str, Any]:
    """The whole scenario in plain values that JSON can hold."""
    return _plain(asdict(scenario), "scenario", ())


def dump(scenario: Scenario) -> str:
    """YAML from which `parse` and `from_mapping` make an equal scenario."""
    return write_yaml(to_mapping(scenario))


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file, for editors."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return dialect | _adapter().json_schema()


def shipped() -> dict[str, Path]:
    """The scenarios that come with the package, by name."""
    return {
        path.stem: path for path in sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))
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
        return Path(text), text
    known = shipped()
    if text in known:
        return known[text], known[text].name
    near = difflib.get_close_matches(text.lower(), known)
    local = [f"the file {text}.yaml"] if text and Path(f"{text}.yaml").is_file() else []
    meant = f"did you mean {_either([*near, *local])}? " if near or local else ""
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
            raise ProximaError(f"--set: {text}: expected section.key=value")
        yield from _leaves({key.strip(): read_yaml(value, f"--set: {key.strip()}")}, ())


def _leaves(mapping: Mapping[str, Any], above: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in mapping.items():
        path = (*above, *str(key).split("."))
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        else:
            yield path, value


def _resolve(
    base: Mapping[str, Any],
    source: str,
    changes: Sequence[tuple[KeyPath, Any]],
    problems: Sequence[Problem],
) -> Scenario:
    """The scenario that base and changes make, or one error with the problems, given and found."""
    # a section whose keys are all commented out is null, and means its defaults
    sections = _section_keys()
    used = {k: {} if v is None and k in sections else v for k, v in base.items()}
    written, merged = _plain(used, source, ()), _plain(used, source, ())
    for path, value in changes:
        _assign(merged, path, _plain(value, "--set", path))
    scenario, found = _validate(merged)
    if scenario is not None:
        found = [problem for check in _FIELD_CHECKS for problem in check(scenario)]
    if scenario is None or problems or found:
        lines = [f"{source}: {_dotted(paths[0])}: {text}" for paths, text in problems]
        for paths, text in found:
            changed = any(_is_changed(path, changes, written) for path in paths)
            lines.append(f"{'--set' if changed else source}: {_dotted(paths[0])}: {text}")
        raise ProximaError("\n".join(lines))
    return scenario


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
    raise ProximaError(f"{source}: {_dotted(path)}: {told}")


def _assign(mapping: dict[Any, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        if not isinstance(mapping.get(part), dict):
            mapping[part] = {}
        mapping = mapping[part]
    mapping[path[-1]] = value


def _present(path: KeyPath, tree: Any) -> tuple[KeyPath, Any]:
    """The parts of a path that lead on through the tree, and where they end."""
    present: KeyPath = ()
    for part in path:
        is_key = isinstance(tree, dict) and part in tree
        if is_key or (isinstance(tree, list) and part in range(len(tree))):
            present, tree = (*present, part), tree[part]
    return present, tree


def _is_changed(path: KeyPath, changes: Sequence[tuple[KeyPath, Any]], written: Any) -> bool:
    """Whether what stands at a path came from an override and not from the file."""
    present, value = _present(path, written)
    is_in_file = present == path and isinstance(value, dict)
    return any(
        path[: len(changed)] == changed or (changed[: len(path)] == path and not is_in_file)
        for changed, _ in changes
    )


@cache
def _adapter() -> TypeAdapter[Scenario]:
    return TypeAdapter(Scenario)


def _validate(merged: dict[str, Any]) -> tuple[Scenario | None, list[Problem]]:
    """The scenario if all keys and types are right, else what is wrong with them."""
    try:  # as JSON, where strict types still let a mapping be a config and a list a tuple
        return _adapter().validate_json(json.dumps(merged)), []
    except ValidationError as failure:
        errors = failure.errors(include_url=False)
    whole = [e["loc"] for e in errors if e["type"] == "int_type" and _is_whole(e["input"])]
    if not whole:
        return None, _type_problems(errors, merged)
    for location in whole:  # 1e5 is how people write 100000
        path, value = _present(location, merged)
        _present(path[:-1], merged)[1][path[-1]] = int(value)
    return _validate(merged)


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _type_problems(errors: Sequence[Any], merged: dict[str, Any]) -> list[Problem]:
    """One problem per key: a union reports each of its members, a list itself and its entries."""
    by_path: dict[KeyPath, list[Any]] = {}
    for error in errors:
        by_path.setdefault(_present(error["loc"], merged)[0], []).append(error)
    inner = {path[:length] for path in by_path for length in range(len(path))}
    return [
        Problem((path,), _type_words(path, found))
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


def _type_words(path: KeyPath, errors: Sequence[Any]) -> str:
    kind, value = errors[0]["type"], errors[0]["input"]
    if kind == "unexpected_keyword_argument":
        return _unknown_key_words(path, value)
    if kind in _LIMITS:
        limit = _LIMITS[kind].format(**errors[0].get("ctx", {})).replace("'", "")
        return f"{shown(value)} is not allowed: {limit}"
    if kind in _EXPECTED:
        expected = _either(list(dict.fromkeys(_EXPECTED[error["type"]] for error in errors)))
        is_number = isinstance(value, bool | int | float)
        remedy = "; put it in quotes" if expected == "text" and is_number else ""
        return f"expected {expected}, got {shown(value)}{remedy}"
    return f"{shown(value)} is not allowed: {errors[0]['msg']}"


@cache
def _section_keys() -> dict[str, list[str]]:
    """The keys of every section, and under the empty name those of the scenario itself."""
    hints = get_type_hints(Scenario)
    sections = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    keys = {name: [each.name for each in fields(kind)] for name, kind in sections.items()}
    return {"": list(hints)} | keys


def _unknown_key_words(path: KeyPath, value: Any) -> str:
    """The nearest right name: the same key elsewhere, a like one here, a like one elsewhere."""
    section, key = _dotted(path[:-1]), str(path[-1])
    sections = _section_keys()
    everywhere = [
        (name, f"{where}.{name}".lstrip(".")) for where in sections for name in sections[where]
    ]
    here = difflib.get_close_matches(key, sections[section], n=1)
    like = difflib.get_close_matches(key, [name for name, _ in everywhere], n=1)
    same = [dotted for name, dotted in everywhere if name == key]
    meant = same or here or [dotted for name, dotted in everywhere if name in like]
    what = "unknown section" if len(path) == 1 and isinstance(value, dict) else "unknown key"
    if meant:
        return f"{what}; did you mean {_either(meant)}?"
    return f"{what}; {section or 'a scenario'} has {', '.join(sections[section])}"


def _either(words: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _dotted(path: Iterable[str | int]) -> str:
    return ".".join(map(str, path))


def _name_problems(scenario: Scenario) -> Iterator[Problem]:
    name = scenario.name
    if name.startswith(".") or set(name) & set("/\\") or not name.isprintable():
        told = "names a directory: no slashes, line breaks or leading dot"
        yield Problem((("name",),), f"{shown(name)} is not allowed: it {told}")


def _batch_problems(scenario: Scenario) -> Iterator[Problem]:
    batch_path, size = ("algorithm", "batch_size"), scenario.algorithm.batch_size
    parts = {
        ("env", "num_envs"): scenario.env.num_envs,
        ("algorithm", "minibatch_size"): scenario.algorithm.minibatch_size,
    }
    step = math.lcm(*parts.values())
    below = size // step * step
    nearest = _either([str(value) for value in (below, below + step) if value])
    for path, part in parts.items():
        if size % part:
            told = f"{size} is not a multiple of {_dotted(path)} ({part})"
            yield Problem((batch_path, path), f"{told}; nearest that work: {nearest}")


def _budget_problems(scenario: Scenario) -> Iterator[Problem]:
    if scenario.training.max_steps is None and scenario.training.max_episodes is None:
        paths = (("training", "max_steps"), ("training", "max_episodes"))
        told = "null, and training.max_episodes is null too: training would never end; set one"
        yield Problem(paths, told)


def _normalization_problems(scenario: Scenario) -> Iterator[Problem]:
    config = scenario.algorithm
    if config.minibatch_size == 1 and config.normalize_advantages == "minibatch":
        paths = (("algorithm", "minibatch_size"), ("algorithm", "normalize_advantages"))
        told = "1 leaves nothing to normalize advantages over; take at least 2, or set "
        yield Problem(paths, told + "algorithm.normalize_advantages to batch or off")


_FIELD_CHECKS: tuple[Callable[[Scenario], Iterator[Problem]], ...] = (
    _name_problems,
    _batch_problems,
    _budget_problems,
    _normalization_problems,
)
