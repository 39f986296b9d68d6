"""An ONNX model beside the exported policy it came from: the same actions at observations drawn at random."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.core.spaces import ACTION_MASK
from proxima.track.onnx.convert import leaves
from proxima.track.onnx.graph import output_name
from proxima.track.registry import read_exported

OBSERVATIONS = 64
LEAST = 0.9  # of them must have the same action: two as good as each other may change places
CLOSE = 1e-4  # how far numbers may be apart, beside their size: sums are in another order


class Agreement(NamedTuple):
    """At how many of the observations both took the same action."""

    observations: int
    same: int


def compare_actions(model: bytes, directory: Path) -> Agreement:
    """How often the model acts as the policy in the directory; an error in words if it does not."""
    import jax

    with needs_extra("onnx", "proxima export --onnx"):
        import onnxruntime
    policy = read_exported(directory)
    (_, kinds), _ = jax.tree.unflatten(policy.program.in_tree, policy.program.in_avals)
    drawn = draw_observations(policy.about["observation"], OBSERVATIONS, np.random.default_rng(0))
    # What else a policy takes, a memory say, is at its beginning.
    given = {
        name: np.zeros((OBSERVATIONS, *kind.shape[1:]), kind.dtype) for name, kind in leaves(kinds)
    } | named_inputs(drawn)
    inputs = jax.tree.unflatten(
        jax.tree.structure(kinds), [given[name] for name, _ in leaves(kinds)]
    )
    with jax.enable_x64(True):
        wanted = dict(leaves(jax.jit(policy.program.call)(policy.weights, inputs)))
    names = [output_name(name, given) for name in wanted]
    try:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        found = session.run(names, given)
    except Exception as error:  # onnxruntime's have no class in common
        raise ProximaError(
            f"{directory}: onnxruntime cannot run its ONNX model ({error}), so it was not written; use the "
            "policy as it is (proxima.load_policy), and please report this"
        ) from error
    close = [_close(a, np.asarray(b)) for a, b in zip(found, wanted.values(), strict=True)]
    same = int(np.all(close, axis=0).sum())
    if same < LEAST * OBSERVATIONS:
        raise ProximaError(
            f"{directory}: its ONNX model acts otherwise at {OBSERVATIONS - same} of {OBSERVATIONS} random "
            "observations, so it was not written; use the policy as it is (proxima.load_policy), and please "
            "report this"
        )
    return Agreement(OBSERVATIONS, same)


def _close(ours: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Row by row, whether all is the same: numbers nearly, choices exactly."""
    rows, others = ours.reshape(len(ours), -1), wanted.reshape(len(wanted), -1)
    if wanted.dtype.kind != "f":
        return np.asarray((rows == others).all(axis=1))
    return np.isclose(rows, others, rtol=CLOSE, atol=CLOSE, equal_nan=True).all(axis=1)


def described_ends(model: bytes) -> dict[str, Any]:
    """The names, types and shapes of what an ONNX model takes and gives."""
    import onnx
    from onnx import helper

    graph = onnx.load_model_from_string(model).graph

    def described(value: Any) -> dict[str, Any]:
        kind = value.type.tensor_type
        shape = [each.dim_param or each.dim_value for each in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        return {"name": value.name, "dtype": str(dtype), "shape": shape}

    return {
        "inputs": [described(value) for value in graph.input],
        "outputs": [described(value) for value in graph.output],
    }


def named_inputs(observations: Any) -> dict[str, np.ndarray]:
    """Observations by the names that the model has for them."""
    return dict(leaves({"observation": observations}))


def draw_observations(kind: Mapping[str, Any], count: int, random: np.random.Generator) -> Any:
    """Some observations as policy.json describes them, within their bounds; a mask leaves an action."""
    if "fields" in kind:
        return {
            name: _mask(field, count, random)
            if name == ACTION_MASK
            else draw_observations(field, count, random)
            for name, field in kind["fields"].items()
        }
    shape, dtype = (count, *kind["shape"]), np.dtype(kind["dtype"])
    if "n" in kind:
        first = np.broadcast_to(np.asarray(kind["start"]), kind["shape"])
        return (first + random.integers(np.broadcast_to(kind["n"], shape))).astype(dtype)
    # No bound is no number.
    low, high = (np.asarray(kind.get(end), np.float64) for end in ("low", "high"))
    numbers = random.normal(size=shape) if dtype.kind == "f" else random.integers(0, 8, shape)
    bounded = np.isfinite(low) & np.isfinite(high)
    span = np.where(bounded, high - low + (dtype.kind != "f"), 0.0)
    within = np.where(bounded, low, 0.0) + random.random(shape) * span
    drawn = np.where(np.broadcast_to(bounded, shape), within, numbers)
    return (drawn if dtype.kind == "f" else np.floor(drawn)).astype(dtype)


def _mask(kind: Mapping[str, Any], count: int, random: np.random.Generator) -> np.ndarray:
    valid = random.random((count, *kind["shape"])) < 0.5
    np.put_along_axis(
        valid, random.integers(kind["shape"][-1], size=(*valid.shape[:-1], 1)), True, -1
    )
    return valid.astype(kind["dtype"])
