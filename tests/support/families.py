"""Tiny decoders of each family, and rows of ids to feed them."""

import jax
import jax.numpy as jnp
import numpy as np

from proxima.domains.language.samples import Rows
from proxima.nets.transformer import Decoder, DecoderConfig, RopeScaling, new_decoder

SIZES = dict(vocabulary=300, width=32, layers=2, heads=4, head_width=8, inner=48, context=64)
SHAPES = {
    "gpt2": DecoderConfig(
        **SIZES,
        kv_heads=4,
        norm="layer",
        positions="learned",
        activation="gelu_tanh",
        gated=False,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
    ),
    "llama": DecoderConfig(**SIZES, kv_heads=2, tied=False),
    "llama3": DecoderConfig(
        **SIZES,
        kv_heads=2,
        rope_theta=500.0,
        rope_scaling=RopeScaling(
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
    ),
    "qwen2": DecoderConfig(**SIZES, kv_heads=2, attention_bias=True),
    "qwen3": DecoderConfig(**(SIZES | {"head_width": 12}), kv_heads=2, qk_norm=True),
}


def decoder_of(family: str, dtype: str = "float32") -> Decoder:
    """A random decoder in which no bias, shift or scale is what it would be if it were forgotten."""
    decoder = new_decoder(jax.random.key(1), SHAPES[family], dtype)
    leaves, tree = jax.tree.flatten(decoder)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    leaves = [
        leaf + (0.1 * jax.random.normal(key, leaf.shape)).astype(dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, leaves)


def rows_of(lengths: list[int], width: int, seed: int = 0) -> Rows:
    """Random ids padded on the left with ids that would show if anybody looked at them."""
    ids = np.random.default_rng(seed).integers(0, SIZES["vocabulary"], (len(lengths), width))
    mask = np.arange(width)[None] >= width - np.array(lengths)[:, None]
    return Rows(jnp.asarray(ids, jnp.int32), jnp.asarray(mask))
