"""Policies outside Proxima: exported as a program and weights, registered as an MLflow model.

A policy directory holds three files and no pickle: `policy.safetensors` (named weights),
`policy.stablehlo` (the compiled function's source, from `jax.export`) and `policy.json` (what goes
in and out).
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.spaces import ACTION_MASK
from proxima.track import served_policy
from proxima.track.served_policy import (
    ABOUT,
    FORMAT,
    PROGRAM,
    RICH_FORMAT,
    WEIGHTS,
    Loaded,
    PolicyError,
    Stored,
    read_about,
)
from proxima.track.store import expecting
from proxima.track.tracker import Candidate, RegisteredModel

PLATFORMS = ("cpu", "cuda", "tpu")
POLICY_FILES = (WEIGHTS, PROGRAM, ABOUT)
# What served_policy.py needs. MLflow's pyfunc imports pandas; jax.export reads its programs with flatbuffers.
PACKAGES = ("mlflow-skinny", "pandas", "jax", "jaxlib", "flatbuffers", "numpy", "safetensors")
CHAMPION = "champion"  # the alias of a registered model's best version
SCORE = "proxima.score"  # the tag by which versions are compared
MODEL = (
    "Policies trained by the scenario {name}. The alias {alias} is on the version with the highest "
    f"{SCORE}: the mean return of its checkpoint's evaluation during training, never of the closing one."
)

Named = dict[str, Any]  # arrays, or what describes them, by name


class Export(NamedTuple):
    """A policy's program without its weights: every policy of the same nets and spaces shares it."""

    program: bytes
    described: dict[str, Any]  # what policy.json says of it


def export_program(
    function: Callable[[Named, Named], Named], weights: Named, inputs: Mapping[str, Any]
) -> Export:
    """`function(weights, inputs) -> outputs`, arrays by name, traced once for batches of any size.

    `inputs` are described as policy.json describes them. A policy takes an `observation` and gives an
    `action`; one with a memory takes and gives that too.
    """
    import jax
    import jax.export

    batch = jax.export.symbolic_shape("b")

    def batched(kind: Mapping[str, Any]) -> Any:
        if "fields" in kind:
            return {name: batched(field) for name, field in kind["fields"].items()}
        return jax.ShapeDtypeStruct((*batch, *kind["shape"]), kind["dtype"])

    kinds = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in weights.items()}
    with jax.enable_x64(True), _without_locations():  # what goes in and out may have 64 bits
        traced = jax.export.export(jax.jit(function), platforms=PLATFORMS)
        exported = traced(kinds, {name: batched(kind) for name, kind in inputs.items()})
    program = bytes(exported.serialize())
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    return Export(
        program,
        {
            "weights": {
                name: {"shape": list(kind.shape), "dtype": str(kind.dtype)}
                for name, kind in sorted(kinds.items())
            },
            "program": {
                "inputs": sorted(inputs),
                "outputs": sorted(outputs),
                "sha256": hashlib.sha256(program).hexdigest(),
                "platforms": list(exported.platforms),
                "jax": jax.__version__,
            },
        },
    )


@contextmanager
def _without_locations() -> Iterator[None]:
    """Programs lowered meanwhile do not say in which file and line of whose directory they were written."""
    import jax

    setting = "jax_traceback_in_locations_limit"
    before = jax.config.values[setting]
    jax.config.update(setting, 0)
    try:
        yield
    finally:
        jax.config.update(setting, before)


def write_policy(
    export: Export, weights: Mapping[str, Any], description: Mapping[str, Any], directory: Path
) -> None:
    """A policy's directory, whole or not at all; `description` says what goes in and out, among others."""
    from safetensors.numpy import save

    # A copy, because safetensors wants contiguous arrays; ascontiguousarray would reshape scalars.
    tensors = save({name: np.array(weights[name], order="C") for name in sorted(weights)})
    has_named_actions = "fields" in description["action"]
    policy = {
        "format": RICH_FORMAT if "memory" in description or has_named_actions else FORMAT,
        **description,
        **export.described,
        "weights_sha256": hashlib.sha256(tensors).hexdigest(),
    }
    text = json.dumps(policy, indent=2, allow_nan=False) + "\n"
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, content in ((WEIGHTS, tensors), (PROGRAM, export.program), (ABOUT, text.encode())):
        (partial / name).write_bytes(content)
    shutil.rmtree(directory, ignore_errors=True)
    partial.rename(directory)


def load_exported(directory: Path) -> Loaded:
    """The exported policy: a function from observations to greedy actions, and what it says of itself."""
    _check(directory)
    with _as_our_error():
        return served_policy.load_policy(directory)


def read_exported(directory: Path) -> Stored:
    """What the files of an exported policy hold, for whoever makes something else of it."""
    _check(directory)
    with _as_our_error():
        return served_policy.read_policy(directory)


def describe_exported(directory: Path) -> dict[str, Any]:
    """What an exported policy says of itself; JAX is not needed for that."""
    _check(directory)
    with _as_our_error():
        return read_about(directory)


@contextmanager
def _as_our_error() -> Iterator[None]:
    try:
        yield
    except PolicyError as error:
        raise ProximaError(str(error)) from error


def register_policy(client: Any, run_id: str, name: str, candidate: Candidate) -> RegisteredModel:
    """A new version of model `name`, made of an exported policy and belonging to run `run_id`."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    directory = Path(candidate.directory)
    policy = describe_exported(directory)
    tags = dict(candidate.tags)
    if candidate.score is not None:
        tags[SCORE] = repr(candidate.score)
    experiment_id = client.get_run(run_id).info.experiment_id
    model = client.create_logged_model(experiment_id, "policy", run_id, tags, model_type="policy")
    with tempfile.TemporaryDirectory() as temporary:
        saved = Path(temporary) / "model"
        _save_model(saved, directory, policy, model, run_id)
        client.log_model_artifacts(model.model_id, str(saved))
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    with expecting("RESOURCE_ALREADY_EXISTS"):
        client.create_registered_model(name, description=MODEL.format(name=name, alias=CHAMPION))
    created = client.create_model_version(
        name,
        f"models:/{model.model_id}",
        run_id,
        tags,
        description=candidate.description,
        model_id=model.model_id,
    )
    number = str(created.version)
    _crown(client, name, number, candidate.score)
    return RegisteredModel(name, number, f"models:/{name}/{number}")


def _crown(client: Any, name: str, number: str, score: float | None) -> None:
    """The alias of the best version for this one, unless another one's score is higher."""
    champion = client.get_registered_model(name).aliases.get(CHAMPION)
    if champion is not None:
        best = client.get_model_version(name, champion).tags.get(SCORE)
        if best is not None and (score is None or score < float(best)):
            return
    client.set_registered_model_alias(name, CHAMPION, number)


def _save_model(
    path: Path, directory: Path, policy: Mapping[str, Any], model: Any, run_id: str
) -> None:
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema

    ids = {"model_uuid": model.model_id, "model_id": model.model_id}
    mlflow.pyfunc.save_model(
        path=str(path),
        python_model=served_policy.__file__,
        artifacts={"policy": str(directory)},
        signature=ModelSignature(
            Schema(_tensor_specs(policy["observation"])),
            Schema(_tensor_specs(policy["action"])),
            _params(policy),
        ),
        input_example=_example(policy["observation"]),
        # Pinned here, because MLflow would otherwise run the model to find out.
        pip_requirements=[f"{package}=={version(package)}" for package in PACKAGES],
        metadata={"policy": dict(policy)},
        mlflow_model=Model(artifact_path=model.artifact_location, run_id=run_id, **ids),
    )


def _params(policy: Mapping[str, Any]) -> Any:
    """What may be said beside observations: where episodes begin, to a policy that remembers them."""
    from mlflow.types import DataType, ParamSchema, ParamSpec

    if "memory" not in policy:
        return None
    return ParamSchema(
        [
            ParamSpec("reset", DataType.boolean, False),
            ParamSpec("episode_start", DataType.boolean, [], (-1,)),
        ]
    )


def _tensor_specs(kind: Mapping[str, Any]) -> list[Any]:
    """What policy.json says of arrays as MLflow has it: a tensor, or one for each field."""
    from mlflow.types import TensorSpec

    fields = kind.get("fields", {None: kind})
    return [
        TensorSpec(np.dtype(field["dtype"]), (-1, *field["shape"]), name)
        for name, field in fields.items()
    ]


def _example(kind: Mapping[str, Any]) -> Any:
    """One observation of the least that there is; in a mask every action is valid."""
    if "fields" in kind:
        return {
            name: np.ones_like(_example(field)) if name == ACTION_MASK else _example(field)
            for name, field in kind["fields"].items()
        }
    return np.full((1, *kind["shape"]), kind.get("start", 0), kind["dtype"])


def _check(directory: Path) -> None:
    missing = [name for name in POLICY_FILES if not (directory / name).is_file()]
    if missing:
        raise ProximaError(
            f"{directory}: not an exported policy, {', '.join(missing)} missing; "
            "point at a trial's policy directory"
        )
