"""Parts on a disk: what a policy, value or reward model has beyond the base, in one safetensors file.

The base is saved elsewhere (`hf.py`); reading a part checks that it fits the base it is given.
"""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from proxima.core.errors import ProximaError
from proxima.domains.language.hf import leaves_of, write_tensors
from proxima.domains.language.model import Head, Part
from proxima.nets.lora import TARGETS, Adapters, LowRank
from proxima.nets.transformer import Decoder, matrices

Shapes = dict[str, tuple[int, ...]]


def save_part(part: Part, file: Path) -> None:
    """Writes the part's arrays; an older file stays whole if that fails."""
    changes = zip(TARGETS, part.adapters or (None,) * len(TARGETS), strict=True)
    scales = {target: change.scale for target, change in changes if change is not None}
    tensors = {name: np.asarray(leaf) for name, leaf in leaves_of(part).items()}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(tensors, file, {"scales": json.dumps(scales)})
    except OSError as error:
        raise ProximaError(f"{file}: could not be written: {error}") from error


def load_part(file: Path, base: Decoder) -> Part:
    """The part in a file, over that base."""
    try:
        with safe_open(file, framework="numpy") as opened:
            scales = json.loads((opened.metadata() or {}).get("scales", "{}"))
            found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ProximaError(f"{file}: no such file") from None
    except (OSError, SafetensorError) as error:
        raise ProximaError(
            f"{file}: not a part of a model, or only the start of one: {error}"
        ) from None
    skeleton = _skeleton(base, found, scales)
    expected = {name: leaf.shape for name, leaf in leaves_of(skeleton).items()}
    _check({name: array.shape for name, array in found.items()}, expected, file)
    leaves = [jnp.asarray(found[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(skeleton), leaves)


def _skeleton(base: Decoder, found: dict[str, np.ndarray], scales: dict[str, float]) -> Part:
    """The part's structure, with shapes where its arrays will be."""

    def shape(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.float32)

    def change(target: str, matrix: jax.Array) -> LowRank:
        layers, inputs, outputs = matrix.shape
        rank = found[f"adapters.{target}.a"].shape[-1] if f"adapters.{target}.a" in found else 0
        return LowRank(shape(layers, inputs, rank), shape(layers, rank, outputs), scales[target])

    adapted = {
        target: change(target, matrix)
        for target, matrix in matrices(base).items()
        if target in scales
    }
    whole = any(name.startswith("decoder.") for name in found)
    headed = "head.weight" in found
    return Part(
        decoder=eqx.filter_eval_shape(lambda tree: tree, base) if whole else None,
        adapters=Adapters(**adapted) if adapted else None,
        head=Head(shape(base.config.width), shape()) if headed else None,
    )


def _check(found: Shapes, expected: Shapes, file: Path) -> None:
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise ProximaError(
                f"{file}: {name} has shape {found.get(name)}, by the base model it should be "
                f"{expected.get(name)}; is it a part of another model?"
            )
