"""Policies outside Proxima: exported as a program and weights, registered as an MLflow model.

A policy directory holds three files and no pickle: `policy.safetensors` (named weights),
`policy.stablehlo` (the compiled function's source, from `jax.export`) and `policy.json` (what goes
in and out).
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.core.errors import ProximaError
from proxima.track import served_policy
from proxima.track.store import expecting
from proxima.track.tracker import RegisteredModel

PLATFORMS = ("cpu", "cuda", "tpu")
POLICY_FILES = ("policy.safetensors", "policy.stablehlo", "policy.json")
# What served_policy.py needs. MLflow's pyfunc imports pandas; jax.export reads its programs with flatbuffers.
PACKAGES = ("mlflow-skinny", "pandas", "jax", "jaxlib", "flatbuffers", "numpy", "safetensors")


class Export(NamedTuple):
    """A policy's program without its weights: every policy of the same nets and spaces shares it."""

    program: bytes
    described: dict[str, Any]  # what goes in and out


def export_program(
    function: Callable[[dict[str, Any], Any], Any], weights: Mapping[str, Any], observation: Any
) -> Export:
    """`function(weights, observations (b, ...)) -> actions (b, ...)`, b any size, traced once.

    `observation` is one observation, for its shape and dtype: an array, or a dict of named ones.
    """
    import jax
    import jax.export

    batch = jax.export.symbolic_shape("b")
    observations = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((*batch, *leaf.shape), leaf.dtype), observation
    )
    kinds = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in weights.items()}
    exported = jax.export.export(jax.jit(function), platforms=PLATFORMS)(kinds, observations)
    (action,) = exported.out_avals
    return Export(
        bytes(exported.serialize()),
        {
            "arguments": ["weights", "observations"],
            "weights": sorted(weights),
            "observation": described(observation),
            "action": {"shape": list(action.shape[1:]), "dtype": str(action.dtype)},
            "platforms": list(exported.platforms),
            "jax": jax.__version__,
        },
    )


def write_policy(
    export: Export, weights: Mapping[str, Any], description: Mapping[str, Any], directory: Path
) -> None:
    """A policy's directory, whole or not at all."""
    from safetensors.numpy import save_file

    # A copy, because safetensors wants contiguous arrays; ascontiguousarray would reshape scalars.
    arrays = {name: np.array(weights[name], order="C") for name in sorted(weights)}
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(arrays, partial / "policy.safetensors")
    (partial / "policy.stablehlo").write_bytes(export.program)
    policy = {**description, **export.described}
    (partial / "policy.json").write_text(json.dumps(policy, indent=2) + "\n")
    shutil.rmtree(directory, ignore_errors=True)
    partial.rename(directory)


def described(observation: Any) -> dict[str, Any]:
    """Shape and dtype of an observation, or those of its fields under their names."""
    if isinstance(observation, dict):
        return {"fields": {name: described(field) for name, field in observation.items()}}
    return {"shape": list(observation.shape), "dtype": str(observation.dtype)}


def load_exported(directory: Path) -> Callable[[Any], np.ndarray]:
    """The exported policy as a function from observations to greedy actions."""
    _check(directory)
    return served_policy.load_policy(directory)


def register_policy(
    client: Any, run_id: str, name: str, directory: Path, tags: Mapping[str, str]
) -> RegisteredModel:
    """A new version of model `name`, made of an exported policy and belonging to run `run_id`."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    _check(directory)
    experiment_id = client.get_run(run_id).info.experiment_id
    model = client.create_logged_model(experiment_id, "policy", run_id, tags, model_type="policy")
    with tempfile.TemporaryDirectory() as temporary:
        saved = Path(temporary) / "model"
        _save_model(saved, directory, model, run_id)
        client.log_model_artifacts(model.model_id, str(saved))
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    with expecting("RESOURCE_ALREADY_EXISTS"):
        client.create_registered_model(name)
    created = client.create_model_version(
        name, f"models:/{model.model_id}", run_id, tags, model_id=model.model_id
    )
    number = str(created.version)
    return RegisteredModel(name, number, f"models:/{name}/{number}")


def _save_model(path: Path, directory: Path, model: Any, run_id: str) -> None:
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    policy = json.loads((directory / "policy.json").read_text())
    action = TensorSpec(np.dtype(policy["action"]["dtype"]), (-1, *policy["action"]["shape"]))
    ids = {"model_uuid": model.model_id, "model_id": model.model_id}
    mlflow.pyfunc.save_model(
        path=str(path),
        python_model=served_policy.__file__,
        artifacts={"policy": str(directory)},
        # No input schema: MLflow would refuse lists, single observations and other dtypes.
        signature=ModelSignature(outputs=Schema([action])),
        # Pinned here, because MLflow would otherwise run the model to find out.
        pip_requirements=[f"{package}=={version(package)}" for package in PACKAGES],
        metadata={"policy": policy},
        mlflow_model=Model(artifact_path=model.artifact_location, run_id=run_id, **ids),
    )


def _check(directory: Path) -> None:
    missing = [name for name in POLICY_FILES if not (directory / name).is_file()]
    if missing:
        raise ProximaError(
            f"{directory}: not an exported policy, {', '.join(missing)} missing; "
            "point at a trial's policy directory"
        )
