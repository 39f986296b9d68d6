"""Parts on a disk, and adapters as PEFT has them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import decoder_of
from safetensors.numpy import load_file, save_file

from proxima.core.errors import ProximaError
from proxima.domains.language.hf import save_model
from proxima.domains.language.model import REFERENCE, fresh_part
from proxima.domains.language.part_files import (
    load_adapters,
    load_part,
    save_adapters,
    save_part,
)
from proxima.nets.lora import TARGETS, LoraConfig
from proxima.nets.transformer import merge

LORA = LoraConfig(rank=2, alpha=6.0, targets=("q", "o", "down"))


def moved(base, lora=LORA, head=True):
    part = fresh_part(jax.random.key(0), base, lora, head)
    return jax.tree.map(lambda leaf: leaf + 0.1, part)


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("lora", [LORA, None], ids=["adapters", "weights"])
@pytest.mark.parametrize("head", [True, False])
def test_saved_is_loaded(lora, head, tmp_path):
    base = decoder_of("gpt2")
    part = moved(base, lora, head)
    save_part(part, tmp_path / "new" / "part.safetensors")
    assert_same(load_part(tmp_path / "new" / "part.safetensors", base), part)


def test_the_reference_is_nothing(tmp_path):
    save_part(REFERENCE, tmp_path / "part")
    assert load_part(tmp_path / "part", decoder_of("llama")) == REFERENCE


def test_a_part_of_another_model(tmp_path):
    save_part(moved(decoder_of("llama")), tmp_path / "part")
    with pytest.raises(ProximaError, match=r"adapters.*part of another model"):
        load_part(tmp_path / "part", decoder_of("qwen3"))
    save_part(moved(decoder_of("llama"), None), tmp_path / "part")
    with pytest.raises(ProximaError, match=r"decoder.*part of another model"):
        load_part(tmp_path / "part", decoder_of("gpt2"))


def test_files_that_are_missing_or_broken(tmp_path):
    with pytest.raises(ProximaError, match="no such file"):
        load_part(tmp_path / "none", decoder_of("llama"))
    (tmp_path / "part").write_bytes(b"12345678 and no more")
    with pytest.raises(ProximaError, match="not a safetensors file"):
        load_part(tmp_path / "part", decoder_of("llama"))


def saved(family, targets, tmp_path):
    """A base and its adapters, written as PEFT has them."""
    base = decoder_of(family)
    lora = LoraConfig(rank=2, alpha=6.0, targets=targets)
    adapters = moved(base, lora).adapters
    save_model(base, tmp_path / "base", family=family)
    save_adapters(adapters, lora, tmp_path / "adapter", tmp_path / "base")
    return base, adapters


def edit(folder, **settings):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def test_llamas_adapters_come_back(tmp_path):
    base, adapters = saved("llama", TARGETS, tmp_path)
    assert_same(load_adapters(tmp_path / "adapter", base), adapters)
    said = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert said["r"] == 2 and said["lora_alpha"] == 6.0 and not said["rank_pattern"]
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    name = "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight"
    np.testing.assert_array_equal(tensors[name], adapters.k.b[1].T)


@pytest.mark.parametrize("targets", [("q", "k", "v", "o", "up", "down"), ("q", "v")], ids=str)
def test_gpt2s_three_in_one(targets, tmp_path):
    base, adapters = saved("gpt2", targets, tmp_path)
    again = load_adapters(tmp_path / "adapter", base)
    ours, theirs = merge(base, adapters), merge(base, again)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert jnp.any(theirs.layers.v.weight != base.layers.v.weight)
    said = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert said["rank_pattern"] == {"attn.c_attn": 2 * len({"q", "k", "v"} & {*targets})}


def test_layers_and_ranks_of_their_own(tmp_path):
    base, adapters = saved("llama", ("q",), tmp_path)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(file)
    stem = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    del tensors[stem.format(0, "A")], tensors[stem.format(0, "B")]
    tensors[stem.format(1, "A")] = tensors[stem.format(1, "A")][:1]
    tensors[stem.format(1, "B")] = np.ascontiguousarray(tensors[stem.format(1, "B")][:, :1])
    save_file(tensors, file)
    edit(tmp_path / "adapter", rank_pattern={r"layers\.1\.self_attn.q_proj": 1}, use_rslora=True)
    again = load_adapters(tmp_path / "adapter", base)
    assert again.q.scale == 6.0 and again.q.a.shape == (2, 32, 1)
    assert not jnp.any(again.q.b[0])
    np.testing.assert_array_equal(again.q.b[1], adapters.q.b[1, :1])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"peft_type": "IA3"}, "only LORA"),
        ({"use_dora": True}, "use_dora: true is not supported"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ],
)
def test_settings_of_adapters_that_do_not_fit(settings, words, tmp_path):
    base, _ = saved("llama", ("q",), tmp_path)
    edit(tmp_path / "adapter", **settings)
    with pytest.raises(ProximaError, match=words):
        load_adapters(tmp_path / "adapter", base)


def test_adapters_of_another_model(tmp_path):
    saved("llama", ("q",), tmp_path)
    with pytest.raises(
        ProximaError, match=r"q_proj have shapes .* should be \(2, 32\) and \(48, 2\)"
    ):
        load_adapters(tmp_path / "adapter", decoder_of("qwen3"))
    with pytest.raises(ProximaError, match="4 tensors have no place"):
        load_adapters(tmp_path / "adapter", decoder_of("gpt2"))
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(ProximaError, match=r"adapter_model.safetensors: no such file"):
        load_adapters(tmp_path / "adapter", decoder_of("llama"))
