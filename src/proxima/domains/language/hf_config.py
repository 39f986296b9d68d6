"""A Hugging Face config.json, read and written: what a family's settings mean for our decoder.

Everything that would change the numbers and that the decoder does not have is refused in words. What is not
given is as transformers has it for that family. Both spellings of the rotary settings are read, transformers
4's (`rope_theta`, `rope_scaling`) and 5's (`rope_parameters`); 4's is written, which both read. Settings that
mean the same and differ are refused, because versions of transformers disagree on which counts.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
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
# What a setting is where config.json does not have it: as in transformers 5's class of the family. The
# kind of a value here is the kind that a value there must have.
LLAMA_DEFAULTS = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "intermediate_size": 11_008,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
QWEN_DEFAULTS = LLAMA_DEFAULTS | {
    "vocab_size": 151_936,
    "num_key_value_heads": 32,
    "intermediate_size": 22_016,
    "max_position_embeddings": 32_768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "vocab_size": 50_257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "tie_word_embeddings": True,
    },
    "llama": LLAMA_DEFAULTS | {"attention_bias": False, "mlp_bias": False},
    "mistral": LLAMA_DEFAULTS
    | {
        "num_key_value_heads": 8,
        "intermediate_size": 14_336,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
    "qwen2": QWEN_DEFAULTS,
    "qwen3": QWEN_DEFAULTS | {"head_dim": 128, "attention_bias": False},
}
# Settings that may be null: what they are then follows from others.
NULLABLE = ("num_key_value_heads", "head_dim", "n_inner", "sliding_window")
GPT2_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
ROPE_OBJECTS = ("rope_scaling", "rope_parameters")
SPAN = "original_max_position_embeddings"
FULL, SLIDING = "full_attention", "sliding_attention"
LARGEST_SIZE, LARGEST_NUMBER = 2**31 - 1, 1e30  # what int32 and float32 hold
MOST_NUMBERS = 2**44  # ten times the largest models there are


def read_object(file: Path) -> dict[str, Any]:
    """What a JSON file of a model's folder says."""
    try:
        return parsed_object(file.read_text(encoding="utf-8"), file)
    except OSError as error:
        raise ProximaError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ProximaError(f"{file}: is not JSON ({error}); copy it again") from error


def parsed_object(text: str, file: Path) -> dict[str, Any]:
    """What a JSON text of that file says; a key that stands twice, or a number that is none, is an error."""
    try:
        content = json.loads(
            text, object_pairs_hook=_each_once, parse_constant=_finite, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise ProximaError(f"{file}: is not JSON ({error}); copy it again") from error
    if not isinstance(content, dict):
        raise ProximaError(f"{file}: expected a JSON object; copy it again")
    return content


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's keys and values; readers disagree on which of two equal keys counts."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands there twice")
    return content


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is no number")
    return float(text)


def read_settings(folder: Path) -> dict[str, Any]:
    """A folder's config.json; one that is no such folder is an error."""
    file = folder / "config.json"
    if not file.is_file():
        raise ProximaError(
            f"{folder}: no config.json here; a model's folder has config.json, *.safetensors and "
            "tokenizer.json"
        )
    return read_object(file)


def family_of(settings: Settings, file: Path) -> str:
    """The model's family; one without a decoder here is an error."""
    family = settings.get("model_type")
    if not isinstance(family, str) or family not in ARCHITECTURES:
        raise ProximaError(
            f"{file}: model_type is {family!r}, for which there is no decoder; there are gpt2, llama (SmolLM "
            "too), mistral, qwen2 and qwen3"
        )
    if settings.get("quantization_config") is not None:
        raise ProximaError(f"{file}: its weights are quantised; take the float32 or bfloat16 model")
    return family


def decoder_config(folder: Path) -> DecoderConfig:
    """The shape of the model that a folder's config.json describes."""
    settings, file = read_settings(folder), folder / "config.json"
    return _config_of(settings, family_of(settings, file), file)


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
    if family == "gpt2":
        config = DecoderConfig(**_gpt2_fields(settings, file))
    else:
        config = DecoderConfig(**_llama_fields(settings, family, file))
    check_sizes(config, file)
    return config


def check_sizes(config: DecoderConfig, file: Path) -> None:
    """Refuse heads that cannot be made, and more weights than anything could hold."""
    if config.heads % config.kv_heads:
        raise ProximaError(
            f"{file}: {config.kv_heads} key/value heads do not divide the {config.heads} heads"
        )
    if config.positions == "rotary" and config.head_width % 2:
        raise ProximaError(f"{file}: heads are {config.head_width} wide; only pairs can be rotated")
    widest = max(config.inner, config.heads * config.head_width)
    numbers = config.width * max(config.layers * widest, config.vocabulary, config.context)
    if numbers > MOST_NUMBERS:
        raise ProximaError(f"{file}: its sizes make {numbers:.0e} weights; are they right?")


def _gpt2_fields(settings: Settings, file: Path) -> dict[str, Any]:
    for name, usual_name in GPT2_ALIASES.items():
        if name in settings:
            given = {usual_name: settings[name], **settings}
            _agree({key: given[key] for key in (usual_name, name)}, file)
            settings = given
    values = _values(settings, "gpt2", file)
    if values["scale_attn_by_inverse_layer_idx"] or not values["scale_attn_weights"]:
        raise ProximaError(f"{file}: only attention scaled by 1/√width is known")
    width, heads = values["n_embd"], values["n_head"]
    values["n_inner"] = values["n_inner"] or 4 * width
    return _renamed(values, GPT2_FIELDS, file) | {
        "kv_heads": heads,
        "head_width": _divided(width, heads, "n_embd", "n_head", file),
        "norm": "layer",
        "positions": "learned",
        "gated": False,
        "attention_bias": True,
        "output_bias": True,
        "mlp_bias": True,
    }


def _llama_fields(settings: Settings, family: str, file: Path) -> dict[str, Any]:
    values = _values(settings, family, file)
    width, heads = values["hidden_size"], values["num_attention_heads"]
    names = "hidden_size", "num_attention_heads"
    values["num_key_value_heads"] = values["num_key_value_heads"] or heads
    values["head_dim"] = values["head_dim"] or _divided(width, heads, *names, file)
    theta, scaling = _rope(settings, values["max_position_embeddings"], file)
    known = _renamed(values | {"rope_theta": theta}, LLAMA_FIELDS, file)
    biased = values.get("attention_bias", False)
    # As much as the window holds where attention slides: so far it is the same as attention to all.
    window = _window(values, settings, family, file)
    return known | {
        "context": min(known["context"], window or known["context"]),
        "rope_scaling": scaling,
        "attention_bias": family == "qwen2" or biased,
        "output_bias": biased,
        "mlp_bias": values.get("mlp_bias", False),
        "qk_norm": family == "qwen3",
    }


def _values(settings: Settings, family: str, file: Path) -> dict[str, Any]:
    """The family's settings: as given, else as transformers' class for it has them."""
    return {
        name: _checked(name, settings.get(name, usual), usual, file)
        for name, usual in DEFAULTS[family].items()
    }


def _checked(name: str, value: Any, usual: Any, file: Path) -> Any:
    """The value, if it is of the usual one's kind."""
    if value is None and name in NULLABLE:
        return None
    if isinstance(usual, float):
        return checked_number(name, value, file)
    if not isinstance(usual, bool | str):
        return checked_size(name, value, file, least=0 if name == "max_window_layers" else 1)
    if type(value) is not type(usual):
        wanted = "true or false" if isinstance(usual, bool) else "a word"
        raise ProximaError(f"{file}: {name} is {shown(value)}; it should be {wanted}")
    return value


def checked_size(name: str, value: Any, file: Path, least: int = 1) -> int:
    """A setting that counts something."""
    if type(value) is not int or not least <= value <= LARGEST_SIZE:
        raise ProximaError(
            f"{file}: {name} is {shown(value)}; it should be a whole number from {least} to {LARGEST_SIZE:,}"
        )
    return value


def checked_number(name: str, value: Any, file: Path) -> float:
    """A setting that measures something."""
    if type(value) not in (int, float) or not 0 < value < LARGEST_NUMBER:
        raise ProximaError(f"{file}: {name} is {shown(value)}; it should be a number above 0")
    return float(value)


def shown(value: Any) -> str:
    """A value as JSON has it, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _divided(width: int, heads: int, name: str, by: str, file: Path) -> int:
    if width % heads:
        raise ProximaError(f"{file}: {name} is {width}, which {by}, {heads}, does not divide")
    return width // heads


def _renamed(values: Settings, names: Mapping[str, str], file: Path) -> dict[str, Any]:
    """Settings under our fields' names."""
    known = {ours: values[theirs] for theirs, ours in names.items()}
    activation = known["activation"]
    if activation not in ACTIVATIONS:
        raise ProximaError(f"{file}: activation {activation!r}; known are {', '.join(ACTIVATIONS)}")
    return known | {"activation": ACTIVATIONS[activation]}


def _window(values: Settings, settings: Settings, family: str, file: Path) -> int | None:
    """How far the layers see that do not see everything; None where all do."""
    if family == "mistral":
        return values["sliding_window"]
    if family == "llama":
        return None
    layers, kinds = values["num_hidden_layers"], settings.get("layer_types")
    window = values["sliding_window"] if values["use_sliding_window"] else None
    if kinds is None:
        return window if layers > values["max_window_layers"] else None
    known = isinstance(kinds, list) and all(kind in (FULL, SLIDING) for kind in kinds)
    if not known or len(kinds) != layers:
        raise ProximaError(
            f"{file}: layer_types should name each of the {layers} layers {FULL} or {SLIDING}"
        )
    if SLIDING in kinds and window is None:
        raise ProximaError(
            f"{file}: layer_types has {SLIDING}, but use_sliding_window and sliding_window give no window"
        )
    return window if SLIDING in kinds else None


def _rope(settings: Settings, context: int, file: Path) -> tuple[float, RopeScaling | None]:
    """The base of the rotations and their scaling, at whichever places they stand."""
    objects = {name: _rope_object(settings, name, file) for name in ROPE_OBJECTS}
    given = {name: content for name, content in objects.items() if content}
    _agree(given, file)
    place, rope = next(iter(given.items()), (ROPE_OBJECTS[0], {}))
    theta = _at_either_place("rope_theta", settings, place, rope, file)
    theta = 10_000.0 if theta is None else checked_number("rope_theta", theta, file)
    if _at_either_place("partial_rotary_factor", settings, place, rope, file) not in (None, 1):
        raise ProximaError(f"{file}: heads that are rotated in part only are not known")
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ProximaError(f"{file}: rope scaling {shown(kind)} is not known; there is llama3")
    span = _at_either_place(SPAN, settings, place, rope, file)
    factors = {
        name: checked_number(f"{place}.{name}", rope.get(name), file)
        for name in ("factor", "low_freq_factor", "high_freq_factor")
    }
    if factors["low_freq_factor"] >= factors["high_freq_factor"]:
        raise ProximaError(f"{file}: {place}.low_freq_factor should be below high_freq_factor")
    original = checked_size(f"{place}.{SPAN}", context if span is None else span, file)
    return theta, RopeScaling(**factors, original_max_position_embeddings=original)


def _rope_object(settings: Settings, name: str, file: Path) -> dict[str, Any]:
    """One of the two objects, its kind under the newer of two names."""
    content = settings.get(name) or {}
    if not isinstance(content, dict) or any(isinstance(value, dict) for value in content.values()):
        raise ProximaError(f"{file}: {name} should be an object with one value for each name")
    kinds = {f"{name}.{key}": content[key] for key in ("rope_type", "type") if key in content}
    _agree(kinds, file)
    kind = next(iter(kinds.values()), "default")
    rest = {key: value for key, value in content.items() if key != "type"}
    return rest | {"rope_type": kind} if content else {}


def _at_either_place(name: str, settings: Settings, place: str, rope: Settings, file: Path) -> Any:
    """A setting that stands by itself or in the object of the rotations; None: nowhere."""
    holders = {name: settings, f"{place}.{name}": rope}
    given = {path: holder[name] for path, holder in holders.items() if name in holder}
    _agree(given, file)
    return next(iter(given.values()), None)


def _agree(named: Mapping[str, Any], file: Path) -> None:
    """Refuse settings that mean the same and differ: one reader takes this, another that."""
    values = list(named.values())
    if any(value != values[0] for value in values):
        told = " and ".join(f"{name} is {shown(value)}" for name, value in named.items())
        raise ProximaError(f"{file}: {told}, but both mean the same; keep the right one")
