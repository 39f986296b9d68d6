"""Hugging Face folders: saved is loaded, in one file or several; what does not fit is said in words."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import SHAPES, decoder_of
from safetensors.numpy import load_file, save_file

from proxima.core.errors import ProximaError
from proxima.domains.language.hf import check_vocabulary, load_model, save_model
from proxima.domains.language.hf_config import decoder_config, written_settings
from proxima.domains.language.hub import locate

FAMILY = {name: "llama" if name == "llama3" else name for name in SHAPES}


@pytest.fixture
def folder(tmp_path):
    save_model(decoder_of("llama"), tmp_path)
    return tmp_path


def edit(folder, **settings):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def edit_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def assert_same(one, other):
    assert one.config == other.config
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", list(SHAPES))
def test_saved_is_loaded(family, dtype, tmp_path):
    decoder = decoder_of(family, dtype)
    save_model(decoder, tmp_path, family=FAMILY[family])
    assert_same(load_model(tmp_path, dtype), decoder)


def test_mistral_is_saved_too(tmp_path):
    save_model(decoder_of("llama"), tmp_path, family="mistral")
    assert_same(load_model(tmp_path), decoder_of("llama"))


def test_a_family_without_a_place_for_a_part_is_refused():
    with pytest.raises(ProximaError, match="no place for all parts"):
        written_settings(SHAPES["qwen2"], "llama")


def test_shards_are_one_model(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, files = sorted(tensors), {}
    for number, name in enumerate(names):
        files.setdefault(f"model-0000{number % 3}-of-00003.safetensors", {})[name] = tensors[name]
    for file, part in files.items():
        save_file(part, folder / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same(load_model(folder), decoder_of("llama"))
    (folder / "model-00001-of-00003.safetensors").unlink()
    with pytest.raises(ProximaError, match=r"model-00001-of-00003.safetensors.*not there"):
        load_model(folder)


def test_names_without_their_prefix(folder):
    def bare(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("model.")] = tensors.pop(name)

    edit_weights(folder, bare)
    assert_same(load_model(folder), decoder_of("llama"))


def test_like_another_folder(folder, tmp_path):
    (folder / "tokenizer.json").write_text("{}")
    edit(folder, bos_token_id=7)
    decoder = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), decoder_of("llama"))
    save_model(decoder, tmp_path / "copy", like=folder)
    said = json.loads((tmp_path / "copy" / "config.json").read_text())
    assert said["bos_token_id"] == 7 and said["torch_dtype"] == "bfloat16"
    assert (tmp_path / "copy" / "tokenizer.json").read_text() == "{}"
    assert_same(load_model(tmp_path / "copy", "bfloat16"), decoder)
    with pytest.raises(ProximaError, match="another model"):
        save_model(decoder_of("qwen3"), tmp_path / "other", like=folder)


def test_rotary_settings_in_both_spellings(folder):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    edit(folder, rope_theta=500.0, rope_scaling=scaling)
    four = decoder_config(folder)
    said = json.loads((folder / "config.json").read_text())
    del said["rope_theta"], said["rope_scaling"]
    said["rope_parameters"] = scaling | {"rope_theta": 500.0}
    (folder / "config.json").write_text(json.dumps(said))
    assert decoder_config(folder) == four
    assert four.rope_theta == 500.0 and four.rope_scaling is not None
    said["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e5}
    (folder / "config.json").write_text(json.dumps(said))
    assert decoder_config(folder).rope_theta == 1e5
    assert decoder_config(folder).rope_scaling is None


def test_a_sliding_window_bounds_the_context(folder):
    edit(folder, model_type="mistral", sliding_window=16)
    assert decoder_config(folder).context == 16
    edit(folder, model_type="qwen2", use_sliding_window=False)
    assert decoder_config(folder).context == 64


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'.*there are gpt2, llama"),
        ({"model_type": "llama", "quantization_config": {}}, "quantised"),
        ({"rope_scaling": {"rope_type": "yarn"}}, 'rope scaling "yarn" is not known'),
        ({"hidden_act": "relu"}, "activation 'relu'"),
        ({"partial_rotary_factor": 0.5}, "rotated in part"),
        ({"vocab_size": 301}, r"embed_tokens.weight has shape \(300, 32\).*\(301, 32\)"),
        ({"intermediate_size": 2**31 - 1}, r"gate_proj.weight has shape \(48, 32\)"),
        ({"num_hidden_layers": 10**9}, "have no model.layers.2"),
        ({"num_hidden_layers": 1}, "tensors that a model of this config.json does not have"),
        ({"tie_word_embeddings": True}, "lm_head.weight is not the embedding"),
        ({"model_type": "qwen3"}, "have no model.layers.0.self_attn.q_norm"),
    ],
)
def test_settings_that_do_not_fit(folder, settings, words):
    edit(folder, **settings)
    with pytest.raises(ProximaError, match=words):
        load_model(folder)


def test_a_setting_is_missing(folder):
    said = json.loads((folder / "config.json").read_text())
    del said["hidden_size"]
    (folder / "config.json").write_text(json.dumps(said))
    with pytest.raises(
        ProximaError, match=r"shape \(300, 32\); by config.json it should be \(300, 4096"
    ):
        load_model(folder)


def test_weights_that_do_not_fit(folder):
    edit_weights(folder, lambda tensors: tensors.update(strange=np.zeros(3, np.float32)))
    with pytest.raises(ProximaError, match="for example strange"):
        load_model(folder)
    name, numbers = "lm_head.weight", np.zeros((300, 32), np.int8)
    edit_weights(folder, lambda tensors: tensors.pop("strange") is tensors.update({name: numbers}))
    with pytest.raises(ProximaError, match=r"safetensors: lm_head.weight is of type I8"):
        load_model(folder)


def test_a_tied_head_may_be_written_out(tmp_path):
    decoder = decoder_of("llama3")
    save_model(decoder, tmp_path)
    edit_weights(
        tmp_path, lambda tensors: tensors.update({"lm_head.weight": np.array(decoder.embedding)})
    )
    assert_same(load_model(tmp_path), decoder)


def test_files_that_are_missing_or_broken(folder, tmp_path):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    with pytest.raises(ProximaError, match="cut short"):
        load_model(folder)
    weights.write_bytes(whole[:100])
    with pytest.raises(ProximaError, match="not a safetensors file"):
        load_model(folder)
    weights.unlink()
    with pytest.raises(ProximaError, match=r"no model.safetensors"):
        load_model(folder)
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(ProximaError, match="pickled"):
        load_model(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ProximaError, match="not JSON"):
        load_model(folder)
    with pytest.raises(ProximaError, match=r"no config.json here"):
        load_model(tmp_path / "nowhere")


def test_a_full_disk_leaves_the_older_model(folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("proxima.domains.language.tensor_files.save_file", full)
    with pytest.raises(ProximaError, match=r"cannot write the model there.*No space left"):
        save_model(decoder_of("llama3"), folder)
    assert_same(load_model(folder), decoder_of("llama"))


def test_the_tokenizer_of_another_model(folder):
    decoder = load_model(folder)
    check_vocabulary(decoder, 300, folder)
    check_vocabulary(decoder, 290, folder)
    for size in (301, 100):
        with pytest.raises(ProximaError, match=rf"tokenizer has {size} ids, the model 300"):
            check_vocabulary(decoder, size, folder)


def test_where_a_model_is(folder, monkeypatch):
    assert locate(folder) == folder
    with pytest.raises(ProximaError, match="proxima model import"):
        locate(folder / "config.json")
    for nowhere in ("./nowhere/at/all", "", "a" * 300, "a\0b", "owner/model.git"):
        with pytest.raises(ProximaError, match="no such folder"):
            locate(nowhere)

    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ProximaError, match=r"owner/model: .*hub cannot be reached"):
        locate("owner/model")
