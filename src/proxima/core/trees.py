"""Trees as one array: fewer, larger arrays make a compiled loop on a CPU markedly faster."""

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.types import PyTree

FLAGS = 24  # bits; the integers that so many make up are exact in float32
POWERS = tuple(2**bit for bit in range(FLAGS))


def pack_rows(tree: PyTree, leading: int) -> tuple[Array, Callable[[Array], PyTree]]:
    """The leaves side by side in one float32 array (*leading axes, columns), and the way back.

    The way back takes an array with any leading axes and restores trailing shapes and dtypes; booleans,
    float32 and integers below 2²⁴ come back exactly.
    """
    leaves, structure = jax.tree.flatten(tree)
    shapes = [leaf.shape[leading:] for leaf in leaves]
    dtypes = [leaf.dtype for leaf in leaves]
    widths = [math.prod(shape) for shape in shapes]
    rows = [
        leaf.reshape(*leaf.shape[:leading], width).astype(jnp.float32)
        for leaf, width in zip(leaves, widths, strict=True)
    ]

    def unpack(packed: Array) -> PyTree:
        columns = jnp.split(packed, list(itertools.accumulate(widths[:-1])), axis=-1)
        restored = [
            column.reshape(*packed.shape[:-1], *shape).astype(dtype)
            for column, shape, dtype in zip(columns, shapes, dtypes, strict=True)
        ]
        return jax.tree.unflatten(structure, restored)

    return jnp.concatenate(rows, axis=-1), unpack


def pack_flags(tree: PyTree, leading: int) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """The tree with all boolean leaves as float32 numbers of 24 flags each, and the way back."""

    # A mask over many actions is most of an observation, and a float32 per flag wastes 31 bits.
    def narrow(leaf: Array) -> Array:
        if leaf.dtype != bool:
            return leaf
        flags = leaf.reshape(*leaf.shape[:leading], -1)
        padding = [(0, 0)] * leading + [(0, -flags.shape[-1] % FLAGS)]
        grouped = jnp.pad(flags, padding).reshape(*leaf.shape[:leading], -1, FLAGS)
        return grouped.astype(jnp.float32) @ jnp.asarray(POWERS, jnp.float32)

    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[leading:], leaf.dtype), tree)

    def widen(shape: jax.ShapeDtypeStruct, leaf: Array) -> Array:
        if shape.dtype != bool:
            return leaf
        spread = jnp.broadcast_to(leaf.astype(jnp.int32)[..., None], (*leaf.shape, FLAGS))
        index = jax.lax.broadcasted_iota(jnp.int32, spread.shape, leaf.ndim)
        bits = jnp.right_shift(spread, index) & 1
        flags = bits.reshape(*leaf.shape[:-1], -1)[..., : math.prod(shape.shape)]
        return flags.reshape(*leaf.shape[:-1], *shape.shape).astype(bool)

    return jax.tree.map(narrow, tree), lambda packed: jax.tree.map(widen, shapes, packed)


def merge_leading(tree: PyTree) -> PyTree:
    """The first two axes as one: a rollout (T, B, ...) as T·B samples, for example."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def fingerprint(tree: PyTree) -> Array:
    """A number (B,) for each entry of a tree (B, ...), another one for almost any other entry."""
    packed = pack_rows(tree, 1)[0]
    bits = jax.lax.bitcast_convert_type(packed, jnp.uint32)
    # Odd factors that differ from column to column: no bit is lost, and columns do not cancel out.
    odd = 2 * jax.lax.broadcasted_iota(jnp.uint32, bits.shape, 1) + 1
    mixed = (bits ^ (bits >> 15)) * (odd * jnp.uint32(0x9E3779B1))
    return jnp.sum(mixed ^ (mixed >> 13), axis=-1, dtype=jnp.uint32)


def blank(mask: Array, tree: PyTree) -> PyTree:
    """The tree (*axes of `mask`, ...) with every float 0 where the mask is False, whatever stood there.

    A weight of 0 does not do: 0 · NaN is NaN. Flags and integers are never NaN, and stay: no action of an
    action mask being valid would be no better.
    """

    def zeroed(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        cleaned: Array = select(mask, leaf, jnp.zeros_like(leaf))
        return cleaned

    return jax.tree.map(zeroed, tree)


def select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Leaf by leaf `where(condition, yes, no)`, the condition spread over trailing axes."""

    def choose(yes: Array, no: Array) -> Array:
        spread = condition.reshape(condition.shape + (1,) * (yes.ndim - condition.ndim))
        return jnp.where(spread, yes, no)

    return jax.tree.map(choose, yes, no)
