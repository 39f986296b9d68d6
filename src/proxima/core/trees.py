"""Trees as one array: fewer, larger arrays make a compiled loop on a CPU markedly faster."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.types import PyTree

EXACT = 2**24  # the first integer whose successor float32 cannot hold


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
        columns = jnp.split(packed, _offsets(widths), axis=-1)
        restored = [
            column.reshape(*packed.shape[:-1], *shape).astype(dtype)
            for column, shape, dtype in zip(columns, shapes, dtypes, strict=True)
        ]
        return jax.tree.unflatten(structure, restored)

    return jnp.concatenate(rows, axis=-1), unpack


def _offsets(widths: list[int]) -> list[int]:
    return [sum(widths[: i + 1]) for i in range(len(widths) - 1)]


def select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Leaf by leaf `where(condition, yes, no)`, the condition spread over trailing axes."""

    def choose(yes: Array, no: Array) -> Array:
        spread = condition.reshape(condition.shape + (1,) * (yes.ndim - condition.ndim))
        return jnp.where(spread, yes, no)

    return jax.tree.map(choose, yes, no)
