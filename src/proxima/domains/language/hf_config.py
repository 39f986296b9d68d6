"""A Hugging Face config.json, read and written: what a family's settings mean for our decoder.

Everything that would change the numbers and that the decoder does not have is refused in words. Both
spellings of the rotary settings are read, transformers 4's (`rope_theta`, `rope_scaling`) and 5's
(`rope_parameters`); 4's is written, which both read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

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
Activation = Literal["silu", "gelu_tanh", "gelu"]
ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
}


def read_settings(folder: Path) -> dict[str, Any]:
    """A folder's config.json; one that is no such folder is an error."""
    file = folder / "config.json"
    try:
        said = json.loads(file.read_text())
    except FileNotFoundError:
        raise ProximaError(
            f"{folder}: no config.json here; a model's folder has config.json, *.safetensors and "
            "tokenizer.json"
        ) from None
    except ValueError as error:
        raise ProximaError(f"{file}: not JSON: {error}") from None
    if not isinstance(said, dict):
        raise ProximaError(f"{file}: not a mapping of settings")
    return said


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
    family = family_of(settings, file)
    try:
        return _gpt2(settings, file) if family == "gpt2" else _llama(settings, family, file)
    except KeyError as error:
        raise ProximaError(f"{file}: {error.args[0]} is missing") from None


def written_settings(config: DecoderConfig, family: str) -> dict[str, Any]:
    """A config.json for a decoder of the family; one that the family cannot be is an error."""
    settings = _gpt2_settings(config) if family == "gpt2" else _llama_settings(config, family)
    back = (
        _gpt2(settings, Path("config.json"))
        if family == "gpt2"
        else _llama(settings, family, Path("config.json"))
    )
    if back != config:
        raise ProximaError(f"{family} has no place for all parts of this decoder: {config}")
    head = {"architectures": [ARCHITECTURES[family]], "model_type": family}
    return head | settings


def _gpt2(said: Settings, file: Path) -> DecoderConfig:
    if not said.get("scale_attn_weights", True) or said.get("scale_attn_by_inverse_layer_idx"):
        raise ProximaError(f"{file}: only attention scaled by 1/√width is known")
    width, heads = said["n_embd"], said["n_head"]
    return DecoderConfig(
        vocabulary=said["vocab_size"],
        width=width,
        layers=said["n_layer"],
        heads=heads,
        kv_heads=heads,
        head_width=width // heads,
        inner=said.get("n_inner") or 4 * width,
        context=said["n_positions"],
        norm="layer",
        norm_eps=said["layer_norm_epsilon"],
        positions="learned",
        activation=_activation(said.get("activation_function", "gelu_new"), file),
        gated=False,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=said.get("tie_word_embeddings", True),
    )


def _gpt2_settings(config: DecoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocabulary,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.inner,
        "n_positions": config.context,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": _their_activation(config.activation),
        "tie_word_embeddings": config.tied,
    }


def _llama(said: Settings, family: str, file: Path) -> DecoderConfig:
    width, heads = said["hidden_size"], said["num_attention_heads"]
    rope = said.get("rope_parameters") or {}  # transformers 5 keeps theta and scaling together
    if (said.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ProximaError(f"{file}: heads that are rotated in part only are not known")
    biased = bool(said.get("attention_bias", False))
    return DecoderConfig(
        vocabulary=said["vocab_size"],
        width=width,
        layers=said["num_hidden_layers"],
        heads=heads,
        kv_heads=said.get("num_key_value_heads") or heads,
        head_width=said.get("head_dim") or width // heads,
        inner=said["intermediate_size"],
        context=_context(said, family),
        norm_eps=said["rms_norm_eps"],
        rope_theta=float(said.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
        rope_scaling=_scaling(said.get("rope_scaling") or rope, file),
        activation=_activation(said.get("hidden_act", "silu"), file),
        attention_bias=family == "qwen2" or biased,
        output_bias=family != "qwen2" and biased,
        mlp_bias=bool(said.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
        tied=bool(said.get("tie_word_embeddings", False)),
    )


def _context(said: Settings, family: str) -> int:
    """Where attention slides, as much as the window holds: so far it is the same as attention to all."""
    slides = family == "mistral" or said.get("use_sliding_window", False)
    window = said.get("sliding_window") if slides else None
    return min(said["max_position_embeddings"], window or said["max_position_embeddings"])


def _scaling(said: Settings, file: Path) -> RopeScaling | None:
    kind = said.get("rope_type", said.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ProximaError(f"{file}: rope scaling {kind!r} is not known; there is llama3")
    return RopeScaling(
        factor=said["factor"],
        low_frequency=said["low_freq_factor"],
        high_frequency=said["high_freq_factor"],
        trained_positions=said["original_max_position_embeddings"],
    )


def _llama_settings(config: DecoderConfig, family: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "intermediate_size": config.inner,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "hidden_act": _their_activation(config.activation),
        "tie_word_embeddings": config.tied,
    }
    if family in ("llama", "qwen3"):
        settings["attention_bias"] = config.attention_bias
    if family == "llama":
        settings["mlp_bias"] = config.mlp_bias
    if family == "mistral":
        settings["sliding_window"] = None
    scaling = config.rope_scaling
    if scaling is not None:
        settings["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_frequency,
            "high_freq_factor": scaling.high_frequency,
            "original_max_position_embeddings": scaling.trained_positions,
        }
    return settings


def _activation(name: str, file: Path) -> Activation:
    if name not in ACTIVATIONS:
        raise ProximaError(f"{file}: activation {name!r}; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _their_activation(ours: str) -> str:
    return next(name for name, each in ACTIVATIONS.items() if each == ours)
