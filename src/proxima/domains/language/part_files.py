"""Parts on a disk: what a policy, value or reward model has beyond the base; adapters as PEFT has them too.

A part is one safetensors file of ours. PEFT's folder, adapter_config.json and adapter_model.safetensors,
has a change of one layer's module as lora_A (rank, inputs) and lora_B (outputs, rank); ours are stacked
over layers. GPT-2 has q, k and v in one module: their three changes become one whose rank is the sum, and
one such change becomes three that share its A. The base is saved elsewhere (`hf.py`); reading checks that
all fits it. Left out on purpose: every kind of LoRA that is not plain (`peft_config.py`).
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proxima.core.errors import ProximaError
from proxima.domains.language.hf import GPT2, LLAMA, Names, leaves_of, names_of
from proxima.domains.language.hf_config import (
    checked_number,
    family_of,
    parsed_object,
    read_settings,
)
from proxima.domains.language.model import Head, Part
from proxima.domains.language.peft_config import (
    SETTINGS,
    Scale,
    read_adapter_settings,
    scales_of,
)
from proxima.domains.language.tensor_files import Tensor, open_tensors, write_tensors
from proxima.nets.lora import TARGETS, Adapters, LoraConfig, LowRank
from proxima.nets.transformer import Decoder, matrices
from proxima.run.files import write_json

WEIGHTS = "adapter_model.safetensors"
ROOT = "base_model.model."


def save_part(part: Part, file: Path) -> None:
    """Writes the part's arrays; an older file stays whole if that fails."""
    changes = part.adapters._asdict() if part.adapters is not None else {}
    scales = {target: change.scale for target, change in changes.items() if change is not None}
    tensors = {name: np.asarray(leaf) for name, leaf in leaves_of(part).items()}
    write_tensors(tensors, file, "part", {"scales": json.dumps(scales)})


def load_part(file: Path, base: Decoder) -> Part:
    """The part in a file, over that base."""
    stored, notes = open_tensors(file)
    scales = parsed_object(notes.get("scales", "{}"), file)
    for target, scale in scales.items():
        checked_number(f"scales.{target}", scale, file)
        if target not in matrices(base):
            raise ProximaError(f"{file}: changes {target}, which the base model does not have")
    shapes = {name: tensor.shape for name, tensor in stored.items()}
    skeleton = _skeleton(base, shapes, scales)
    expected = leaves_of(skeleton)
    for name in sorted(shapes.keys() | expected.keys()):
        wanted = expected[name].shape if name in expected else None
        if shapes.get(name) != wanted:
            raise ProximaError(
                f"{file}: {name} has shape {shapes.get(name)}, by the base model it should be "
                f"{wanted}; is it a part of another model?"
            )
    leaves = [_of_type(stored[name], leaf.dtype) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(skeleton), leaves)


def _of_type(tensor: Tensor, dtype: Any) -> jax.Array:
    array = tensor.read()
    if array.dtype != dtype:
        raise ProximaError(
            f"{tensor.file}: {tensor.name} is {array.dtype}, by the base model it should be {dtype}"
        )
    return jnp.asarray(array)


def _skeleton(
    base: Decoder, stored: Mapping[str, tuple[int, ...]], scales: Mapping[str, float]
) -> Part:
    """The part's structure, with shapes where its arrays will be."""

    def shape(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.float32)

    changes = {}
    for target, matrix in matrices(base).items():
        if target in scales:
            layers, inputs, outputs = matrix.shape
            name = f"adapters.{target}.a"
            rank = stored[name][-1] if stored.get(name) else 0
            factors = shape(layers, inputs, rank), shape(layers, rank, outputs)
            changes[target] = LowRank(*factors, scales[target])
    whole = any(name.startswith("decoder.") for name in stored)
    return Part(
        decoder=eqx.filter_eval_shape(lambda tree: tree, base) if whole else None,
        adapters=Adapters(**changes) if changes else None,
        head=Head(shape(base.config.width), shape()) if "head.weight" in stored else None,
    )


class Factors(NamedTuple):
    """A change to one module of one layer, or of all, as PEFT has it: scale · B A."""

    a: np.ndarray  # (..., rank, inputs)
    b: np.ndarray  # (..., outputs, rank)
    scale: float


def save_adapters(adapters: Adapters, config: LoraConfig, folder: Path, base: Path) -> None:
    """A folder that PEFT and `load_adapters` read; `base` is the folder of the model they belong to."""
    family = family_of(read_settings(base), base / "config.json")
    names = names_of(family)
    modules = {
        module: _joined(changes)
        for group, module in _modules(names)
        if any(changes := [getattr(adapters, target) for target in group])
    }
    tensors = {
        f"{ROOT}{names.prefix}{names.layer.format(layer)}{module}.lora_{which}.weight": factor
        for module, factors in modules.items()
        for which, stacked in (("A", factors.a), ("B", factors.b))
        for layer, factor in enumerate(stacked)
    }
    ranks = {module: factors.a.shape[1] for module, factors in modules.items()}
    alphas = {module: factors.scale * ranks[module] for module, factors in modules.items()}
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": config.rank,
        "lora_alpha": config.alpha,
        "rank_pattern": {name: rank for name, rank in ranks.items() if rank != config.rank},
        "alpha_pattern": {
            name: alpha for name, alpha in alphas.items() if not math.isclose(alpha, config.alpha)
        },
        "target_modules": list(modules),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": family == "gpt2",
        "inference_mode": True,
    }
    write_tensors(tensors, folder / WEIGHTS, "adapter")
    write_json(folder / SETTINGS, settings)


def load_adapters(folder: Path, decoder: Decoder) -> Adapters:
    """The adapters in a folder of PEFT's; what does not fit the decoder is an error."""
    settings = read_adapter_settings(folder)
    tensors = open_tensors(folder / WEIGHTS).tensors
    names = GPT2 if decoder.config.positions == "learned" else LLAMA
    changed: dict[tuple[str, ...], dict[int, str]] = {}
    for group, module in _modules(names):
        for layer in range(decoder.config.layers):
            path = f"{names.prefix}{names.layer.format(layer)}{module}"
            if not tensors.keys().isdisjoint(_factor_names(path)):
                changed.setdefault(group, {})[layer] = path
    layers = {path: layer for paths in changed.values() for layer, path in paths.items()}
    rest = tensors.keys() - {name for path in layers for name in _factor_names(path)}
    if rest or not layers:
        example = f", for example {min(rest)}" if rest else "; it has none that do"
        raise ProximaError(
            f"{folder / WEIGHTS}: {len(rest)} tensors have no place in this model{example}"
        )
    scales = scales_of(settings, layers, folder / SETTINGS)
    stacked: dict[str, LowRank] = {}
    for group, paths in changed.items():
        shapes = [matrices(decoder)[target].shape for target in group]
        whole = shapes[0][1], sum(shape[2] for shape in shapes)
        factors = {
            layer: _factors(tensors, path, scales[path], whole, folder)
            for layer, path in paths.items()
        }
        stacked |= _stacked(group, shapes, factors)
    return Adapters(**stacked)


def _factor_names(path: str) -> tuple[str, str]:
    return f"{ROOT}{path}.lora_A.weight", f"{ROOT}{path}.lora_B.weight"


def _factors(
    tensors: Mapping[str, Tensor], path: str, scale: Scale, sizes: tuple[int, int], folder: Path
) -> Factors:
    """One module's change; both factors fit the module's inputs and outputs and the rank of the settings."""
    (inputs, outputs), pair = sizes, [tensors.get(name) for name in _factor_names(path)]
    shapes = [tensor and tensor.shape for tensor in pair]
    expected = [(scale.rank, inputs), (outputs, scale.rank)]
    if shapes != expected:
        raise ProximaError(
            f"{folder}: A and B of {path} have shapes {shapes[0]} and {shapes[1]}; by {SETTINGS} and the "
            f"model they should be {expected[0]} and {expected[1]}"
        )
    a, b = (tensor.read().astype(np.float32) for tensor in pair if tensor is not None)
    return Factors(a, b, scale.scale)


def _modules(names: Names) -> Iterator[tuple[tuple[str, ...], str]]:
    """Our targets that stand in one module of theirs, and its name."""
    for group, module in names.layered.items():
        if group[0] in TARGETS:
            yield group, module


def _joined(changes: list[LowRank | None]) -> Factors:
    """Changes side by side as one: each has its own rows of A and its own block of B."""
    present = [change for change in changes if change is not None]
    layers, _, outputs = present[0].b.shape  # a module's targets are equally wide
    scale = present[0].scale
    a = np.concatenate([np.asarray(change.a).swapaxes(1, 2) for change in present], axis=1)
    b = np.zeros((layers, len(changes) * outputs, a.shape[1]), np.float32)
    column = 0
    for index, change in enumerate(changes):
        if change is not None:
            rank, block = change.a.shape[-1], np.asarray(change.b).swapaxes(1, 2)
            rows = slice(index * outputs, (index + 1) * outputs)
            b[:, rows, column : column + rank] = block * (change.scale / scale)
            column += rank
    return Factors(np.ascontiguousarray(a), b, scale)


def _stacked(
    group: tuple[str, ...], shapes: list[tuple[int, ...]], changes: dict[int, Factors]
) -> dict[str, LowRank]:
    """Our adapters out of the layers' changes; a layer without one gets zeros, a smaller rank too."""
    layers, inputs, _ = shapes[0]
    outputs = [shape[2] for shape in shapes]
    rank = max(len(factors.a) for factors in changes.values())
    scale = next(iter(changes.values())).scale
    a = np.zeros((layers, inputs, rank), np.float32)
    b = np.zeros((layers, rank, sum(outputs)), np.float32)
    for layer, factors in changes.items():
        own = len(factors.a)
        a[layer, :, :own] = factors.a.T
        b[layer, :own] = factors.b.T * (factors.scale / scale)
    blocks = np.split(b, np.cumsum(outputs)[:-1], axis=2)
    return {
        target: LowRank(jnp.asarray(a), jnp.asarray(block), scale)
        for target, block in zip(group, blocks, strict=True)
    }
