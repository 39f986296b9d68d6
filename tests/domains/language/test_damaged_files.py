"""Damaged files of models: each is refused in words that name it, whatever was done to it."""

import json
import shutil
import struct

import jax
import numpy as np
import pytest
from damage import damaged_bytes, damaged_json
from families import decoder_of
from safetensors.numpy import load, save

from proxima.core.errors import ProximaError
from proxima.domains.language.hf import load_model, save_model
from proxima.domains.language.model import fresh_part
from proxima.domains.language.part_files import load_adapters, load_part, save_adapters, save_part
from proxima.nets.lora import LoraConfig

LORA = LoraConfig(rank=2, targets=("q", "v"))
EMBEDDING = "model.embed_tokens.weight"
Q = "base_model.model.model.layers.1.self_attn.q_proj.lora_{}.weight"
SEEDS = 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A model, an adapter and a part of it, as they should be."""
    folder, base = tmp_path_factory.mktemp("whole"), decoder_of("llama")
    part = fresh_part(jax.random.key(0), base, LORA, head=True)
    save_model(base, folder)
    save_adapters(part.adapters, LORA, folder, folder)
    save_part(part, folder / "part.safetensors")
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


def read_all(folder):
    base = load_model(folder)
    load_adapters(folder, base)
    load_part(folder / "part.safetensors", base)


def header_and_body(data):
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(data, change):
    """A safetensors file whose header was changed, its weights as they were."""
    header, body = header_and_body(data)
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def offsets(name, *places):
    return lambda data: with_header(data, lambda h: h[name].update(data_offsets=list(places)))


def entry(name, **values):
    return lambda data: with_header(data, lambda header: header[name].update(values))


def tensors(**changes):
    """Weights of which some are others; None: there are none of that name."""

    def change(data):
        kept = {name: array for name, array in load(data).items() if name not in changes}
        return save(kept | {name: array for name, array in changes.items() if array is not None})

    return change


def scales(text):
    return lambda data: with_header(data, lambda header: header["__metadata__"].update(scales=text))


def spoilt(value):
    array = np.ones((300, 32), np.float32)
    array[7, 3] = value
    return array


MODEL, ADAPTER, PART = "model.safetensors", "adapter_model.safetensors", "part.safetensors"
DAMAGES = {
    # a header that lies about where its weights are
    "negative": (MODEL, offsets(EMBEDDING, -38400, 0), "not a safetensors file"),
    "overlapping": (MODEL, offsets("model.norm.weight", 0, 128), "not a safetensors file"),
    "beyond the end": (
        MODEL,
        offsets("model.norm.weight", 10**9, 10**9 + 128),
        "not a safetensors",
    ),
    "backwards": (MODEL, offsets("model.norm.weight", 128, 0), "not a safetensors file"),
    "into the header": (ADAPTER, offsets(Q.format("A"), -256, 0), "not a safetensors file"),
    "over another": (PART, offsets("head.weight", 0, 128), "not a safetensors file"),
    "of another type": (MODEL, entry("model.norm.weight", dtype="F9"), "not a safetensors file"),
    "of half the size": (MODEL, entry("model.norm.weight", dtype="F16"), "not a safetensors file"),
    "of a negative shape": (MODEL, entry("model.norm.weight", shape=[-32]), "not a safetensors"),
    "a header without end": (MODEL, lambda data: b"\xff" * 8 + data[8:], "not a safetensors file"),
    "empty": (MODEL, lambda data: b"", "not a safetensors file, or cut short"),
    "cut": (ADAPTER, lambda data: data[:-1], "not a safetensors file, or cut short"),
    "longer": (PART, lambda data: data + b"\0", "not a safetensors file"),
    # weights that do not fit, or are none
    "NaN": (MODEL, tensors(**{EMBEDDING: spoilt(np.nan)}), "NaN or infinite in 1 of 9,600 places"),
    "infinity": (MODEL, tensors(**{EMBEDDING: spoilt(-np.inf)}), f"{EMBEDDING} is NaN or infinite"),
    "whole numbers": (MODEL, tensors(**{EMBEDDING: spoilt(1).astype(np.int32)}), "is of type I32"),
    "missing": (MODEL, tensors(**{EMBEDDING: None}), f"have no {EMBEDDING}"),
    "too many": (MODEL, tensors(other=np.ones(3)), "for example other"),
    "turned": (MODEL, tensors(**{EMBEDDING: spoilt(1).T.copy()}), r"has shape \(32, 300\)"),
    "NaN in A": (
        ADAPTER,
        tensors(**{Q.format("A"): np.full((2, 32), np.nan, "f")}),
        "lora_A.* NaN",
    ),
    "no B": (ADAPTER, tensors(**{Q.format("B"): None}), r"shapes \(2, 32\) and None"),
    "another rank": (
        ADAPTER,
        tensors(**{Q.format("A"): np.ones((3, 32), "f")}),
        r"shapes \(3, 32\)",
    ),
    "a flat A": (ADAPTER, tensors(**{Q.format("A"): np.ones(64, "f")}), r"shapes \(64,\)"),
    "no change": (ADAPTER, lambda data: save({}), "0 tensors have no place"),
    "no scale": (PART, scales("{}"), "adapters.q.a has shape .* should be None"),
    "a scale of nothing": (PART, scales('{"q": 1.0, "z": 1.0}'), "changes z, which the base"),
    "a scale that is none": (PART, scales('{"q": NaN, "v": 1.0}'), "NaN is no number"),
    "a scale in words": (PART, scales('{"q": "1", "v": 1.0}'), 'scales.q is "1"'),
    "scales that are none": (PART, scales("[1]"), "expected a JSON object"),
    "half": (
        PART,
        tensors(**{"head.weight": np.ones(32, np.float16)}),
        "other|float16, by the base",
    ),
    "a flat factor": (PART, tensors(**{"adapters.q.a": np.ones((), "f")}), "adapters.q.a|scale"),
}


@pytest.mark.parametrize("name", list(DAMAGES))
def test_a_damaged_file(name, folder):
    file, damage, words = DAMAGES[name]
    (folder / file).write_bytes(damage((folder / file).read_bytes()))
    with pytest.raises(ProximaError, match=words) as caught:
        read_all(folder)
    assert str(folder) in str(caught.value)


def shards(folder, **places):
    """The model in two files, and an index of them with some entries changed."""
    weights = load((folder / MODEL).read_bytes())
    (folder / MODEL).unlink()
    files = {"a.safetensors": {}, "b.safetensors": {}}
    for number, name in enumerate(weights):
        files[("a", "b")[number % 2] + ".safetensors"][name] = weights[name]
    for file, part in files.items():
        (folder / file).write_bytes(save(part))
    index = {name: file for file, part in files.items() for name in part}
    text = json.dumps({"weight_map": index | places})
    (folder / "model.safetensors.index.json").write_text(text)


@pytest.mark.parametrize(
    "place", ["../model.safetensors", "/etc/passwd", "sub/a.safetensors", "..", "", 3, None]
)
def test_an_index_that_leaves_the_folder(place, folder):
    shards(folder, strange=place)
    with pytest.raises(ProximaError, match=r'weight_map."strange" is|\.\.: named by'):
        load_model(folder)


def test_an_index_of_files_that_are_links(folder, tmp_path):
    shards(folder)
    load_model(folder)
    blob = tmp_path / "blob"
    (folder / "a.safetensors").rename(blob)
    (folder / "a.safetensors").symlink_to(blob)  # as the hub's cache has them
    load_model(folder)


def test_indexes_that_say_nothing(folder):
    shards(folder)
    index = folder / "model.safetensors.index.json"
    for text, words in [("{}", "weight_map should say"), ("[]", "JSON object"), ("{", "not JSON")]:
        index.write_text(text)
        with pytest.raises(ProximaError, match=words):
            load_model(folder)


def test_a_tensor_in_two_files(folder):
    shards(folder)
    more = load((folder / "a.safetensors").read_bytes()) | load(
        (folder / "b.safetensors").read_bytes()
    )
    (folder / "a.safetensors").write_bytes(save(more))
    with pytest.raises(ProximaError, match=r"b.safetensors: .* is in a.safetensors too"):
        load_model(folder)


@pytest.mark.parametrize("file", [MODEL, ADAPTER, PART, "config.json", "adapter_config.json"])
def test_a_folder_in_the_place_of_a_file(file, folder):
    (folder / file).unlink()
    (folder / file).mkdir()
    with pytest.raises(ProximaError, match=r"no such file|no model.safetensors|no config.json"):
        read_all(folder)


@pytest.mark.parametrize("file", [MODEL, ADAPTER, PART])
def test_any_damage_of_weights(file, folder):
    data = (folder / file).read_bytes()
    refused = 0
    for seed in range(SEEDS):
        (folder / file).write_bytes(damaged_bytes(data, seed))
        refused += is_refused(folder)
    assert refused > SEEDS / 4


@pytest.mark.parametrize("file", ["config.json", "adapter_config.json"])
def test_any_damage_of_settings(file, folder):
    text = (folder / file).read_text()
    refused = 0
    for seed in range(SEEDS):
        (folder / file).write_text(damaged_json(text, seed), errors="surrogatepass")
        refused += is_refused(folder)
    assert refused > SEEDS / 4


def is_refused(folder):
    """Whether the folder is refused; another error than one in words fails the test."""
    try:
        read_all(folder)
    except ProximaError as error:
        assert str(folder) in str(error)
        return True
    return False
