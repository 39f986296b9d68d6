"""An exported policy as a function, and as the model MLflow serves.

MLflow copies this one file beside the policy and runs it wherever the model is loaded, so it
imports nothing of Proxima: a directory with `policy.json`, `policy.safetensors` and
`policy.stablehlo` is all that is needed to act.

    program(weights by name, {"observation": (n, ...)}) → {"action": (n, ...)}

From the environment's own observations to its own actions, nothing is left to do before or after.
`policy.json` says what both look like, and by their SHA-256 which files belong together.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

FORMAT = 1  # of policy.json and the program; one more whenever an older reader would misread them
ABOUT, WEIGHTS, PROGRAM = "policy.json", "policy.safetensors", "policy.stablehlo"
REMEDY = "put the file back, or export the policy again by running its scenario again"
# What must be in policy.json for the policy to be used, and as what.
FIELDS: dict[str, type] = {
    **{"observation": dict, "action": dict, "weights": dict, "weights_sha256": str},
    **{"algorithm": str, "env": str, "checkpoint.kind": str, "checkpoint.step": int},
    **{"program": dict, "program.sha256": str, "program.inputs": list, "program.outputs": list},
}

Act = Callable[[Any], np.ndarray]


class PolicyError(ValueError):
    """A policy's files are damaged or do not belong together; says which file and which field."""


class Loaded(NamedTuple):
    """A policy that can act, and what its policy.json says of it."""

    act: Act  # n observations, or a single one → greedy actions (n, ...)
    about: dict[str, Any]


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

    def act(observations: Any) -> np.ndarray:
        rows = as_rows(observations, about["observation"])
        with jax.enable_x64(True):  # an environment's own numbers may have 64 bits
            return np.asarray(greedy(placed, {"observation": rows})["action"])

    return Loaded(act, about)


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
    if about.get("format") != FORMAT:
        found = (
            f"{about['format']!r}" if "format" in about else "missing: an older version wrote it"
        )
        raise PolicyError(
            f"{path}: format is {found}, and this version reads {FORMAT}; install the version that made "
            "it, or export the policy again by running its scenario again"
        )
    for name, kind in FIELDS.items():
        if not isinstance(_field(about, name), kind):
            raise _damaged(path, f"{name} is missing or no {kind.__name__}")
    for name in ("observation", "action"):
        _check_kinds(path, name, about[name])
    for name, kind in about["weights"].items():
        _check_kinds(path, f"weights.{name}", kind)
    return about


def _field(about: Mapping[str, Any], name: str) -> Any:
    first, _, inner = name.partition(".")
    value = about.get(first)
    return value.get(inner) if inner and isinstance(value, dict) else value


def _check_kinds(path: Path, name: str, kind: Any) -> None:
    """Every array must say its shape and its dtype."""
    if isinstance(kind, dict) and isinstance(kind.get("fields"), dict):
        for field, inner in kind["fields"].items():
            _check_kinds(path, f"{name}.fields.{field}", inner)
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
    for name in ("observation", "action"):
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
    if not isinstance(observations, Mapping):
        raise ValueError(f"this policy takes named arrays: {', '.join(kind['fields'])}")
    flat = dict(_flattened(observations, ""))
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
        name, kind = next(iter(kind["fields"].items()))
        observations = dict(_flattened(observations, ""))[name]
    return bool(np.shape(observations) == tuple(kind["shape"]))


def _flattened(observations: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    """Entries of a dict within a dict under one name, `outer.inner`."""
    for name, entry in observations.items():
        if isinstance(entry, Mapping):
            yield from _flattened(entry, f"{above}{name}.")
        else:
            yield f"{above}{name}", entry


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
            self.act = load_policy(context.artifacts["policy"]).act

        # The hint keeps MLflow from guessing a schema.
        def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> np.ndarray:
            return self.act(model_input)

    set_model(ServedPolicy())


if __name__ != "proxima.track.served_policy":  # run by MLflow, not imported by us
    _serve()
