"""One token more: the step that generation repeats, with every layer's weights in an array of its own.

A loop over stacked layers copies the weights of each out of the stack, for every token anew; that takes a
CPU as long as the products themselves. So the layers are taken apart once, before the first step, and
their matrices turned to the layout in which a product with few rows is fastest. The price is a second copy
of the layers while generation lasts. The values are those of `cached_states`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.types import PyTree
from proxima.nets.lora import Adapters
from proxima.nets.norms import normed
from proxima.nets.transformer import (
    Cache,
    Decoder,
    Layer,
    Projection,
    attend,
    embed,
    mlp,
    qkv,
    turns_of,
)

Layers = tuple[tuple[Layer, Adapters | None], ...]  # none of them part of a larger array


class LayerCaches(NamedTuple):
    """A `Cache` whose keys and values, (B, kv heads, context, head width), are one array per layer."""

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    mask: Array
    length: Array


def apart(decoder: Decoder, adapters: Adapters | None) -> Layers:
    """The layers, unstacked and turned, with their adapters."""

    def layer(n: int) -> tuple[Layer, Adapters | None]:
        weights, adapter = jax.tree.map(lambda leaf: leaf[n], (decoder.layers, adapters))
        return jax.tree.map(_turned, weights, is_leaf=_is_projection), adapter

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
    known = jax.lax.dynamic_update_slice(caches.mask, mask[:, None], (0, caches.length))
    h, turns = embed(decoder, ids[:, None], positions), turns_of(decoder.config, positions)
    updated: list[tuple[Array, Array]] = []
    for (layer, adapter), *old in zip(layers, caches.keys, caches.values, strict=True):
        q, *new = qkv(decoder.config, layer, adapter, h, turns)
        start = (0, 0, caches.length, 0)
        keys, values = map(jax.lax.dynamic_update_slice, old, new, [start, start])
        h = h + attend(decoder.config, layer, adapter, q, keys, values, known[:, None])
        h = h + mlp(decoder.config, layer, adapter, h)
        updated.append((keys, values))
    all_keys, all_values = zip(*updated, strict=True)
    h = normed(decoder.norm, h, decoder.config.norm_eps)[:, 0]
    return h, LayerCaches(all_keys, all_values, known, caches.length + 1)


def _is_projection(part: PyTree) -> bool:
    return isinstance(part, Projection)


def _turned(part: PyTree) -> PyTree:
    return Projection(part.weight.T, part.bias, turned=True) if _is_projection(part) else part
