"""Parts on a disk, and adapters as PEFT has them."""

import jax
import numpy as np
import pytest
from families import decoder_of

from proxima.core.errors import ProximaError
from proxima.domains.language.model import REFERENCE, fresh_part
from proxima.domains.language.part_files import load_part, save_part
from proxima.nets.lora import LoraConfig

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
    with pytest.raises(ProximaError, match="not a part of a model"):
        load_part(tmp_path / "part", decoder_of("llama"))
