"""Parts on a disk: what a policy, value or reward model has beyond the base, in one safetensors file.

The base is saved elsewhere (`hf.py`); reading a part checks that it fits the base it is given.
"""

import json
from collections.abc import Mapping
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
from proxima.nets.lora import Adapters, LowRank
from proxima.nets.transformer import Decoder, matrices


def save_part(part: Part, file: Path) -> None:
    """Writes the part's arrays; an older file stays whole if that fails."""
    changes = part.adapters._asdict() if part.adapters is not None else {}
    scales = {target: change.scale for target, change in changes.items() if change is not None}
    tensors = {name: np.asarray(leaf) for name, leaf in leaves_of(part).items()}
    write_tensors(tensors, file, "part", {"scales": json.dumps(scales)})


def load_part(file: Path, base: Decoder) -> Part:
    """The part in a file, over that base."""
    try:
        with safe_open(file, framework="numpy") as opened:
            scales = json.loads((opened.metadata() or {}).get("scales", "{}"))
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ProximaError(f"{file}: no such file") from None
    except (OSError, SafetensorError) as error:
        raise ProximaError(
            f"{file}: not a part of a model, or only the start of one: {error}"
        ) from None
    skeleton = _skeleton(base, arrays, scales)
    expected = {name: leaf.shape for name, leaf in leaves_of(skeleton).items()}
    stored = {name: array.shape for name, array in arrays.items()}
    for name in sorted(stored.keys() | expected.keys()):
        if stored.get(name) != expected.get(name):
            raise ProximaError(
                f"{file}: {name} has shape {stored.get(name)}, by the base model it should be "
                f"{expected.get(name)}; is it a part of another model?"
            )
    leaves = [jnp.asarray(arrays[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(skeleton), leaves)


def _skeleton(base: Decoder, arrays: Mapping[str, np.ndarray], scales: dict[str, float]) -> Part:
    """The part's structure, with shapes where its arrays will be."""

    def shape(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.float32)

    changes = {}
    for target, matrix in matrices(base).items():
        if target in scales:
            layers, inputs, outputs = matrix.shape
            name = f"adapters.{target}.a"
            rank = arrays[name].shape[-1] if name in arrays else 0
            factors = shape(layers, inputs, rank), shape(layers, rank, outputs)
            changes[target] = LowRank(*factors, scales[target])
    whole = any(name.startswith("decoder.") for name in arrays)
    return Part(
        decoder=eqx.filter_eval_shape(lambda tree: tree, base) if whole else None,
        adapters=Adapters(**changes) if changes else None,
        head=Head(shape(base.config.width), shape()) if "head.weight" in arrays else None,
    )
