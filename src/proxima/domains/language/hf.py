"""Models from and to Hugging Face folders: config.json, safetensors (sharded too), the tokenizer's files.

A family is a table of names: which of our weights stand in which tensor. Reading checks every name
and shape against config.json; a tensor that is missing and one that nobody asked for are errors, not silence.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from types import EllipsisType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.language.hf_config import (
    decoder_config,
    family_of,
    read_object,
    read_settings,
    shown,
    written_settings,
)
from proxima.domains.language.tensor_files import Tensor, open_tensors, write_tensors
from proxima.files import explaining
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
    names = names_of(family_of(settings, folder / "config.json"))
    stored, skeleton = _stored(folder), skeleton_of(config, dtype)
    # All are checked before memory is asked for: by an absurd config.json it would be as absurd.
    entries = accounted(
        {name: part.shape for name, part in stored.items()}, skeleton, names, folder
    )
    shapes = leaves_of(skeleton)
    ours: dict[str, jax.Array] = {}
    for leaves, group in groupby(entries, lambda pair: pair[0].leaves):
        arrays = {leaf: np.empty(shapes[leaf].shape, shapes[leaf].dtype) for leaf in leaves}
        for entry, name in group:
            _fill(arrays, entry, stored[name].read())
        # device_put copies once, jnp.asarray twice; waited for, so that the original is let go
        ours |= {leaf: jax.block_until_ready(jax.device_put(arrays.pop(leaf))) for leaf in leaves}
    if config.tied and HEAD in stored:
        _check_tied(stored[HEAD], ours["embedding"])
    return jax.tree.unflatten(jax.tree.structure(skeleton), [ours[leaf] for leaf in shapes])


def skeleton_of(config: DecoderConfig, dtype: str = "float32") -> Decoder:
    """A decoder with shapes where its arrays would be."""
    return eqx.filter_eval_shape(new_decoder, jax.random.key(0), config, dtype)


def accounted(
    stored: Mapping[str, tuple[int, ...]], skeleton: Decoder, names: Names, where: Path
) -> list[tuple[Entry, str]]:
    """The entries of a model, and under which name each is stored; all fit, and there is nothing else."""
    config, shapes = skeleton.config, leaves_of(skeleton)
    bare = not any(name.startswith(names.prefix) for name in stored)
    entries = []
    for entry in _entries(config, names, shapes):
        name = entry.name.removeprefix(names.prefix) if bare else entry.name
        if name not in stored:
            raise ProximaError(f"{where}: the weights have no {name}, which config.json asks for")
        expected = _shape(entry, shapes)
        if stored[name] != expected:
            raise ProximaError(
                f"{where}: {name} has shape {stored[name]}; by config.json it should be {expected}"
            )
        entries.append((entry, name))
    taken = {name for _, name in entries} | ({HEAD} if config.tied else set())
    unknown = sorted(stored.keys() - taken)
    if unknown:
        raise ProximaError(
            f"{where}: {len(unknown)} tensors that a model of this config.json does not have, "
            f"for example {unknown[0]}"
        )
    return entries


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


def _shape(entry: Entry, shapes: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of the tensor that a file has of our leaves."""
    # a layer's part of a stacked leaf has one axis less
    parts = [shapes[leaf].shape[0 if entry.layer is ... else 1 :] for leaf in entry.leaves]
    whole = (*parts[0][:-1], sum(part[-1] for part in parts))
    return whole[::-1] if entry.transposed else whole


def _fill(ours: Mapping[str, np.ndarray], entry: Entry, array: np.ndarray) -> None:
    """Puts a file's tensor into our leaves."""
    targets = [ours[leaf][entry.layer] for leaf in entry.leaves]
    ends = np.cumsum([target.shape[-1] for target in targets])
    turned = array.T if entry.transposed else array
    for target, part in zip(targets, np.split(turned, ends[:-1], axis=-1), strict=True):
        target[...] = part


def _joined(ours: Mapping[str, np.ndarray], entry: Entry) -> np.ndarray:
    """Our leaves as the tensor that a file has of them."""
    parts = [ours[leaf][entry.layer] for leaf in entry.leaves]
    array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
    return np.ascontiguousarray(array.T if entry.transposed else array)


def _check_tied(head: Tensor, embedding: jax.Array) -> None:
    """A head that is written out although it is tied must be the embedding."""
    if head.shape != embedding.shape or not np.array_equal(
        head.read().astype(embedding.dtype), embedding
    ):
        raise ProximaError(
            f"{head.file}: {HEAD} is not the embedding, though config.json says tie_word_embeddings; "
            "set it to false there if the head is meant to be free"
        )


def _stored(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors, by name; each is in one file only."""
    stored: dict[str, Tensor] = {}
    for file in _files(folder):
        for name, tensor in open_tensors(file).tensors.items():
            if name in stored:
                raise ProximaError(f"{file}: {name} is in {stored[name].file.name} too; keep one")
            if not name.endswith(BUFFERS):
                stored[name] = tensor
    return stored


def _files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():  # before an index, as transformers has it
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return [folder / name for name in _shards(folder / INDEX)]
    pickled = any(folder.glob("pytorch_model*.bin"))
    raise ProximaError(
        f"{folder}: no {WEIGHTS} and no {INDEX}"
        + ("; save the model as safetensors, pickled weights are not opened" if pickled else "")
    )


def _shards(index: Path) -> list[str]:
    """The files that an index names; they are beside it."""
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ProximaError(f"{index}: weight_map should say of each tensor which file it is in")
    for tensor, name in places.items():
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise ProximaError(
                f"{index}: weight_map.{shown(tensor)} is {shown(name)}; it should be a file beside it"
            )
        if not os.path.isfile(index.parent / name):  # also of a name too long to be one
            raise ProximaError(f"{index.parent / name}: named by {INDEX}, but not there")
    return sorted(set(places.values()))
