"""Policy, reference, value and reward as small parts over one shared base.

    reference = base                      policy = base + its adapters (or its own weights)
    value, reward = base + their adapters (or their own weights) + a head that gives one number per token

A part with `decoder` is fully fine-tuned: it has weights of its own and the base is not looked at.
"""

from dataclasses import asdict
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.domains.language.config import NewModelConfig
from proxima.domains.language.samples import Rows
from proxima.nets import transformer
from proxima.nets.lora import Adapters, LoraConfig, fresh_adapters
from proxima.nets.transformer import Decoder, DecoderConfig


class Head(NamedTuple):
    """One number from a token's features."""

    weight: Array  # (width,)
    bias: Array  # ()


class Part(NamedTuple):
    """What makes one model out of the shared base; all None: the base itself, the reference."""

    decoder: Decoder | None = None
    adapters: Adapters | None = None
    head: Head | None = None


class Scored(NamedTuple):
    """What a policy says of completions, all (B, N)."""

    log_probs: Array
    entropies: Array


REFERENCE = Part()


def new_shape(config: NewModelConfig, vocabulary: int) -> DecoderConfig:
    """The shape of a new decoder of Llama's parts for a tokenizer of so many tokens."""
    sizes = asdict(config) | {"vocabulary": vocabulary}
    return DecoderConfig(**sizes, kv_heads=config.heads, head_width=config.width // config.heads)


def new_model(
    key: Array, config: NewModelConfig, vocabulary: int, dtype: str = "float32"
) -> Decoder:
    """A decoder with random weights for a tokenizer of so many tokens."""
    return transformer.new_decoder(key, new_shape(config, vocabulary), dtype)


def fresh_part(key: Array, base: Decoder, lora: LoraConfig | None, head: bool = False) -> Part:
    """A part that says what the base says: fresh adapters, or without LoRA its own copy of the weights.

    A head starts at 0 everywhere: it has no opinion yet.
    """
    number = Head(jnp.zeros(base.config.width), jnp.zeros(())) if head else None
    if lora is None:
        return Part(decoder=jax.tree.map(jnp.copy, base), head=number)
    return Part(adapters=fresh_adapters(key, lora, transformer.matrices(base)), head=number)


def merged_decoder(base: Decoder, part: Part) -> Decoder:
    """The part as a decoder of its own, its adapters worked in; the head is left behind."""
    return transformer.merge(base if part.decoder is None else part.decoder, part.adapters)


def features(base: Decoder, part: Part, rows: Rows, checkpoint: bool = False) -> Array:
    """The last layer's output at every token, (B, T, width)."""
    decoder = base if part.decoder is None else part.decoder
    return transformer.hidden_states(decoder, rows.ids, rows.mask, part.adapters, checkpoint)


def joined(prompts: Rows, completions: Rows) -> Rows:
    """Prompts and completions as one text each, (B, P + N)."""
    return Rows(
        *(jnp.concatenate(leaves, axis=1) for leaves in zip(prompts, completions, strict=True))
    )


def score_completions(
    base: Decoder,
    part: Part,
    prompts: Rows,
    completions: Rows,
    temperature: Array | float,
    checkpoint: bool = False,
) -> Scored:
    """Log-probabilities and entropies of the tokens of completions, float32, 0 on pads."""
    before = _before(base, part, prompts, completions, checkpoint)
    logits = (
        transformer.logits_of(base if part.decoder is None else part.decoder, before) / temperature
    )
    # A comparison instead of a gather: its gradient is no scatter into all the logits.
    index = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)
    chosen = jnp.sum(jnp.where(index == completions.ids[..., None], logits, 0.0), axis=-1)
    total = jax.nn.logsumexp(logits, axis=-1)
    entropies = total - jnp.sum(jnp.exp(logits - total[..., None]) * logits, axis=-1)
    return Scored(*(jnp.where(completions.mask, x, 0.0) for x in (chosen - total, entropies)))


def values_before(
    base: Decoder, part: Part, prompts: Rows, completions: Rows, checkpoint: bool = False
) -> Array:
    """The head's number at the token before each one of the completions, (B, N); 0 on pads."""
    h = _before(base, part, prompts, completions, checkpoint)
    return jnp.where(completions.mask, numbers(part, h), 0.0)


def score_texts(base: Decoder, part: Part, rows: Rows, checkpoint: bool = False) -> Array:
    """The head's number at the last token of each text, (B,): a reward model's opinion."""
    h = features(base, part, rows, checkpoint)
    last = rows.mask.shape[1] - 1 - jnp.argmax(rows.mask[:, ::-1], axis=1)
    return numbers(part, jnp.take_along_axis(h, last[:, None, None], axis=1)[:, 0])


def numbers(part: Part, h: Array) -> Array:
    """What the part's head makes of features (..., width), float32."""
    assert part.head is not None
    return h.astype(jnp.float32) @ part.head.weight + part.head.bias


def _before(base: Decoder, part: Part, prompts: Rows, completions: Rows, checkpoint: bool) -> Array:
    """Features at the token before each one of the completions."""
    width = completions.ids.shape[1]
    return features(base, part, joined(prompts, completions), checkpoint)[:, -width - 1 : -1]
