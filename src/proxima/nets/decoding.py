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
from proxima.nets.transformer import (
    Cache,
    Decoder,
    Layer,
    Projection,
    attend,
    embed,
    mlp,
    normed,
    qkv,
    turns_of,
)


class Apart(NamedTuple):
    """A decoder's layers, none of them part of a larger array."""

    layers: tuple[Layer, ...]
    adapters: tuple[Adapters | None, ...]


class LayerCaches(NamedTuple):
    """A `Cache` whose keys and values, (B, kv heads, context, head width), are one array per layer."""

    keys: tuple[Array, ...]
    values: tuple[Array, ...]
    mask: Array
    length: Array


def apart(decoder: Decoder, adapters: Adapters | None) -> Apart:
    """The layers, unstacked and turned, with their adapters."""
    numbers = range(decoder.config.layers)
    layers = tuple(_turned(_layer(decoder.layers, n)) for n in numbers)
    changes = tuple(_layer(adapters, n) for n in numbers)
    # Without the barrier they would be taken apart inside the loop, which is what this avoids.
    return Apart(*jax.lax.optimization_barrier((layers, changes)))


def caches_apart(cache: Cache) -> LayerCaches:
    """The same cache, layer by layer."""
    return LayerCaches(tuple(cache.keys), tuple(cache.values), cache.mask, cache.length)


def next_states(
    decoder: Decoder, parts: Apart, ids: Array, mask: Array, caches: LayerCaches
) -> tuple[Array, LayerCaches]:
    """The last layer's output at one more token of each row (B, width), and the caches with it."""
    positions = jnp.maximum(jnp.sum(caches.mask, axis=1) + mask - 1, 0)[:, None]
    known = jax.lax.dynamic_update_slice(caches.mask, mask[:, None], (0, caches.length))
    h, turns = embed(decoder, ids[:, None], positions), turns_of(decoder.config, positions)
    updated: list[tuple[Array, Array]] = []
    for layer, adapter, *old in zip(*parts, caches.keys, caches.values, strict=True):
        q, *new = qkv(decoder.config, layer, adapter, h, turns)
        start = (0, 0, caches.length, 0)
        keys, values = map(jax.lax.dynamic_update_slice, old, new, [start, start])
        h = h + attend(decoder.config, layer, adapter, q, keys, values, known[:, None])
        h = h + mlp(decoder.config, layer, adapter, h)
        updated.append((keys, values))
    all_keys, all_values = zip(*updated, strict=True)
    h = normed(decoder.config, decoder.norm, h)[:, 0]
    return h, LayerCaches(all_keys, all_values, known, caches.length + 1)


def _layer(stacked: PyTree, number: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[number], stacked)


def _turned(layer: Layer) -> Layer:
    return jax.tree.map(
        lambda part: (
            Projection(part.weight.T, part.bias, turned=True)
            if isinstance(part, Projection)
            else part
        ),
        layer,
        is_leaf=lambda part: isinstance(part, Projection),
    )
