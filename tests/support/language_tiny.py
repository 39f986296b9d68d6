"""A tiny tokenizer and decoder that fit each other, prompts for them, and a policy that is not its base."""

import jax
import numpy as np

from proxima.domains.language.model import Part, fresh_part
from proxima.domains.language.tokenizer import Tokenizer, train_tokenizer
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder, DecoderConfig, new_decoder

TEXTS = ["a good film", "a bad film with good actors", "not good, not bad", "the actors were bad"]
LORA = LoraConfig(rank=2, alpha=4.0)


def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS * 3, 280)


def decoder(vocabulary: int, dtype: str = "float32") -> Decoder:
    """Random and rather sure of itself, so that temperatures and masks show."""
    config = DecoderConfig(
        vocabulary=vocabulary,
        width=24,
        layers=2,
        heads=4,
        kv_heads=2,
        head_width=6,
        inner=32,
        context=64,
    )
    made = new_decoder(jax.random.key(3), config, dtype)
    return jax.tree.map(lambda leaf: leaf * 4 if leaf.shape[0] == vocabulary else leaf, made)


def prompts(vocabulary: int, lengths: list[int], seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(3, vocabulary, length).tolist() for length in lengths]


def moved(base: Decoder, part: Part, size: float = 0.05, seed: int = 9) -> Part:
    """The part with something added to every leaf, so that it says other things than the base."""
    leaves, tree = jax.tree.flatten(part)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    added = [
        leaf + size * jax.random.normal(key, leaf.shape)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, added)


def policy_of(base: Decoder, lora: LoraConfig | None = LORA) -> Part:
    return moved(base, fresh_part(jax.random.key(5), base, lora))
