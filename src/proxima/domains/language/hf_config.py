"""A Hugging Face config.json, read and written: what a family's settings mean for our decoder.

Everything that would change the numbers and that the decoder does not have is refused in words. Both
spellings of the rotary settings are read, transformers 4's (`rope_theta`, `rope_scaling`) and 5's
(`rope_parameters`); 4's is written, which both read.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from proxima.core.errors import ProximaError
from proxima.nets.transformer import DecoderConfig, RopeScaling

Settings = Mapping[str, Any]

ARCHITECTURES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
ACTIVATIONS = {
    "silu": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
}
# Settings that are fields of a `DecoderConfig` under another name.
GPT2_FIELDS = {
    "vocab_size": "vocabulary",
    "n_embd": "width",
    "n_layer": "layers",
    "n_head": "heads",
    "n_inner": "inner",
    "n_positions": "context",
    "layer_norm_epsilon": "norm_eps",
    "activation_function": "activation",
    "tie_word_embeddings": "tied",
}
LLAMA_FIELDS = {
    "vocab_size": "vocabulary",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_width",
    "intermediate_size": "inner",
    "max_position_embeddings": "context",
    "rms_norm_eps": "norm_eps",
    "rope_theta": "rope_theta",
    "hidden_act": "activation",
    "tie_word_embeddings": "tied",
}


def read_object(file: Path) -> dict[str, Any]:
    """What a JSON file of a model's folder says."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ProximaError(f"{file}: is not JSON ({error}); copy it again") from error
    if not isinstance(content, dict):
        raise ProximaError(f"{file}: expected a JSON object; copy it again")
    return content


def read_settings(folder: Path) -> dict[str, Any]:
    """A folder's config.json; one that is no such folder is an error."""
    try:
        return read_object(folder / "config.json")
    except FileNotFoundError:
        raise ProximaError(
            f"{folder}: no config.json here; a model's folder has config.json, *.safetensors and "
            "tokenizer.json"
        ) from None


def family_of(settings: Settings, file: Path) -> str:
    """The model's family; one without a decoder here is an error."""
    family = settings.get("model_type")
    if family not in ARCHITECTURES:
        raise ProximaError(
            f"{file}: model_type is {family!r}, for which there is no decoder; there are gpt2, llama (SmolLM "
            "too), mistral, qwen2 and qwen3"
        )
    if "quantization_config" in settings:
        raise ProximaError(f"{file}: its weights are quantised; take the float32 or bfloat16 model")
    return str(family)


def decoder_config(folder: Path) -> DecoderConfig:
    """The shape of the model that a folder's config.json describes."""
    settings, file = read_settings(folder), folder / "config.json"
    try:
        return _config_of(settings, family_of(settings, file), file)
    except KeyError as error:
        raise ProximaError(f"{file}: {error.args[0]} is missing") from None


def written_settings(config: DecoderConfig, family: str) -> dict[str, Any]:
    """A config.json for a decoder of the family; one that the family cannot be is an error."""
    names = GPT2_FIELDS if family == "gpt2" else LLAMA_FIELDS
    settings = {theirs: getattr(config, ours) for theirs, ours in names.items()}
    for name in {"activation_function", "hidden_act"} & settings.keys():
        theirs = [theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation]
        settings[name] = theirs[0]
    if family in ("llama", "qwen3"):
        settings["attention_bias"] = config.attention_bias
    if family == "llama":
        settings["mlp_bias"] = config.mlp_bias
    if family == "mistral":
        settings["sliding_window"] = None
    if config.rope_scaling is not None:
        settings["rope_scaling"] = {"rope_type": "llama3"} | asdict(config.rope_scaling)
    if _config_of(settings, family, Path("config.json")) != config:
        raise ProximaError(f"{family} has no place for all parts of this decoder: {config}")
    return {"architectures": [ARCHITECTURES[family]], "model_type": family} | settings


def _config_of(settings: Settings, family: str, file: Path) -> DecoderConfig:
    given = {name: value for name, value in settings.items() if value is not None}
    if family == "gpt2":
        return DecoderConfig(**_gpt2_fields(given, file))
    return DecoderConfig(**_llama_fields(given, family, file))


def _gpt2_fields(settings: Settings, file: Path) -> dict[str, Any]:
    by_layer = settings.get("scale_attn_by_inverse_layer_idx", False)
    if by_layer or not settings.get("scale_attn_weights", True):
        raise ProximaError(f"{file}: only attention scaled by 1/√width is known")
    width, heads = settings["n_embd"], settings["n_head"]
    usual = {"n_inner": 4 * width, "activation_function": "gelu_new", "tie_word_embeddings": True}
    return _fields({**usual, **settings}, GPT2_FIELDS, file) | {
        "kv_heads": heads,
        "head_width": width // heads,
        "norm": "layer",
        "positions": "learned",
        "gated": False,
        "attention_bias": True,
        "output_bias": True,
        "mlp_bias": True,
    }


def _llama_fields(settings: Settings, family: str, file: Path) -> dict[str, Any]:
    rope = settings.get("rope_parameters", {})  # transformers 5 keeps theta and scaling together
    if settings.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ProximaError(f"{file}: heads that are rotated in part only are not known")
    width, heads = settings["hidden_size"], settings["num_attention_heads"]
    usual = {
        "num_key_value_heads": heads,
        "head_dim": width // heads,
        "rope_theta": rope.get("rope_theta", 10_000.0),
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    known = _fields({**usual, **settings}, LLAMA_FIELDS, file)
    biased = settings.get("attention_bias", False)
    # As much as the window holds where attention slides: so far it is the same as attention to all.
    slides = family == "mistral" or settings.get("use_sliding_window", False)
    window = settings.get("sliding_window") if slides else None
    return known | {
        "context": min(known["context"], window or known["context"]),
        "rope_theta": float(known["rope_theta"]),
        "rope_scaling": _scaling(settings.get("rope_scaling", rope), file),
        "attention_bias": family == "qwen2" or biased,
        "output_bias": family != "qwen2" and biased,
        "mlp_bias": settings.get("mlp_bias", False),
        "qk_norm": family == "qwen3",
    }


def _fields(settings: Settings, names: Mapping[str, str], file: Path) -> dict[str, Any]:
    """Settings under our fields' names; one that is not given is a KeyError."""
    known = {ours: settings[theirs] for theirs, ours in names.items()}
    activation = known["activation"]
    if activation not in ACTIVATIONS:
        raise ProximaError(f"{file}: activation {activation!r}; known are {', '.join(ACTIVATIONS)}")
    return known | {"activation": ACTIVATIONS[activation]}


def _scaling(settings: Settings, file: Path) -> RopeScaling | None:
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ProximaError(f"{file}: rope scaling {kind!r} is not known; there is llama3")
    return RopeScaling(**{field.name: settings[field.name] for field in fields(RopeScaling)})
