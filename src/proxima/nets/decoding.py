"""Tokens after tokens: a cache of keys and values, and the step that generation repeats.

A loop over stacked layers copies the weights of each out of the stack, for every token anew; that takes a
CPU as long as the products themselves. So for that step the layers are taken apart once, and their
matrices turned to the layout in which a product with few rows is fastest. The price is a second copy of
the layers while generation lasts. The values are those of `cached_states`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.types import PyTree
from proxima.nets import transformer
from proxima.nets.lora import Adapters
from proxima.nets.transformer import Decoder, Layer, Projection

Layers = tuple[tuple[Layer, Adapters | None], ...]  # none of them part of a larger array


class Cache(NamedTuple):
    """Keys and values so far, (layers, B, kv heads, context, head width), and who may be looked at."""

    keys: Array
    values: Array
    mask: Array  # (B, context): False for pads and for positions not yet written
    length: Array  # positions written, the same for all rows; int32 scalar


class LayerCaches(NamedTuple):
    """A `Cache` whose keys and values, (B, kv heads, context, head width), are one array per layer."""

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    mask: Array
    length: Array  # a scalar, or (B,) where every row has its own


def cached_states(
    decoder: Decoder, ids: Array, mask: Array, cache: Cache, adapters: Adapters | None = None
) -> tuple[Array, Cache]:
    """`hidden_states` of ids that follow what the cache holds, and the cache with them in it.

    The layers only read the cache and give what is new; one write at the end puts it in place. Written
    layer by layer, the whole cache would be copied for every token.
    """
    count = ids.shape[1]
    before = jnp.sum(cache.mask, axis=1)[:, None]
    positions = jnp.maximum(before + jnp.cumsum(mask, axis=1) - 1, 0)
    steps = jnp.arange(count)
    among = mask[:, None, :] & (steps[None, :, None] >= steps[None, None, :])
    cached = jnp.broadcast_to(cache.mask[:, None], (*ids.shape, cache.mask.shape[1]))
    visible = jnp.concatenate([cached, among], axis=2)
    h, turns = transformer.embed(decoder, ids, positions)

    def block(h: Array, layer) -> tuple[Array, tuple[Array, Array]]:
        weights, adapter, keys, values = layer
        q, k, v = transformer.qkv(decoder.config, weights, adapter, h, turns)
        keys, values = jnp.concatenate([keys, k], axis=2), jnp.concatenate([values, v], axis=2)
        h = h + transformer.attend(decoder.config, weights, adapter, q, keys, values, visible)
        return h + transformer.mlp(decoder.config, weights, adapter, h), (k, v)

    h, new = jax.lax.scan(block, h, (decoder.layers, adapters, cache.keys, cache.values))
    start = (0, 0, 0, cache.length, 0)
    keys = jax.lax.dynamic_update_slice(cache.keys, new[0], start)
    values = jax.lax.dynamic_update_slice(cache.values, new[1], start)
    known = jax.lax.dynamic_update_slice(cache.mask, mask, (0, cache.length))
    h = transformer.normed(decoder.norm, h, decoder.config.norm_eps)
    return h, Cache(keys, values, known, cache.length + count)


def empty_cache(decoder: Decoder, rows: int, context: int) -> Cache:
    """A cache for `rows` texts of `context` tokens at most."""
    config = decoder.config
    shape = (config.layers, rows, config.kv_heads, context, config.head_width)
    none = jnp.zeros(shape, decoder.embedding.dtype)
    return Cache(none, none, jnp.zeros((rows, context), bool), jnp.zeros((), jnp.int32))


def apart(decoder: Decoder, adapters: Adapters | None) -> Layers:
    """The layers, unstacked and turned, with their adapters."""

    def is_projection(part: PyTree) -> bool:
        return isinstance(part, Projection)

    def turned(part: PyTree) -> PyTree:
        return Projection(part.weight.T, part.bias, turned=True) if is_projection(part) else part

    def layer(n: int) -> tuple[Layer, Adapters | None]:
        weights, adapter = jax.tree.map(lambda leaf: leaf[n], (decoder.layers, adapters))
        return jax.tree.map(turned, weights, is_leaf=is_projection), adapter

    layers = tuple(map(layer, range(decoder.config.layers)))
    # Without the barrier they would be taken apart inside the loop, which is what this avoids.
    return jax.lax.optimization_barrier(layers)


def caches_apart(cache: Cache) -> LayerCaches:
    """The same cache, layer by layer."""
    return LayerCaches(tuple(cache.keys), tuple(cache.values), cache.mask, cache.length)


def next_states(
    decoder: Decoder, layers: Layers, ids: Array, mask: Array, caches: LayerCaches
) -> tuple[Array, LayerCaches]:
    """The last layer's output at one more token of each row (B, width), and the caches with it."""
    positions = jnp.maximum(jnp.sum(caches.mask, axis=1) + mask - 1, 0)[:, None]
    known = _written(caches.mask, mask[:, None], caches.length, axis=1)
    h, turns = transformer.embed(decoder, ids[:, None], positions)
    updated: list[tuple[Array, Array]] = []
    for (layer, adapter), *old in zip(layers, caches.keys, caches.values, strict=True):
        q, *new = transformer.qkv(decoder.config, layer, adapter, h, turns)
        keys, values = (
            _written(*pair, caches.length, axis=2) for pair in zip(old, new, strict=True)
        )
        h = h + transformer.attend(decoder.config, layer, adapter, q, keys, values, known[:, None])
        h = h + transformer.mlp(decoder.config, layer, adapter, h)
        updated.append((keys, values))
    all_keys, all_values = zip(*updated, strict=True)
    h = transformer.normed(decoder.norm, h, decoder.config.norm_eps)[:, 0]
    return h, LayerCaches(all_keys, all_values, known, caches.length + 1)


def _written(array: Array, new: Array, at: Array, axis: int) -> Array:
    """The array with something new at a position of the axis, or at every row's own."""
    if at.ndim == 0:
        return jax.lax.dynamic_update_slice_in_dim(array, new, at, axis)
    one = jax.vmap(
        lambda row, part, start: jax.lax.dynamic_update_slice_in_dim(row, part, start, axis - 1)
    )
    return one(array, new, at)
