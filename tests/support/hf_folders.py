"""Tiny Hugging Face folders, their weights a formula of names, and what transformers makes of them.

`python tests/support/hf_folders.py` writes golden_language.json anew; it needs the extra `oracle`.
"""

import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import load_file, save_file

from proxima.domains.language.hf import decoder_config, save_model
from proxima.nets.transformer import new_decoder

GOLDEN = Path(__file__).parent / "golden_language.json"
SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
}
SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# As the families write them themselves, now in transformers 4's spelling and now in 5's.
SETTINGS = {
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 300,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 64,
        "n_inner": None,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
    },
    "llama": SIZES | {"model_type": "llama", "rope_theta": 100.0, "tie_word_embeddings": False},
    "llama3": SIZES
    | {
        "model_type": "llama",
        "rope_parameters": SCALING | {"rope_theta": 500.0},
        "tie_word_embeddings": True,
    },
    "llama3_theta_within": SIZES
    | {"model_type": "llama", "rope_scaling": SCALING | {"rope_theta": 500.0}},
    "llama_biases": SIZES
    | {
        "model_type": "llama",
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "mistral": SIZES
    | {"model_type": "mistral", "head_dim": None, "sliding_window": None, "rope_theta": 1e4},
    "qwen2": SIZES | {"model_type": "qwen2", "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen3": SIZES
    | {
        "model_type": "qwen3",
        "head_dim": 12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "tie_word_embeddings": True,
    },
}
# Adapters of PEFT's: the model below them, their settings, and the modules that these mean with their ranks.
ADAPTERS = {
    "plain": (
        "llama",
        {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"]},
        {
            f"model.layers.{i}.{m}": 4
            for i in range(3)
            for m in ("self_attn.q_proj", "mlp.down_proj")
        },
    ),
    "patterns": (
        "llama",
        {"r": 4, "lora_alpha": 6, "use_rslora": True, "init_lora_weights": "gaussian"}
        | {"target_modules": r".*\.(self_attn|mlp)\.(q_proj|up_proj)"}
        | {"exclude_modules": ["layers.0.mlp.up_proj"], "alpha_pattern": {"up_proj": 3}}
        | {"rank_pattern": {r"layers\.1\.self_attn\.q_proj": 2, "q_proj": 3}},
        {f"model.layers.{i}.self_attn.q_proj": 2 if i == 1 else 3 for i in range(3)}
        | {f"model.layers.{i}.mlp.up_proj": 4 for i in (1, 2)},
    ),
    "three in one": (
        "gpt2",
        {"r": 4, "lora_alpha": 6, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}
        | {"layers_to_transform": [0, 2]},
        {
            f"transformer.h.{i}.{m}": 4
            for i in (0, 2)
            for m in ("attn.c_attn", "attn.c_proj", "mlp.c_proj")
        },
    ),
}
LENGTHS, WIDTH = (40, 25), 40
PLACES, TOKENS = [20, 30, 39], slice(None, None, 10)  # of which logits are kept


def make_folder(name: str, folder: Path) -> Path:
    """A folder of that model; the same weights with any version of anything."""
    return fill_folder(SETTINGS[name], folder)


def fill_folder(settings: dict[str, Any], folder: Path) -> Path:
    """A folder of a model with these settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    decoder = new_decoder(jax.random.key(0), decoder_config(folder))
    save_model(decoder, folder, like=folder)
    (folder / "config.json").write_text(json.dumps(settings))
    file = folder / "model.safetensors"
    shapes = {name: tensor.shape for name, tensor in load_file(file).items()}
    weights = {name: formula(name, shape) for name, shape in shapes.items()}
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def make_adapter(name: str, folder: Path, base: Path) -> Path:
    """A folder of that adapter; `base` is the folder of the model below it."""
    _, settings, ranks = ADAPTERS[name]
    folder.mkdir(parents=True, exist_ok=True)
    told = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base)}
    (folder / "adapter_config.json").write_text(json.dumps(told | settings))
    weights, tensors = load_file(base / "model.safetensors"), {}
    for path, rank in ranks.items():
        shape = weights[f"{path}.weight"].shape
        outputs, inputs = shape[::-1] if settings.get("fan_in_fan_out") else shape
        for which, sizes in (("A", (rank, inputs)), ("B", (outputs, rank))):
            tensor = f"base_model.model.{path}.lora_{which}.weight"
            tensors[tensor] = formula(tensor, sizes)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def formula(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers seeded by the name, by NumPy's generator that never changes."""
    numbers = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    centre = 1.0 if "norm" in name or "ln_" in name else 0.0
    return (centre * name.endswith("weight") + 0.2 * numbers).astype(np.float32)


def golden_rows() -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, the second row padded on the left."""
    ids = np.random.RandomState(0).randint(0, 300, (len(LENGTHS), WIDTH))
    return ids, np.arange(WIDTH)[None] >= WIDTH - np.array(LENGTHS)[:, None]


def oracle_logits(
    folder: Path, ids: np.ndarray, mask: np.ndarray, adapter: Path | None = None
) -> np.ndarray:
    """What transformers says, with PEFT if there is an adapter, float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model, told = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not told["missing_keys"] and not told["unexpected_keys"], told
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter)
    places = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    with torch.no_grad():
        said = model(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(mask.astype(np.int64)),
            position_ids=torch.tensor(places),
        )
    return said.logits.numpy()


def kept(logits: np.ndarray) -> np.ndarray:
    """Those of the logits that the golden file has."""
    return logits[:, PLACES, TOKENS]


def main() -> None:
    ids, mask = golden_rows()
    golden = {}
    with tempfile.TemporaryDirectory() as place:
        for name in SETTINGS:
            logits = oracle_logits(make_folder(name, Path(place) / name), ids, mask)
            golden[name] = kept(logits).astype(float).round(5).tolist()
        for name, (base, *_) in ADAPTERS.items():
            adapter = make_adapter(name, Path(place) / "adapters" / name, Path(place) / base)
            logits = oracle_logits(Path(place) / base, ids, mask, adapter)
            golden[name] = kept(logits).astype(float).round(5).tolist()
    GOLDEN.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    sys.exit(main())
