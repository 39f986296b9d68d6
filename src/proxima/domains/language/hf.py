"""Models from and to Hugging Face folders: config.json, safetensors (sharded too), the tokenizer's files.

A family is a table of names: which of our weights stand in which tensor. Reading checks every name
and shape against config.json; a tensor that is missing and one that nobody asked for are errors, not silence.
Files are read tensor by tensor: beside the weights at most one is in memory.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from types import EllipsisType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.language.hf_config import (
    decoder_config,
    family_of,
    read_settings,
    written_settings,
)
from proxima.files import explaining, replacing
from proxima.nets.transformer import Decoder, DecoderConfig, new_decoder
from proxima.run.files import write_json

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
# What a tokenizer and its chat template may consist of; copied as they are.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)
DTYPES = ("F32", "F16", "BF16")
# Masks and rotations that older files carry along.
BUFFERS = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")
HEAD = "lm_head.weight"


class Names(NamedTuple):
    """How a family names its tensors: ours → theirs. Several of ours may stand side by side in one."""

    prefix: str  # of all but the head; files of a model without head leave it out
    layer: str
    matrices_transposed: bool  # stored (outputs, inputs)
    whole: Mapping[str, str]
    layered: Mapping[tuple[str, ...], str]


LLAMA = Names(
    prefix="model.",
    layer="layers.{}.",
    matrices_transposed=True,
    whole={"embedding": "embed_tokens.weight", "norm.scale": "norm.weight"},
    layered={
        ("attention_norm",): "input_layernorm",
        ("q",): "self_attn.q_proj",
        ("k",): "self_attn.k_proj",
        ("v",): "self_attn.v_proj",
        ("o",): "self_attn.o_proj",
        ("q_norm",): "self_attn.q_norm",
        ("k_norm",): "self_attn.k_norm",
        ("mlp_norm",): "post_attention_layernorm",
        ("gate",): "mlp.gate_proj",
        ("up",): "mlp.up_proj",
        ("down",): "mlp.down_proj",
    },
)
GPT2 = Names(
    prefix="transformer.",
    layer="h.{}.",
    matrices_transposed=False,
    whole={
        "embedding": "wte.weight",
        "positions": "wpe.weight",
        "norm.scale": "ln_f.weight",
        "norm.shift": "ln_f.bias",
    },
    layered={
        ("attention_norm",): "ln_1",
        ("q", "k", "v"): "attn.c_attn",
        ("o",): "attn.c_proj",
        ("mlp_norm",): "ln_2",
        ("up",): "mlp.c_fc",
        ("down",): "mlp.c_proj",
    },
)
# What our leaves of a projection or a norm are called in files.
LEAVES = {"weight": "weight", "bias": "bias", "scale": "weight", "shift": "bias"}


class Entry(NamedTuple):
    """One tensor of a file and the leaves of ours that stand in it, side by side along the last axis."""

    name: str
    leaves: tuple[str, ...]
    layer: int | EllipsisType  # index into the leaves; ...: all of them
    transposed: bool


def load_model(folder: Path, dtype: str = "float32") -> Decoder:
    """The decoder in a folder, every one of its tensors accounted for."""
    config, settings = decoder_config(folder), read_settings(folder)
    stored = dict(_tensors(folder))
    skeleton = eqx.filter_eval_shape(new_decoder, jax.random.key(0), config, dtype)
    shapes = leaves_of(skeleton)
    names = names_of(family_of(settings, folder / "config.json"))
    bare = not any(name.startswith(names.prefix) for name in stored)
    ours: dict[str, jax.Array] = {}
    for leaves, entries in groupby(_entries(config, names, shapes), lambda entry: entry.leaves):
        arrays = {leaf: np.empty(shapes[leaf].shape, shapes[leaf].dtype) for leaf in leaves}
        for entry in entries:
            name = entry.name.removeprefix(names.prefix) if bare else entry.name
            if name not in stored:
                raise ProximaError(
                    f"{folder}: the weights have no {name}, which config.json asks for"
                )
            _fill(arrays, entry, stored.pop(name), folder)
        # device_put copies once, jnp.asarray twice; waited for, so that the original is let go
        ours |= {leaf: jax.block_until_ready(jax.device_put(arrays.pop(leaf))) for leaf in leaves}
    _check_rest(stored, ours["embedding"], folder)
    return jax.tree.unflatten(jax.tree.structure(skeleton), [ours[leaf] for leaf in shapes])


def save_model(
    decoder: Decoder, folder: Path, like: Path | None = None, family: str = "llama"
) -> None:
    """A folder that transformers and `load_model` read; config and tokenizer are `like`'s, if given."""
    if like is None:
        settings = written_settings(decoder.config, family)
    else:
        settings = read_settings(like)
        if decoder_config(like) != decoder.config:
            raise ProximaError(f"{like}: its config.json is of another model than the one to save")
    names = names_of(family_of(settings, folder / "config.json"))
    ours = {name: np.asarray(leaf) for name, leaf in leaves_of(decoder).items()}
    tensors = {entry.name: _joined(ours, entry) for entry in _entries(decoder.config, names, ours)}
    settings["dtype"] = settings["torch_dtype"] = str(decoder.embedding.dtype)
    write_tensors(tensors, folder / WEIGHTS, "model")
    write_json(folder / "config.json", settings)
    if like is None or like.resolve() == folder.resolve():
        return
    with explaining(folder, "tokenizer"):
        for name in TOKENIZER_FILES:
            if (like / name).is_file():
                shutil.copyfile(like / name, folder / name)


def write_tensors(
    tensors: Mapping[str, np.ndarray], file: Path, what: str, notes: Mapping[str, str] | None = None
) -> None:
    """A safetensors file, whole or not at all; `what` is for the error's words."""
    with replacing(file, what) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata={"format": "pt", **(notes or {})})
        except SafetensorError as error:  # what the library makes of a full disk, for one
            raise OSError(str(error)) from error
        temporary.chmod(0o644)  # the library's files are readable by their owner only


def check_vocabulary(decoder: Decoder, tokenizer_size: int, folder: Path) -> None:
    """A tokenizer of another model is an error; a model may have a few ids more, to round them up."""
    vocabulary = decoder.config.vocabulary
    if not 0.9 * vocabulary <= tokenizer_size <= vocabulary:
        raise ProximaError(
            f"{folder}: the tokenizer has {tokenizer_size:,} ids, the model {vocabulary:,}; take the "
            "tokenizer that the model was trained with"
        )


def names_of(family: str) -> Names:
    """The names of a family's tensors."""
    return GPT2 if family == "gpt2" else LLAMA


def leaves_of(tree: PyTree) -> dict[str, Any]:
    """The arrays of a tree (or their shapes) by dotted name."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in paths}


def _entries(config: DecoderConfig, names: Names, ours: Mapping[str, Any]) -> Iterator[Entry]:
    """Every tensor that a file of this model has."""
    for name, theirs in names.whole.items():
        if name in ours:
            yield Entry(names.prefix + theirs, (name,), ..., False)
    if "head" in ours:
        yield Entry(HEAD, ("head",), ..., True)
    for group, theirs in names.layered.items():
        for leaf, their_leaf in LEAVES.items():
            members = tuple(f"layers.{member}.{leaf}" for member in group)
            turned = names.matrices_transposed and leaf == "weight"
            for layer in range(config.layers if members[0] in ours else 0):
                name = f"{names.prefix}{names.layer.format(layer)}{theirs}.{their_leaf}"
                yield Entry(name, members, layer, turned)


class _Tensor(NamedTuple):
    """A tensor of a file that is read when it is asked for."""

    file: Path
    name: str
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        # opened anew for each: what was read of an open file stays in memory
        with safe_open(self.file, framework="numpy") as opened:
            return opened.get_tensor(self.name)


def _fill(ours: Mapping[str, np.ndarray], entry: Entry, tensor: _Tensor, folder: Path) -> None:
    """Puts a tensor into our leaves."""
    targets = [ours[leaf][entry.layer] for leaf in entry.leaves]
    ends = np.cumsum([target.shape[-1] for target in targets])
    whole = (*targets[0].shape[:-1], int(ends[-1]))
    expected = whole[::-1] if entry.transposed else whole
    if tensor.shape != expected:
        raise ProximaError(
            f"{folder}: {entry.name} has shape {tensor.shape}; by config.json it should be {expected}"
        )
    array = tensor.read().T if entry.transposed else tensor.read()
    for target, part in zip(targets, np.split(array, ends[:-1], axis=-1), strict=True):
        target[...] = part


def _joined(ours: Mapping[str, np.ndarray], entry: Entry) -> np.ndarray:
    """Our leaves as the tensor that a file has of them."""
    parts = [ours[leaf][entry.layer] for leaf in entry.leaves]
    array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
    return np.ascontiguousarray(array.T if entry.transposed else array)


def _check_rest(rest: dict[str, _Tensor], embedding: jax.Array, folder: Path) -> None:
    """What nobody took must be known to be superfluous."""
    head = rest.pop(HEAD, None)  # still there: the head is tied
    if head is not None and not (
        head.shape == embedding.shape
        and np.array_equal(head.read().astype(embedding.dtype), embedding)
    ):
        raise ProximaError(
            f"{folder}: {HEAD} is not the embedding, though config.json says tie_word_embeddings; "
            "set it to false there if the head is meant to be free"
        )
    unknown = [name for name in rest if not name.endswith(BUFFERS)]
    if unknown:
        raise ProximaError(
            f"{folder}: {len(unknown)} tensors that a model of this config.json does not have, "
            f"for example {unknown[0]}"
        )


def _tensors(folder: Path) -> Iterator[tuple[str, _Tensor]]:
    """All tensors of a folder's safetensors, by name."""
    for file in _files(folder):
        try:
            with safe_open(file, framework="numpy") as opened:
                slices = [(name, opened.get_slice(name)) for name in opened.keys()]  # noqa: SIM118
                kinds = [(name, part.get_dtype(), part.get_shape()) for name, part in slices]
        except FileNotFoundError:
            raise ProximaError(f"{file}: named by {INDEX}, but not there") from None
        except SafetensorError as error:
            raise ProximaError(
                f"{file}: not a safetensors file, or cut short; fetch or copy it again ({error})"
            ) from None
        for name, dtype, shape in kinds:
            if dtype not in DTYPES:
                raise ProximaError(
                    f"{file}: {name} is of type {dtype}; known are {', '.join(DTYPES)}"
                )
            yield name, _Tensor(file, name, tuple(shape))


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        shards = json.loads((folder / INDEX).read_text())["weight_map"].values()
        return [folder / name for name in sorted(set(shards))]
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    pickled = any(folder.glob("pytorch_model*.bin"))
    raise ProximaError(
        f"{folder}: no {WEIGHTS} and no {INDEX}"
        + ("; save the model as safetensors, pickled weights are not opened" if pickled else "")
    )
