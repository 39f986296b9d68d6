"""Parts on a disk: what a policy, value or reward model has beyond the base; adapters as PEFT has them too.

A part is one safetensors file of ours. PEFT's folder, adapter_config.json and adapter_model.safetensors,
has a change of one layer's module as lora_A (rank, inputs) and lora_B (outputs, rank); ours are stacked
over layers. GPT-2 has q, k and v in one module: their three changes become one whose rank is the sum, and
one such change becomes three that share its A. The base is saved elsewhere (`hf.py`); reading checks that
all fits it. Left out on purpose: DoRA, trained biases, modules that are saved whole.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from proxima.core.errors import ProximaError
from proxima.domains.language.hf import GPT2, LLAMA, Names, leaves_of, names_of, write_tensors
from proxima.domains.language.hf_config import family_of, read_settings
from proxima.domains.language.model import Head, Part
from proxima.nets.lora import TARGETS, Adapters, LoraConfig, LowRank
from proxima.nets.transformer import Decoder, matrices
from proxima.run.files import write_json

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ROOT = "base_model.model."


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
    settings, tensors = _read(folder)
    names = GPT2 if decoder.config.positions == "learned" else LLAMA
    stacked: dict[str, LowRank] = {}
    for group, module in _modules(names):
        changes = {
            layer: factors
            for layer in range(decoder.config.layers)
            if (factors := _taken(tensors, settings, names, layer, module)) is not None
        }
        if changes:
            stacked |= _stacked(decoder, group, module, changes, folder)
    if tensors:
        raise ProximaError(
            f"{folder}: {len(tensors)} tensors have no place in this model, for example {min(tensors)}"
        )
    return Adapters(**stacked)


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


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        settings = json.loads((folder / SETTINGS).read_text())
        tensors = load_file(folder / WEIGHTS)
    except FileNotFoundError as error:
        raise ProximaError(
            f"{error.filename or folder / WEIGHTS}: no such file; an adapter's folder has {SETTINGS} "
            f"and {WEIGHTS}"
        ) from None
    except (ValueError, SafetensorError) as error:
        raise ProximaError(f"{folder}: no adapter of PEFT: {error}") from None
    if settings.get("peft_type") != "LORA":
        kind = settings.get("peft_type")
        raise ProximaError(f"{folder / SETTINGS}: peft_type {kind!r}; only LORA")
    for key, plain in (("use_dora", False), ("bias", "none"), ("modules_to_save", None)):
        if (settings.get(key) or plain) != plain:
            raise ProximaError(f"{folder / SETTINGS}: {key}: {settings[key]!r} is not supported")
    return settings, tensors


def _taken(
    tensors: dict[str, np.ndarray],
    settings: Mapping[str, Any],
    names: Names,
    layer: int,
    module: str,
) -> Factors | None:
    """One module's change, taken out of the tensors; None where the layer has none."""
    path = f"{names.prefix}{names.layer.format(layer)}{module}"
    a = tensors.pop(f"{ROOT}{path}.lora_A.weight", None)
    b = tensors.pop(f"{ROOT}{path}.lora_B.weight", None)
    if a is None or b is None:
        return None
    rank = _by_pattern(settings.get("rank_pattern"), path, settings["r"])
    alpha = _by_pattern(settings.get("alpha_pattern"), path, settings["lora_alpha"])
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    return Factors(a.astype(np.float32), b.astype(np.float32), scale)


def _by_pattern(patterns: Mapping[str, float] | None, path: str, usual: float) -> float:
    """PEFT's rule: a pattern is the end of a module's path, or all of it."""
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", path):
            return value
    return usual


def _stacked(
    decoder: Decoder, group: tuple[str, ...], module: str, changes: dict[int, Factors], folder: Path
) -> dict[str, LowRank]:
    """Our adapters out of the layers' changes; a layer without one gets zeros, a smaller rank too."""
    ours = {target: matrices(decoder)[target].shape for target in group}
    layers, inputs, _ = ours[group[0]]
    outputs = [shape[2] for shape in ours.values()]
    rank = max(len(factors.a) for factors in changes.values())
    scale = next(iter(changes.values())).scale
    a = np.zeros((layers, inputs, rank), np.float32)
    b = np.zeros((layers, rank, sum(outputs)), np.float32)
    for layer, factors in changes.items():
        own = len(factors.a)
        expected = (own, inputs), (sum(outputs), own)
        if (factors.a.shape, factors.b.shape) != expected:
            raise ProximaError(
                f"{folder}: {module} of layer {layer} has shapes {factors.a.shape} and "
                f"{factors.b.shape}, the model wants {expected[0]} and {expected[1]}"
            )
        a[layer, :, :own] = factors.a.T
        b[layer, :own] = factors.b.T * (factors.scale / scale)
    blocks = np.split(b, np.cumsum(outputs)[:-1], axis=2)
    return {
        target: LowRank(jnp.asarray(a), jnp.asarray(block), scale)
        for target, block in zip(group, blocks, strict=True)
    }
