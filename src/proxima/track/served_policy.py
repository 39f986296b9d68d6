"""An exported policy as a function, and as the model MLflow serves.

MLflow copies this one file beside the policy and runs it wherever the model is loaded, so it
imports nothing of Proxima: a directory with `policy.json`, `policy.safetensors` and
`policy.stablehlo` is all that is needed to act.

    program(weights by name, {"observation": (n, ...)}) → {"action": (n, ...)}

From the environment's own observations to its own actions, nothing is left to do before or after.
`policy.json` says what both look like, and by their SHA-256 which files belong together. Where either is
made of several arrays, these are `fields` by name; a `layout` says how the environment nests them, where
the names do not: an object is a dict, a list a tuple, and a text the name of a field. A policy with a memory
takes it as another input and gives it as another output; zeros begin an episode.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

FORMAT = 1  # of policy.json and the program; one more whenever an older reader would misread them
RICH_FORMAT = 2  # of a policy with a memory, or whose actions are arrays by name
ABOUT, WEIGHTS, PROGRAM = "policy.json", "policy.safetensors", "policy.stablehlo"
REMEDY = "put the file back, or export the policy again by running its scenario again"
# What must be in policy.json for the policy to be used, and as what.
FIELDS: dict[str, type] = {
    **{"observation": dict, "action": dict, "weights": dict, "weights_sha256": str},
    **{"algorithm": str, "env": str, "checkpoint.kind": str, "checkpoint.step": int},
    **{"program": dict, "program.sha256": str, "program.inputs": list, "program.outputs": list},
}

Act = Callable[[Any], Any]  # observations → actions, an array or one for each named field
Memory = dict[str, np.ndarray]  # by name, a row for each episode; empty without one


class PolicyError(ValueError):
    """A policy's files are damaged or do not belong together; says which file and which field."""


class Loaded(NamedTuple):
    """A policy that can act, and what its policy.json says of it."""

    act: Act  # n first observations of episodes, or a single one → greedy actions (n, ...)
    about: dict[str, Any]
    # n observations and what is remembered of their episodes, nothing where they begin → actions, and what
    # is remembered after them
    step: Callable[[Any, Memory], tuple[Any, Memory]]


class Player:
    """A policy that plays episodes step by step and remembers them, a row each."""

    def __init__(self, policy: Loaded):
        self._policy = policy
        self._memory: Memory = {}  # every episode begins

    def reset(self) -> None:
        """From now on every row is of a new episode."""
        self._memory = {}

    def act(self, observations: Any, episode_start: Any = None) -> Any:
        """Greedy actions at the next observations; rows marked in `episode_start` begin a new episode."""
        actions, self._memory = play(self._policy, observations, self._memory, episode_start)
        return actions


def play(
    policy: Loaded, observations: Any, memory: Mapping[str, Any], episode_start: Any = None
) -> tuple[Any, Memory]:
    """Greedy actions at the next observations of episodes, one a row, and what is remembered after them.

    An empty memory begins them all; rows marked in `episode_start` begin a new one.
    """
    rows = as_rows(observations, policy.about["observation"])
    count = _count(rows)
    begins = np.zeros(count, bool) if episode_start is None else np.atleast_1d(episode_start)
    if begins.shape != (count,):
        raise ValueError(f"episode_start has the shape {begins.shape}; one flag a row: ({count},)")
    blank = first_memory(policy.about, count)
    memory = _checked_memory(memory, blank, count) if memory else blank
    kept = {}
    for name, part in memory.items():
        spread = begins.astype(bool).reshape(-1, *(1,) * (part.ndim - 1))
        kept[name] = np.where(spread, 0, part).astype(part.dtype)
    return policy.step(rows, kept)


def _checked_memory(memory: Mapping[str, Any], blank: Memory, count: int) -> Memory:
    """A memory as arrays like the blank ones; an error where it is of another policy or of other episodes."""
    shapes, wanted = (
        {name: np.shape(part)[1:] for name, part in each.items()} for each in (memory, blank)
    )
    if shapes != wanted:
        raise ValueError(
            f"the state has {_in_words(shapes)}, and this policy remembers {_in_words(wanted)}; give back "
            "what step gave, or no state where episodes begin"
        )
    for part in memory.values():
        if len(part) != count:
            raise ValueError(
                f"there are {count} observations, and this policy remembers {len(part)} episodes, one a row; "
                "reset() begins new ones, and so does step without a state"
            )
    return {name: np.asarray(memory[name], part.dtype) for name, part in blank.items()}


def _in_words(shapes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} (n, *{shape})" for name, shape in shapes.items()) or "nothing"


def _count(rows: Any) -> int:
    return len(next(iter(rows.values())) if isinstance(rows, dict) else rows)


def first_memory(about: Mapping[str, Any], count: int) -> Memory:
    """What a policy remembers at the beginning of so many episodes."""
    parts = about.get("memory", {"fields": {}})["fields"]
    return {name: np.zeros((count, *part["shape"]), part["dtype"]) for name, part in parts.items()}


class Stored(NamedTuple):
    """What the files of a policy hold."""

    about: dict[str, Any]
    weights: dict[str, np.ndarray]
    program: Any  # jax.export's


def load_policy(directory: str | Path) -> Loaded:
    """The policy in a directory, its files checked against each other."""
    import jax

    about, weights, program = read_policy(Path(directory))
    with jax.enable_x64(True):
        placed = jax.device_put(weights)
        greedy = jax.jit(program.call)

    def step(observations: Any, memory: Memory) -> tuple[Any, Memory]:
        rows = as_rows(observations, about["observation"])
        memory = memory or first_memory(about, _count(rows))
        inputs = {"observation": rows} | ({"memory": memory} if memory else {})
        with jax.enable_x64(True):  # an environment's own numbers may have 64 bits
            outputs = jax.tree.map(np.asarray, greedy(placed, inputs))
        return outputs["action"], outputs.get("memory", {})

    def act(observations: Any) -> Any:
        return step(observations, {})[0]

    return Loaded(act, about, step)


def read_policy(directory: Path) -> Stored:
    """What a policy's files hold, checked against each other."""
    about = read_about(directory)
    return Stored(about, _weights(directory, about), _program(directory, about))


def read_about(directory: Path) -> dict[str, Any]:
    """What policy.json says; a PolicyError that names the field where it is not what it should be."""
    path = directory / ABOUT

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        about = json.loads(_read(path), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not valid JSON: {error}") from error
    if not isinstance(about, dict):
        raise _damaged(path, "it holds no fields")
    if about.get("format") not in (FORMAT, RICH_FORMAT):
        found = (
            f"{about['format']!r}" if "format" in about else "missing: an older version wrote it"
        )
        raise PolicyError(
            f"{path}: format is {found}, and this version reads {FORMAT} and {RICH_FORMAT}; install the "
            "version that made it, or export the policy again by running its scenario again"
        )
    for name, kind in FIELDS.items():
        if not isinstance(_field(about, name), kind):
            raise _damaged(path, f"{name} is missing or no {kind.__name__}")
    for name in ("observation", "action", *_memory(about)):
        _check_kinds(path, name, about[name])
    for name, kind in about["weights"].items():
        _check_kinds(path, f"weights.{name}", kind)
    return about


def _memory(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The field that describes a memory, where there is one."""
    return ("memory",) if "memory" in about else ()


def _field(about: Mapping[str, Any], name: str) -> Any:
    first, _, inner = name.partition(".")
    value = about.get(first)
    return value.get(inner) if inner and isinstance(value, dict) else value


def _check_kinds(path: Path, name: str, kind: Any) -> None:
    """Every array must say its shape and its dtype."""
    if isinstance(kind, dict) and isinstance(kind.get("fields"), dict):
        for field, inner in kind["fields"].items():
            _check_kinds(path, f"{name}.fields.{field}", inner)
        has_layout = "layout" in kind or name == "action"  # observations may be given by name
        if has_layout and sorted(_names_in(kind.get("layout"))) != sorted(kind["fields"]):
            raise _damaged(path, f"{name}.layout does not name every field once")
        return
    shape = kind.get("shape") if isinstance(kind, dict) else None
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise _damaged(path, f"{name}.shape is no list of whole numbers")
    try:
        np.dtype(str(kind["dtype"]))  # a dict would be the dtype of a record, and a list of several
    except (KeyError, TypeError) as error:
        raise _damaged(path, f"{name}.dtype is {kind.get('dtype')!r}, no type of array") from error
    for bound in ("n", "start"):  # of choices
        if bound in kind and np.asarray(kind[bound]).dtype.kind != "i":
            raise _damaged(path, f"{name}.{bound} is no whole number, nor a list of such")


def _names_in(layout: Any) -> Iterator[str]:
    """The names at the leaves of a layout."""
    if isinstance(layout, dict | list):
        for inner in layout.values() if isinstance(layout, dict) else layout:
            yield from _names_in(inner)
    else:
        yield str(layout)


def _weights(directory: Path, about: Mapping[str, Any]) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = directory / WEIGHTS
    content = _read(path)
    _check_sum(path, content, about["weights_sha256"], "weights_sha256")
    try:
        weights: dict[str, np.ndarray] = load(content)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"it holds no weights: {error}") from error
    return weights


def _program(directory: Path, about: Mapping[str, Any]) -> Any:
    import jax
    import jax.export

    path = directory / PROGRAM
    content = _read(path)
    _check_sum(path, content, about["program"]["sha256"], "program.sha256")
    try:
        program = jax.export.deserialize(bytearray(content))
    except Exception as error:  # whatever flatbuffers and MLIR make of bytes that are no program
        made = about["program"].get("jax")
        raise _damaged(
            path, f"JAX {jax.__version__} cannot read it, {made} wrote it: {error}"
        ) from error
    _compare(directory, program, about)
    return program


def _compare(directory: Path, program: Any, about: Mapping[str, Any]) -> None:
    """An error that names the first field of policy.json by which the program does not go."""
    import jax

    says = {f"weights.{name}": _shown(kind) for name, kind in about["weights"].items()}
    for name in ("observation", "action", *_memory(about)):
        says |= _shown_batch(name, about[name])
    (weights, inputs), _ = jax.tree.unflatten(program.in_tree, program.in_avals)
    outputs = jax.tree.unflatten(program.out_tree, program.out_avals)
    has = {f"weights.{name}": f"{array.dtype} {array.shape}" for name, array in weights.items()}
    for path, array in jax.tree_util.tree_leaves_with_path({**inputs, **outputs}):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        has[name] = f"{array.dtype} {('n', *array.shape[1:])}"
    for name in sorted(says.keys() | has.keys()):
        if says.get(name) != has.get(name):
            ours, theirs = (arrays.get(name, "missing") for arrays in (says, has))
            raise _damaged(directory / ABOUT, f"{name} is {ours}, and in {PROGRAM} {theirs}")


def _shown(kind: Mapping[str, Any], *leading: str) -> str:
    return f"{np.dtype(kind['dtype'])} {(*leading, *kind['shape'])}"


def _shown_batch(name: str, kind: Mapping[str, Any]) -> dict[str, str]:
    if "fields" not in kind:
        return {name: _shown(kind, "n")}
    return {f"{name}.{field}": _shown(inner, "n") for field, inner in kind["fields"].items()}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from error


def _check_sum(path: Path, content: bytes, wanted: str, field: str) -> None:
    if hashlib.sha256(content).hexdigest() != wanted:
        raise _damaged(path, f"its SHA-256 is not the {field} of {ABOUT}")


def _damaged(path: Path, problem: str) -> PolicyError:
    return PolicyError(f"{path}: is damaged: {problem}; {REMEDY}")


def as_rows(observations: Any, kind: Mapping[str, Any]) -> Any:
    """Observations as the program takes them: an array, or one for each of its named fields."""
    if "fields" not in kind:
        return as_batch(observations, kind)
    flat = by_name(observations, kind)
    missing = sorted(set(kind["fields"]) - set(flat))
    if missing:
        raise ValueError(f"the observations lack {', '.join(missing)}; this policy needs them")
    rows = {name: as_batch(flat[name], field, name) for name, field in kind["fields"].items()}
    if len({len(batch) for batch in rows.values()}) > 1:
        counts = ", ".join(f"{len(batch)} of {name}" for name, batch in rows.items())
        raise ValueError(f"the observations are not equally many: {counts}")
    return rows


def is_single(observations: Any, kind: Mapping[str, Any]) -> bool:
    """Whether this is one observation and no batch of them."""
    if "fields" in kind:
        flat = by_name(observations, kind)
        name, kind = next(iter(kind["fields"].items()))
        observations = flat[name]
    return bool(np.shape(observations) == tuple(kind["shape"]))


def by_name(observations: Any, kind: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a dict, or of a tuple where the environment has one, under names: `outer.inner`, `0`.

    A list is no tuple: it might as well be rows.
    """
    layout, names = kind.get("layout", {}), ", ".join(kind["fields"])
    if isinstance(layout, list) and not isinstance(observations, tuple | Mapping):
        raise ValueError(
            f"this policy takes a tuple of {len(layout)}, as its environment gives it (of many observations, "
            f"each entry with a row for every one), or named arrays: {names}"
        )
    if isinstance(layout, dict) and not isinstance(observations, Mapping):
        raise ValueError(f"this policy takes named arrays: {names}")
    return dict(_flattened(observations, "", layout))


def _flattened(entry: Any, name: str, layout: Any) -> Iterator[tuple[str, Any]]:
    """What is nested in dicts and, where the layout has them, in tuples, each under one name."""
    if isinstance(entry, tuple) and isinstance(layout, list):
        if len(entry) != len(layout):
            of = f" of {name}" if name else ""
            raise ValueError(
                f"a tuple{of} has {len(entry)} entries; this policy takes {len(layout)}"
            )
        entry = dict(enumerate(entry))
    if not isinstance(entry, Mapping):
        yield name, entry
        return
    below = dict(enumerate(layout)) if isinstance(layout, list) else layout
    inner_layouts = (
        {str(key): inner for key, inner in below.items()} if isinstance(below, dict) else {}
    )
    for key, inner in entry.items():
        joined = f"{name}.{key}" if name else str(key)
        yield from _flattened(inner, joined, inner_layouts.get(str(key)))


def nested(actions: Mapping[str, Any], layout: Any) -> Any:
    """Named arrays as the environment nests them."""
    if isinstance(layout, list):
        return tuple(nested(actions, inner) for inner in layout)
    if isinstance(layout, dict):
        return {key: nested(actions, inner) for key, inner in layout.items()}
    return actions[layout]


def as_batch(observations: Any, kind: Mapping[str, Any], name: str = "") -> np.ndarray:
    """Observations (n, *shape) from an array, rows, a data frame, or a single observation."""
    values, shape = np.asarray(observations), tuple(kind["shape"])
    flat = (math.prod(shape),)
    if values.shape == shape:
        values = values[None]
    elif values.shape[1:] not in (shape, flat) and not (values.ndim == 1 and flat == (1,)):
        raise ValueError(
            f"observations{_of(name)} have shape {values.shape}; this policy takes (n, *{shape}) or {shape}"
        )
    if not len(values):
        raise ValueError(f"there are no observations{_of(name)}")
    rows = values.reshape(len(values), *shape).astype(kind["dtype"])
    if rows.dtype.kind != "f" and not np.array_equal(rows.ravel(), values.ravel()):
        raise ValueError(
            f"an observation{_of(name)} is no {kind['dtype']}; this policy takes those"
        )
    if "n" in kind:
        first, count = np.asarray(kind["start"]), np.asarray(kind["n"])
        if np.any((rows < first) | (rows >= first + count)):
            raise ValueError(
                f"an observation{_of(name)} is not among the {kind['n']} from {kind['start']} on"
            )
    return rows


def _of(name: str) -> str:
    return f" of {name}" if name else ""


def _serve() -> None:
    from mlflow.models import set_model
    from mlflow.pyfunc import PythonModel

    class ServedPolicy(PythonModel):
        """What `mlflow.pyfunc.load_model` gives back; the parent class is MLflow's condition."""

        def load_context(self, context: Any) -> None:
            loaded = load_policy(context.artifacts["policy"])
            self.act, self.player = loaded.act, Player(loaded)

        # The hint keeps MLflow from guessing a schema.
        def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> Any:
            params = params or {}
            if params.get("reset"):
                self.player.reset()
            # MLflow has no value for "not given" of a list
            return self.player.act(model_input, params.get("episode_start") or None)

    set_model(ServedPolicy())


if __name__ != "proxima.track.served_policy":  # run by MLflow, not imported by us
    _serve()
