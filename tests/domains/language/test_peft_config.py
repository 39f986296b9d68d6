"""adapter_config.json as PEFT reads it; what is not plain LoRA, or makes no sense, is refused in words."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from hf_folders import golden_rows, make_folder, oracle_logits

from proxima.core.errors import ProximaError
from proxima.domains.language import peft_config
from proxima.domains.language.hf import load_model
from proxima.domains.language.part_files import load_adapters
from proxima.domains.language.peft_config import Scale, read_adapter_settings, scales_of
from proxima.nets.transformer import hidden_states, logits_of, merge

PATHS = {f"model.layers.{layer}.self_attn.{name}_proj": layer for layer in (0, 11) for name in "qv"}
USUAL = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}


def scales(tmp_path, **settings):
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(USUAL | settings))
    return scales_of(read_adapter_settings(tmp_path), PATHS, file)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_modules": r".*\.(q_proj|v_proj)"},
        {"target_modules": r"^(?:.*?(?:self_attn|mlp).*?(?:k_proj|v_proj|q_proj).*?)$"},
        {"target_modules": "all-linear", "exclude_modules": ["o_proj"]},
        {"layers_to_transform": [0, 11], "layers_pattern": "layers"},
        {"modules_to_save": [], "bias": "none", "init_lora_weights": "mica"},
        {"qalora_group_size": 16, "eva_config": {"rho": 2.0}, "init_lora_weights": "eva"},
        {"of_a_later_version": None, "also_later": False},
        {"rank_pattern": {"o_proj": 3}, "alpha_pattern": {}},
    ],
    ids=str,
)
def test_plain_adapters(settings, tmp_path):
    assert scales(tmp_path, **settings) == dict.fromkeys(PATHS, Scale(4, 2.0))


def test_patterns_are_ends_of_paths_and_the_first_counts(tmp_path):
    found = scales(
        tmp_path,
        rank_pattern={r"layers\.1.*q_proj": 16, "q_proj": 2},
        alpha_pattern={"self_attn.v_proj": 12},
        use_rslora=True,
    )
    assert found == {
        "model.layers.0.self_attn.q_proj": Scale(2, 8 / 2**0.5),
        "model.layers.0.self_attn.v_proj": Scale(4, 6.0),
        "model.layers.11.self_attn.q_proj": Scale(16, 2.0),
        "model.layers.11.self_attn.v_proj": Scale(4, 6.0),
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        *(
            ({"init_lora_weights": start}, "a base that they had changed first")
            for start in ("pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "later")
        ),
        (
            {"alora_invocation_tokens": [5, 7]},
            r"alora_invocation_tokens: \[5, 7\] is not supported$",
        ),
        ({"alora_invocation_tokens": []}, "alora_invocation_tokens"),
        ({"bias": "all"}, 'bias: "all"'),
        ({"use_dora": True}, "use_dora: true is not supported; in PEFT, merge it"),
        ({"use_qalora": True}, "use_qalora"),
        ({"lora_bias": True}, "lora_bias"),
        ({"layer_replication": [[0, 4], [2, 5]]}, "layer_replication"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"target_parameters": ["mlp.experts.gate_up_proj"]}, "target_parameters"),
        ({"arrow_config": {"top_k": 3}}, "arrow_config"),
        ({"use_bdlora": {}}, "use_bdlora"),
        ({"of_a_later_version": "on"}, 'of_a_later_version: "on" is not known here'),
        ({"peft_type": "IA3"}, "peft_type 'IA3'; only LORA"),
        ({"r": 0}, "r is 0; it should be a whole number from 1"),
        ({"r": 2.0}, "r is 2.0; it should be a whole number"),
        ({"lora_alpha": 0}, "lora_alpha is 0; it should be a number above 0"),
        ({"lora_alpha": "8"}, 'lora_alpha is "8"'),
        ({"use_rslora": "yes"}, "use_rslora"),
        ({"rank_pattern": {"q_proj": -1}}, 'rank_pattern."q_proj" is -1'),
        ({"rank_pattern": ["q_proj"]}, "rank_pattern should be an object"),
        ({"alpha_pattern": {"q_proj": None}}, 'alpha_pattern."q_proj" is null'),
        (
            {"alpha_pattern": {"(q_proj": 1}},
            r"alpha_pattern: the pattern .* cannot be matched \(.*subpattern",
        ),
        ({"target_modules": ["q_proj"]}, "leaves out model.layers.0.self_attn.v_proj"),
        ({"target_modules": ["proj"]}, "leaves out"),
        ({"target_modules": None}, "leaves out"),
        ({"target_modules": [3]}, "target_modules should be a list of names"),
        ({"target_modules": r".*\.q_proj"}, "leaves out model.layers.0.self_attn.v_proj"),
        ({"exclude_modules": r".*11.*"}, "leaves out model.layers.11.self_attn.q_proj"),
        ({"layers_to_transform": 0}, "leaves out model.layers.11"),
        ({"layers_to_transform": ["0"]}, "layers_to_transform should be whole numbers"),
        ({"layers_pattern": "blocks"}, "layers_pattern"),
    ],
    ids=str,
)
def test_refused_in_words(settings, words, tmp_path):
    with pytest.raises(ProximaError, match=rf"adapter_config\.json: .*{words}"):
        scales(tmp_path, **settings)


def test_a_pattern_that_backtracks_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(peft_config, "PATIENCE", 1)
    with pytest.raises(ProximaError, match=r"rank_pattern: the pattern .* longer than 1 s"):
        scales(tmp_path, rank_pattern={"q_proj": 2, r"(([\w.]+)*)*x": 2})


def test_every_setting_of_peft_is_known():
    peft = pytest.importorskip("peft")
    theirs = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert theirs <= peft_config.PLAIN.keys() | peft_config.READ | peft_config.WITHOUT_EFFECT


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", ["pissa", "olora"])
def test_a_start_that_changes_the_base(start, tmp_path):
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    folder = make_folder("llama", tmp_path / "base")
    config = peft.LoraConfig(
        init_lora_weights=start, target_modules=["q_proj"], task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder), config)
    model.peft_config["default"].init_lora_weights = True
    model.save_pretrained(tmp_path / "start")
    model.peft_config["default"].init_lora_weights = start
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_" in name:
                weights += 0.1 * torch.sin(torch.arange(weights.numel())).reshape(weights.shape)
    model.save_pretrained(tmp_path / "as it is")
    base = load_model(folder)
    with pytest.raises(ProximaError, match="a base that they had changed first"):
        load_adapters(tmp_path / "as it is", base)
    ids, mask = golden_rows()
    theirs = oracle_logits(folder, ids, mask, tmp_path / "as it is")
    model.save_pretrained(
        tmp_path / "converted", path_initial_model_for_weight_conversion=str(tmp_path / "start")
    )
    decoder = merge(base, load_adapters(tmp_path / "converted", base))
    ours = logits_of(decoder, jax.jit(hidden_states)(decoder, ids, mask))
    np.testing.assert_allclose(ours[mask], theirs[mask], atol=1e-3, rtol=0)
