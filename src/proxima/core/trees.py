"""Trees as one array (two where they hold bytes): fewer, larger arrays make a compiled loop faster."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.types import PyTree

# A matrix with a row per sample; where samples hold bytes, a pair of such: numbers and bytes.
Rows = Array | tuple[Array, Array]
FLAGS = 24  # bits; the integers that so many make up are exact in float32
POWERS = tuple(2**bit for bit in range(FLAGS))


def pack_rows(tree: PyTree, leading: int) -> tuple[Rows, Callable[[Rows], PyTree]]:
    """The leaves side by side in one float32 array (*leading axes, columns), and the way back.

    Bytes stay bytes: where the tree has uint8 leaves, the rows are a pair, the other leaves as float32 and
    these as uint8. The way back takes rows with any leading axes and restores trailing shapes and dtypes;
    booleans, float32, bytes and integers below 2²⁴ come back exactly.
    """
    leaves, structure = jax.tree.flatten(tree)
    shapes = [leaf.shape[leading:] for leaf in leaves]
    dtypes = [leaf.dtype for leaf in leaves]
    widths = [math.prod(shape) for shape in shapes]
    bytes_at = [index for index, dtype in enumerate(dtypes) if dtype == jnp.uint8]
    numbers_at = [index for index in range(len(leaves)) if index not in bytes_at]

    def side_by_side(indices: list[int], dtype: Any) -> Array:
        rows = [
            leaves[index].reshape(*leaves[index].shape[:leading], widths[index]).astype(dtype)
            for index in indices
        ]
        return jnp.concatenate(rows or [jnp.zeros((*leaves[0].shape[:leading], 0))], axis=-1)

    def apart(packed: Array, indices: list[int]) -> dict[int, Array]:
        ends = list(itertools.accumulate(widths[index] for index in indices))
        columns = jnp.split(packed, ends[:-1], axis=-1)
        return {
            index: column.reshape(*packed.shape[:-1], *shapes[index]).astype(dtypes[index])
            for index, column in zip(indices, columns, strict=bool(indices))
        }

    def unpack(packed: Rows) -> PyTree:
        if isinstance(packed, tuple):
            restored = apart(packed[0], numbers_at) | apart(packed[1], bytes_at)
        else:
            restored = apart(packed, numbers_at)
        return jax.tree.unflatten(structure, [restored[index] for index in range(len(leaves))])

    numbers = side_by_side(numbers_at, jnp.float32)
    return (numbers, side_by_side(bytes_at, jnp.uint8)) if bytes_at else numbers, unpack


def pack_flags(tree: PyTree, leading: int) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """The tree with its boolean arrays as float32 numbers of 24 flags each, and the way back."""

    # A mask over many actions is most of an observation, and a float32 per flag wastes 31 bits.
    def is_wide(leaf: Array | jax.ShapeDtypeStruct, leading: int) -> bool:
        return leaf.dtype == bool and math.prod(leaf.shape[leading:]) > 1

    def narrow(leaf: Array) -> Array:
        if not is_wide(leaf, leading):
            return leaf
        flags = leaf.reshape(*leaf.shape[:leading], -1)
        padding = [(0, 0)] * leading + [(0, -flags.shape[-1] % FLAGS)]
        grouped = jnp.pad(flags, padding).reshape(*leaf.shape[:leading], -1, FLAGS)
        return grouped.astype(jnp.float32) @ jnp.asarray(POWERS, jnp.float32)

    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[leading:], leaf.dtype), tree)

    def widen(shape: jax.ShapeDtypeStruct, leaf: Array) -> Array:
        if not is_wide(shape, 0):
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
    columns = [
        part.astype(jnp.uint32)
        if part.dtype == jnp.uint8
        else jax.lax.bitcast_convert_type(part, jnp.uint32)
        for part in jax.tree.leaves(pack_rows(tree, 1)[0])
    ]
    bits = jnp.concatenate(columns, axis=-1)
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


def with_own(shared: PyTree, own: PyTree) -> PyTree:
    """The shared tree with what `own` has in its place; `own` is such a tree with None elsewhere, or None."""
    if own is None:
        return shared
    return jax.tree.map(
        lambda mine, other: other if mine is None else mine,
        own,
        shared,
        is_leaf=lambda x: x is None,
    )
