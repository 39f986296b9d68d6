"""config.json as transformers reads it: what is not given, what is given twice, and what makes no sense."""

import json

import jax
import numpy as np
import pytest
from hf_folders import SCALING, SIZES, fill_folder, golden_rows, oracle_logits

from proxima.core.errors import ProximaError
from proxima.domains.language.hf import load_model
from proxima.domains.language.hf_config import decoder_config, read_object
from proxima.nets.transformer import RopeScaling, hidden_states, logits_of


def given(family="llama", without=(), **changes):
    settings = SIZES | {"model_type": family} | changes
    return {name: value for name, value in settings.items() if name not in without}


LLAMA3 = RopeScaling(**{name: value for name, value in SCALING.items() if name != "rope_type"})
SLIDES = {"use_sliding_window": True, "sliding_window": 16}
ONE_SLIDES = ["full_attention", "sliding_attention", "full_attention"]
# Settings, and what becomes of them in our decoder's; `test_oracle` asks transformers.
READ = {
    "llama without most": (
        given(without=["rms_norm_eps", "hidden_act", "num_key_value_heads"]),
        {"norm_eps": 1e-6, "activation": "silu", "kv_heads": 4, "rope_theta": 1e4, "tied": False},
    ),
    "null is not absent": (
        given("qwen2", num_key_value_heads=None),
        {"kv_heads": 4, "attention_bias": True, "output_bias": False},
    ),
    "mistral's groups": (
        given("mistral", ["num_key_value_heads"], num_attention_heads=16),
        {"kv_heads": 8, "head_width": 2},
    ),
    "qwen3's heads": (given("qwen3"), {"head_width": 128, "qk_norm": True}),
    "mistral's window": (given("mistral", ["max_position_embeddings"]), {"context": 4096}),
    "mistral without a window": (
        given("mistral", ["max_position_embeddings"], sliding_window=None),
        {"context": 131_072},
    ),
    "mistral has no biases": (
        given("mistral", attention_bias=True, mlp_bias=True),
        {"attention_bias": False, "output_bias": False, "mlp_bias": False},
    ),
    "qwen2's last layer slides": (given("qwen2", **SLIDES, max_window_layers=2), {"context": 16}),
    "qwen2 has too few layers to slide": (given("qwen2", **SLIDES), {"context": 64}),
    "one of qwen3's layers slides": (
        given("qwen3", **SLIDES, layer_types=ONE_SLIDES),
        {"context": 16},
    ),
    "theta in rope_scaling": (
        given(rope_scaling=SCALING | {"rope_theta": 500.0}),
        {"rope_theta": 500.0, "rope_scaling": LLAMA3},
    ),
    "theta twice, the same": (
        given(rope_theta=500, rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
        {"rope_theta": 500.0, "rope_scaling": None},
    ),
    "scaling twice, the same": (
        given(rope_theta=500.0, rope_parameters=SCALING, rope_scaling=SCALING | {"type": "llama3"}),
        {"rope_theta": 500.0, "rope_scaling": LLAMA3},
    ),
    "scaling without its span": (
        given(rope_scaling={name: SCALING[name] for name in list(SCALING)[:-1]}),
        {
            "rope_scaling": RopeScaling(
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            )
        },
    ),
    "gpt2 without most": (
        {"model_type": "gpt2", "vocab_size": 300, "n_embd": 32, "n_head": 4, "n_layer": 3},
        {"norm_eps": 1e-5, "activation": "gelu_tanh", "inner": 128, "tied": True, "context": 1024},
    ),
    "gpt2 in newer words": (given("gpt2"), {"width": 32, "layers": 3, "heads": 4, "context": 64}),
}
REFUSED = {
    "theta twice": (
        given(rope_theta=100.0, rope_parameters={"rope_theta": 500.0}),
        r"rope_theta is 100.0 and rope_parameters.rope_theta is 500.0, but both mean the same",
    ),
    "theta in rope_scaling and outside": (
        given(rope_theta=100.0, rope_scaling={"rope_type": "default", "rope_theta": 500.0}),
        "rope_theta is 100.0 and rope_scaling.rope_theta is 500.0",
    ),
    "scaling twice": (
        given(rope_scaling=SCALING, rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
        "rope_scaling is .* and rope_parameters is .* both mean the same",
    ),
    "two kinds": (
        given(rope_scaling=SCALING | {"type": "yarn"}),
        'rope_scaling.rope_type is "llama3" and rope_scaling.type is "yarn"',
    ),
    "two spans": (
        given(rope_scaling=SCALING, original_max_position_embeddings=16),
        "original_max_position_embeddings is 16 and rope_scaling.original.* is 32",
    ),
    "scaling by layers": (
        given("qwen2", rope_parameters={"full_attention": {"rope_theta": 500.0}}),
        "rope_parameters should be an object with one value for each name",
    ),
    "part of a head": (given(rope_parameters={"partial_rotary_factor": 0.5}), "rotated in part"),
    "no factor": (given(rope_scaling={"rope_type": "llama3"}), "rope_scaling.factor is null"),
    "factors": (
        given(rope_scaling=SCALING | {"high_freq_factor": 1.0}),
        "low_freq_factor should be below high_freq_factor",
    ),
    "an odd head": (given(head_dim=7), "heads are 7 wide; only pairs can be rotated"),
    "gpt2 twice": (given("gpt2", n_embd=64), "n_embd is 64 and hidden_size is 32"),
    "gpt2's heads": (given("gpt2", n_embd=32, n_head=5, without=["num_attention_heads"]), "n_head"),
    "no window": (
        given("qwen3", layer_types=ONE_SLIDES),
        "layer_types has sliding_attention, but .* no window",
    ),
    "layers": (given("qwen3", layer_types=["full_attention"]), "name each of the 3 layers"),
    "layers of a kind": (given("qwen3", layer_types=[[], "x", 3]), "name each of the 3 layers"),
    "heads": (given(num_attention_heads=5), "hidden_size is 32, which num_attention_heads, 5"),
    "groups": (given(num_key_value_heads=3), "3 key/value heads do not divide the 4 heads"),
    "zero": (given(hidden_size=0), "hidden_size is 0; it should be a whole number from 1"),
    "negative": (given(num_hidden_layers=-1), "num_hidden_layers is -1; it should be a whole"),
    "far too much": (given(hidden_size=10**12), "hidden_size is 1000000000000; it should be"),
    "together too much": (given(hidden_size=2**30), "3e.* weights"),
    "text": (given(hidden_size="32"), 'hidden_size is "32"; it should be a whole number'),
    "half": (given(hidden_size=32.5), "hidden_size is 32.5; it should be a whole number"),
    "truth": (given(num_hidden_layers=True), "num_hidden_layers is true; it should be a whole"),
    "nothing": (given(rms_norm_eps=None), "rms_norm_eps is null; it should be a number above 0"),
    "a negative number": (given(rope_theta=-1e4), "rope_theta is -10000.0; it should be a number"),
    "no truth": (given(tie_word_embeddings="no"), 'embeddings is "no"; it should be true or false'),
    "no word": (given(hidden_act=["silu"]), "hidden_act is .*; it should be a word"),
    "no object": (given(rope_scaling=[1]), "rope_scaling should be an object"),
    "no model": (given(model_type=["llama"]), r"model_type is \['llama'\]"),
}


@pytest.fixture
def folder(tmp_path):
    def write(settings):
        (tmp_path / "config.json").write_text(json.dumps(settings))
        return tmp_path

    return write


@pytest.mark.parametrize("name", list(READ))
def test_as_transformers_reads_it(name, folder):
    settings, expected = READ[name]
    config = decoder_config(folder(settings))
    assert {field: getattr(config, field) for field in expected} == expected


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused_in_words(name, folder):
    settings, words = REFUSED[name]
    with pytest.raises(ProximaError, match=rf"config\.json: .*{words}"):
        decoder_config(folder(settings))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"rms_norm_eps": NaN}', "NaN is no number"),
        ('{"rope_theta": -Infinity}', "Infinity is no number"),
        ('{"rope_theta": 1e999}', "1e999 is no number"),
        ('{"rope_theta": 1, "a": {"b": 1, "b": 2}}', "'b' stands there twice"),
        ('{"a": "\udcff"}', "utf-8"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "expected a JSON object"),
        ("", "is not JSON"),
    ],
)
def test_text_that_is_no_json(text, words, tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ProximaError, match=rf"config\.json: .*{words}"):
        read_object(file)


def test_a_folder_in_the_place_of_a_file(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ProximaError, match=r"no config.json here"):
        decoder_config(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(READ))
def test_oracle(name, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    fill_folder(READ[name][0], tmp_path)
    decoder = load_model(tmp_path)
    ids, _ = golden_rows()
    ids = ids[:, : decoder.config.context]
    mask = np.ones(ids.shape, bool)
    ours = logits_of(decoder, jax.jit(hidden_states)(decoder, ids, mask))
    np.testing.assert_allclose(ours, oracle_logits(tmp_path, ids, mask), atol=1e-4, rtol=0)
