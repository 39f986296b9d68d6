"""Our logits are transformers': measured where it is installed (extra `oracle`), else from golden numbers."""

import json

import jax
import numpy as np
import pytest
from hf_folders import (
    ADAPTERS,
    GOLDEN,
    SETTINGS,
    golden_rows,
    kept,
    make_adapter,
    make_folder,
    oracle_logits,
)

from proxima.domains.language.hf import load_model, save_model
from proxima.domains.language.part_files import load_adapters
from proxima.nets.transformer import hidden_states, logits_of, merge


@jax.jit
def logits(decoder, ids, mask):
    return logits_of(decoder, hidden_states(decoder, ids, mask))


@pytest.mark.parametrize("name", list(SETTINGS))
def test_golden_logits(name, tmp_path):
    ids, mask = golden_rows()
    ours = logits(load_model(make_folder(name, tmp_path)), ids, mask)
    golden = np.array(json.loads(GOLDEN.read_text())[name])
    assert golden.std() > 0.5
    np.testing.assert_allclose(kept(ours), golden, atol=1e-4, rtol=0)


def adapted(name, place):
    """The model below an adapter, the adapter, and our decoder of both."""
    folder = make_folder(ADAPTERS[name][0], place / "base")
    adapter = make_adapter(name, place / "adapter", folder)
    base = load_model(folder)
    return folder, adapter, merge(base, load_adapters(adapter, base))


@pytest.mark.parametrize("name", list(ADAPTERS))
def test_golden_logits_with_an_adapter(name, tmp_path):
    ids, mask = golden_rows()
    *_, decoder = adapted(name, tmp_path)
    golden = json.loads(GOLDEN.read_text())
    np.testing.assert_allclose(kept(logits(decoder, ids, mask)), golden[name], atol=1e-4, rtol=0)
    change = np.array(golden[name]) - golden[ADAPTERS[name][0]]
    assert np.abs(change).max() > 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(ADAPTERS))
def test_oracle_logits_with_an_adapter(name, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("peft")
    ids, mask = golden_rows()
    folder, adapter, decoder = adapted(name, tmp_path)
    theirs = oracle_logits(folder, ids, mask, adapter)
    np.testing.assert_allclose(logits(decoder, ids, mask)[mask], theirs[mask], atol=1e-4, rtol=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(SETTINGS))
def test_oracle_logits(name, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    ids, mask = golden_rows()
    folder = make_folder(name, tmp_path / "theirs")
    ours = logits(load_model(folder), ids, mask)
    theirs = oracle_logits(folder, ids, mask)
    np.testing.assert_allclose(ours[mask], theirs[mask], atol=1e-4, rtol=0)
    # and what we write, they read
    save_model(load_model(folder), tmp_path / "ours", family=SETTINGS[name]["model_type"])
    again = oracle_logits(tmp_path / "ours", ids, mask)
    np.testing.assert_allclose(again[mask], theirs[mask], atol=1e-6, rtol=0)
