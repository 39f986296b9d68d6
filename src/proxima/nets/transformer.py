"""One decoder-only transformer for GPT-2, Llama, SmolLM, Mistral, Qwen2 and Qwen3: what differs is values.

    h = embedding(ids) (+ learned positions)
    for each layer:  h += attention(norm(h));  h += mlp(norm(h))
    logits = head(norm(h))

The layers' weights are stacked, (layers, ...), and scanned over: one layer is compiled, whatever their
number. Adapters (`lora.py`) are trees beside the weights, so that several models share one frozen base.
Rows are padded on the left; positions and attention come from the mask, never from ids. Left out on
purpose: dropout, sliding windows shorter than the context, mixtures of experts.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.nets.lora import TARGETS, Adapters, LowRank
from proxima.nets.mlp import affine, product_turned

# The score of a position that is not attended to; finite, so that a row of pads is not NaN.
FAR = -1e30

# A loop over layers keeps what its gradient needs by copying it; so few are written out instead.
FEW_LAYERS = 4


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Llama 3's stretching of the slow rotations, for contexts longer than the original; its own names."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """The shape of a decoder and which parts it has; read from a model's config.json."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    inner: int  # width of the MLP's hidden layer
    context: int
    norm: Literal["rms", "layer"] = "rms"
    norm_eps: float = 1e-5
    positions: Literal["rotary", "learned"] = "rotary"
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    activation: Literal["silu", "gelu_tanh", "gelu"] = "silu"
    gated: bool = True
    attention_bias: bool = False  # of q, k and v
    output_bias: bool = False  # of the attention's output
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = True  # the head is the embedding transposed


ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}


class Norm(eqx.Module):
    """A norm's scale and shift; RMSNorm has no shift."""

    scale: Array
    shift: Array | None


class Projection(eqx.Module):
    """x ↦ xW + b."""

    weight: Array  # (inputs, outputs), or with `turned` (outputs, inputs)
    bias: Array | None
    turned: bool = eqx.field(static=True, default=False)


class Layer(eqx.Module):
    """One block; in a decoder every leaf has a leading axis of layers."""

    attention_norm: Norm
    q: Projection
    k: Projection
    v: Projection
    o: Projection
    q_norm: Norm | None
    k_norm: Norm | None
    mlp_norm: Norm
    gate: Projection | None
    up: Projection
    down: Projection


class Decoder(eqx.Module):
    """The weights of a model."""

    embedding: Array  # (vocabulary, width)
    positions: Array | None  # (context, width)
    layers: Layer
    norm: Norm
    head: Array | None  # (width, vocabulary); None: the embedding transposed
    config: DecoderConfig = eqx.field(static=True)


def new_decoder(key: Array, config: DecoderConfig, dtype: str = "float32") -> Decoder:
    """A decoder with random weights, of which every layer leaves the size of its input as it is."""
    names = ("embedding", "positions", "head", "q", "k", "v", "o", "gate", "up", "down")
    keys = dict(zip(names, jax.random.split(key, len(names)), strict=True))

    def normal(name: str, shape: tuple[int, ...], deviation: float) -> Array:
        return (deviation * jax.random.normal(keys[name], shape)).astype(dtype)

    def norm(*shape: int) -> Norm:
        shift = jnp.zeros(shape, dtype) if config.norm == "layer" else None
        return Norm(jnp.ones(shape, dtype), shift)

    def projection(name: str, inputs: int, outputs: int, gain: float, bias: bool) -> Projection:
        weight = normal(name, (config.layers, inputs, outputs), gain / math.sqrt(inputs))
        return Projection(weight, jnp.zeros((config.layers, outputs), dtype) if bias else None)

    width, depth, inner = config.width, config.layers, config.inner
    queries, keyed = config.heads * config.head_width, config.kv_heads * config.head_width
    qkv_bias, mlp_bias = config.attention_bias, config.mlp_bias
    # What 2·depth branches add up to has the size of one (Radford et al. 2019, section 2.3).
    branch = 1 / math.sqrt(2 * depth)
    layers = Layer(
        attention_norm=norm(depth, width),
        q=projection("q", width, queries, 1.0, qkv_bias),
        k=projection("k", width, keyed, 1.0, qkv_bias),
        v=projection("v", width, keyed, 1.0, qkv_bias),
        o=projection("o", queries, width, branch, config.output_bias),
        q_norm=norm(depth, config.head_width) if config.qk_norm else None,
        k_norm=norm(depth, config.head_width) if config.qk_norm else None,
        mlp_norm=norm(depth, width),
        gate=projection("gate", width, inner, 1.0, mlp_bias) if config.gated else None,
        up=projection("up", width, inner, 1.0, mlp_bias),
        down=projection("down", inner, width, branch, mlp_bias),
    )
    learned, free = config.positions == "learned", not config.tied
    deviation = 0.02  # GPT-2's and Llama's
    return Decoder(
        embedding=normal("embedding", (config.vocabulary, width), deviation),
        positions=normal("positions", (config.context, width), deviation) if learned else None,
        layers=layers,
        norm=norm(width),
        head=normal("head", (width, config.vocabulary), deviation) if free else None,
        config=config,
    )


def hidden_states(
    decoder: Decoder,
    ids: Array,
    mask: Array,
    adapters: Adapters | None = None,
    checkpoint: bool = False,
) -> Array:
    """The last layer's output at every position (B, T, width), normed; `mask` is False for pads."""
    positions = jnp.maximum(jnp.cumsum(mask, axis=1) - 1, 0)  # among the valid ones; 0 for pads
    steps = jnp.arange(ids.shape[1])
    visible = mask[:, None, :] & (steps[None, :, None] >= steps[None, None, :])
    h, turns = embed(decoder, ids, positions)

    def block(h: Array, layer: tuple[Layer, Adapters | None]) -> tuple[Array, None]:
        weights, adapter = layer
        q, k, v = qkv(decoder.config, weights, adapter, h, turns)
        h = h + attend(decoder.config, weights, adapter, q, k, v, visible)
        return h + mlp(decoder.config, weights, adapter, h), None

    if checkpoint:
        block = jax.checkpoint(block)
    unroll = decoder.config.layers if decoder.config.layers <= FEW_LAYERS else 1
    h, _ = jax.lax.scan(block, h, (decoder.layers, adapters), unroll=unroll)
    return normed(decoder.norm, h, decoder.config.norm_eps)


def logits_of(decoder: Decoder, h: Array) -> Array:
    """Scores of the next token, float32, (..., vocabulary)."""
    scores = h @ decoder.embedding.T if decoder.head is None else h @ decoder.head
    return scores.astype(jnp.float32)


def embed(
    decoder: Decoder, ids: Array, positions: Array
) -> tuple[Array, tuple[Array, Array] | None]:
    """What the first layer is given, (B, T, width), and the rotations; None where positions are learned."""
    h = decoder.embedding[ids]
    if decoder.positions is not None:
        return h + decoder.positions[positions], None
    return h, turns_at(decoder.config, positions)


def qkv(
    config: DecoderConfig,
    layer: Layer,
    adapter: Adapters | None,
    h: Array,
    turns: tuple[Array, Array] | None,
) -> tuple[Array, Array, Array]:
    """Queries (B, heads, T, head width), keys and values (B, kv heads, T, head width)."""
    x = normed(layer.attention_norm, h, config.norm_eps)
    q = _heads(_project(layer.q, adapter and adapter.q, x), config.heads)
    k = _heads(_project(layer.k, adapter and adapter.k, x), config.kv_heads)
    v = _heads(_project(layer.v, adapter and adapter.v, x), config.kv_heads)
    if layer.q_norm is not None and layer.k_norm is not None:
        eps = config.norm_eps
        q, k = normed(layer.q_norm, q, eps), normed(layer.k_norm, k, eps)
    if turns is not None:
        q, k = rotate(q, turns), rotate(k, turns)
    return q, k, v


def _project(projection: Projection, change: LowRank | None, x: Array) -> Array:
    """xW + b, with the change where there is one; the low-rank product is never formed."""
    weight = projection.weight
    y = product_turned(x, weight) if projection.turned else affine(x, weight, None)
    if projection.bias is not None:
        y = y + jnp.broadcast_to(projection.bias, y.shape)
    if change is None:
        return y
    low = affine(affine(x.astype(change.a.dtype), change.a, None), change.b, None)
    return y + (change.scale * low).astype(y.dtype)


def _heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def attend(config, layer: Layer, adapter, q: Array, k: Array, v: Array, visible: Array) -> Array:
    """Attention of the queries to the positions they may see (B, T, S); heads in groups share keys."""
    batch, heads, count, width = q.shape
    share = heads // config.kv_heads
    grouped = q.reshape(batch, config.kv_heads, share * count, width)
    scores = jnp.einsum("bgqd,bgsd->bgqs", grouped, k).astype(jnp.float32) / math.sqrt(width)
    allowed = jnp.broadcast_to(visible[:, None], (batch, share, *visible.shape[1:]))
    allowed = allowed.reshape(batch, 1, share * count, visible.shape[2])
    weights = jax.nn.softmax(jnp.where(allowed, scores, FAR), axis=-1)
    mixed = jnp.einsum("bgqs,bgsd->bgqd", weights.astype(v.dtype), v)
    flat = mixed.reshape(batch, heads, count, width).swapaxes(1, 2).reshape(batch, count, -1)
    return _project(layer.o, adapter and adapter.o, flat)


def mlp(config: DecoderConfig, layer: Layer, adapter: Adapters | None, h: Array) -> Array:
    """What the layer's MLP adds to h."""
    x = normed(layer.mlp_norm, h, config.norm_eps)
    up = _project(layer.up, adapter and adapter.up, x)
    activation = ACTIVATIONS[config.activation]
    if layer.gate is None:
        inner = activation(up)
    else:
        gate = _project(layer.gate, adapter and adapter.gate, x)
        # only gate and up are kept for the gradient, which recomputes the rest
        gated = jax.checkpoint(lambda gate, up: activation(gate) * up, prevent_cse=False)
        inner = gated(gate, up)
    return _project(layer.down, adapter and adapter.down, inner)


def normed(norm: Norm, x: Array, eps: float) -> Array:
    """x with size 1 along its last axis, for LayerNorm mean 0 too, then scaled and shifted; in float32."""
    exact = x.astype(jnp.float32)
    if norm.shift is not None:
        exact = exact - jnp.mean(exact, axis=-1, keepdims=True)
    scaled = _scaled(_to_size_one(exact, eps).astype(x.dtype), norm.scale)
    return scaled if norm.shift is None else scaled + _spread(norm.shift, x)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _to_size_one(x: Array, eps: float) -> Array:
    """x over the root of its mean square; its gradient written out takes a CPU half the time."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)


def _size_forward(x: Array, eps: float) -> tuple[Array, tuple[Array, Array]]:
    factor = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)
    return x * factor, (x, factor)


def _size_backward(eps: float, residuals: tuple[Array, Array], slope: Array) -> tuple[Array]:
    x, factor = residuals
    unit = x * factor
    return (factor * (slope - unit * jnp.mean(slope * unit, axis=-1, keepdims=True)),)


_to_size_one.defvjp(_size_forward, _size_backward)


@jax.custom_vjp
def _scaled(x: Array, scale: Array) -> Array:
    """x times a vector; the vector's gradient is a product with ones, which a CPU adds up faster."""
    return x * _spread(scale, x)


def _scaled_forward(x: Array, scale: Array) -> tuple[Array, tuple[Array, Array]]:
    return _scaled(x, scale), (x, scale)


def _scaled_backward(residuals: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, scale = residuals
    products = (slope * x).reshape(-1, x.shape[-1])
    ones = jnp.ones((1, len(products)), products.dtype)
    return slope * _spread(scale, slope), (ones @ products)[0]


_scaled.defvjp(_scaled_forward, _scaled_backward)


def _spread(vector: Array, like: Array) -> Array:
    return jnp.broadcast_to(vector, like.shape)


def turns_at(config: DecoderConfig, positions: Array) -> tuple[Array, Array]:
    """Cosines and sines (B, 1, T, head width / 2) of the rotations at positions (B, T)."""
    half, scaling = config.head_width // 2, config.rope_scaling
    frequencies = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    if scaling is not None:
        # Waves shorter than the trained context stay, much longer ones are stretched, those between blend.
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
        blend = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
        frequencies = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    angles = positions[:, None, :, None].astype(jnp.float32) * frequencies[None, None, None]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Array, turns: tuple[Array, Array]) -> Array:
    """x (B, heads, T, head width) turned, its first half with its second."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = (jnp.broadcast_to(turn, first.shape) for turn in turns)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)


def matrices(decoder: Decoder) -> dict[str, Array]:
    """The stacked matrices that may have adapters, by target; a decoder without gates has no "gate"."""
    projections = {target: getattr(decoder.layers, target) for target in TARGETS}
    return {target: part.weight for target, part in projections.items() if part is not None}


def merge(decoder: Decoder, adapters: Adapters | None) -> Decoder:
    """The decoder with the changes worked into its weights; what has no change is shared, not copied."""
    if adapters is None:
        return decoder
    old, new = matrices(decoder), {}
    for target, change in adapters._asdict().items():
        if change is not None:
            matrix, low = old[target], jnp.einsum("lir,lro->lio", change.a, change.b)
            new[target] = (matrix + change.scale * low).astype(matrix.dtype)
    return eqx.tree_at(
        lambda tree: [matrices(tree)[target] for target in new], decoder, list(new.values())
    )
