"""A branch that stays one when trials are batched."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap

from proxima.core.trees import select
from proxima.core.types import PyTree


def when(
    condition: Array, change: Callable[[PyTree, PyTree], PyTree], state: PyTree, given: PyTree
) -> PyTree:
    """`change(state, given)` where the condition holds, else `state`; both have the same structure.

    `lax.cond` says the same, but under vmap it computes both sides always. Here a batch of trials computes
    nothing where none of them needs it. `change` must take all arrays it uses as arguments.
    """

    @custom_vmap
    def branch(condition: Array, state: PyTree, given: PyTree) -> PyTree:
        # A function of its own: a module's method, which `change` may be, cannot be hashed.
        return jax.lax.cond(
            condition, lambda *both: change(*both), lambda state, given: state, state, given
        )

    @branch.def_vmap
    def batched(
        trials: int, axes: list[PyTree], condition: Array, state: PyTree, given: PyTree
    ) -> tuple[PyTree, PyTree]:
        is_batched, *inner = jax.tree.map(lambda batched: 0 if batched else None, axes)

        def spread(leaf: Array, axis: int | None) -> Array:
            return leaf if axis == 0 else jnp.broadcast_to(leaf, (trials, *leaf.shape))

        before = jax.tree.map(spread, state, inner[0], is_leaf=lambda part: part is None)
        conditions = spread(condition, is_batched)

        def changed(before: PyTree, given: PyTree) -> PyTree:
            after = jax.vmap(change, in_axes=(0, inner[1]))(before, given)
            return select(conditions, after, before)

        after = jax.lax.cond(jnp.any(conditions), changed, lambda before, _: before, before, given)
        return after, jax.tree.map(lambda _: True, after)

    return branch(condition, state, given)
