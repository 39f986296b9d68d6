"""A branch that remains a branch when trials are batched."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap

from proxima.core.trees import select
from proxima.core.types import PyTree


def when(
    condition: Array, change: Callable[[PyTree, PyTree], PyTree], state: PyTree, inputs: PyTree
) -> PyTree:
    """`change(state, inputs)` where the condition holds, else `state`; both have the same structure.

    `lax.cond` does the same, but under vmap it always computes both sides. Here a batch of trials computes
    `change` only if one of them needs it. `change` must take all arrays it uses as arguments.
    """

    @custom_vmap
    def branch(condition: Array, state: PyTree, inputs: PyTree) -> PyTree:
        # A function of its own: a module's method, which `change` may be, cannot be hashed.
        return jax.lax.cond(
            condition, lambda *both: change(*both), lambda state, inputs: state, state, inputs
        )

    @branch.def_vmap
    def batched(
        trials: int, axes: list[PyTree], condition: Array, state: PyTree, inputs: PyTree
    ) -> tuple[PyTree, PyTree]:
        def spread(leaf: Array, has_trials: bool) -> Array:
            return leaf if has_trials else jnp.broadcast_to(leaf, (trials, *leaf.shape))

        conditions, before = jax.tree.map(spread, (condition, state), tuple(axes[:2]))
        axis = jax.tree.map(lambda has_trials: 0 if has_trials else None, axes[2])

        def changed(before: PyTree, inputs: PyTree) -> PyTree:
            after = jax.vmap(change, in_axes=(0, axis))(before, inputs)
            return select(conditions, after, before)

        after = jax.lax.cond(jnp.any(conditions), changed, lambda before, _: before, before, inputs)
        return after, jax.tree.map(lambda _: True, after)

    return branch(condition, state, inputs)


def steps_when(
    condition: Array,
    step: Callable[[PyTree, Array, PyTree], tuple[PyTree, Array]],
    state: PyTree,
    keys: Array,
    inputs: PyTree,
    metrics: Sequence[str],
) -> tuple[PyTree, dict[str, Array]]:
    """The state after a `step(state, key, inputs)` per key where the condition holds, else as it was.

    A step also returns its metrics as a vector in the order of their names; their means are returned,
    0 where there was no step. `step` must take all arrays it uses as arguments.
    """

    def scan(before: tuple[PyTree, Array], given: tuple[Array, PyTree]) -> tuple[PyTree, Array]:
        keys, inputs = given
        after, rows = jax.lax.scan(lambda state, key: step(state, key, inputs), before[0], keys)
        return after, jnp.mean(rows, axis=0)

    state, means = when(condition, scan, (state, jnp.zeros(len(metrics))), (keys, inputs))
    return state, dict(zip(metrics, means, strict=True))
