"""Proportional priorities of a ring buffer (Schaul et al. 2016, arXiv 1511.05952) as pure functions.

    P(i) = p_i / Σ p,   p_i = (|δ_i| + ε)^α, of new rows the largest so far,   w_i = (N P(i))^−β / max w

The p_i are the leaves of a tree whose nodes are sums of 16 children each. A draw goes down from the root, a
change goes up and sums the children anew, so that no error of rounding ever adds up. Sixteen: on a CPU a
binary tree takes six times as long (its many small steps cost more than sums), two levels of √N twice.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from proxima.core.replay import NOWHERE

FANOUT = 16
SMALLEST = 1e-6  # added to every |δ|: a row without an error must be drawn again some day


class Priorities(NamedTuple):
    """p of every row, and sums of sixteen, of these again sixteen, up to a last level of sixteen at most."""

    levels: tuple[Array, ...]
    largest: Array  # |δ| + ε so far


class Draw(NamedTuple):
    """Rows (count,), and by how much each counts in a loss."""

    rows: Array
    weight: Array


def no_priorities(capacity: int) -> Priorities:
    """Of a buffer without rows."""
    sizes = [_whole_blocks(capacity)]
    while sizes[-1] > FANOUT:
        sizes.append(_whole_blocks(sizes[-1] // FANOUT))
    return Priorities(tuple(jnp.zeros(size) for size in sizes), jnp.ones(()))


def _whole_blocks(count: int) -> int:
    return -(-count // FANOUT) * FANOUT


def add_rows(priorities: Priorities, index: Array, alpha: Array) -> Priorities:
    """After rows were stored at `index` (`replay.slots`): theirs is the largest so far."""
    value = jnp.broadcast_to(priorities.largest**alpha, index.shape)
    return priorities._replace(levels=_put(priorities.levels, index, value))


def change(priorities: Priorities, index: Array, error: Array, alpha: Array) -> Priorities:
    """After the rows were found to have these errors; a row that is there twice gets its larger one."""
    size = jnp.abs(error) + SMALLEST
    levels = _put(priorities.levels, index, size**alpha)
    return Priorities(levels, jnp.maximum(priorities.largest, jnp.max(size)))


def draw(priorities: Priorities, uniforms: Array, rows: Array, beta: Array) -> Draw:
    """A row for each of the numbers in [0, 1), which divide the sum of all priorities into equal parts.

    `rows` is how many there are. Rows of priority 0, those that were never stored, are not drawn.
    """
    count = len(uniforms)
    total = jnp.sum(priorities.levels[-1])
    rest = (jnp.arange(count) + uniforms) / count * total  # how far into the children of a node
    index = jnp.zeros(count, jnp.int32)
    chosen = jnp.zeros(count)
    # sums up to each child and with it
    triangle = jnp.triu(jnp.ones((FANOUT, FANOUT)))
    for level in reversed(priorities.levels):
        children = level.reshape(-1, FANOUT)[index]
        reach = children @ triangle
        candidates = (children > 0.0) & (reach > rest[:, None])
        # Rounding may leave none: then it is the last child that has anything.
        last = FANOUT - 1 - jnp.argmax(children[:, ::-1] > 0.0, axis=-1)
        child = jnp.where(jnp.any(candidates, axis=-1), jnp.argmax(candidates, axis=-1), last)
        here = child[:, None] == jnp.arange(FANOUT)[None]
        chosen, reached = (
            jnp.sum(jnp.where(here, part, 0.0), axis=-1) for part in (children, reach)
        )
        rest = jnp.clip(rest - (reached - chosen), 0.0, chosen)
        index = index * FANOUT + child.astype(jnp.int32)
    weight = (rows * jnp.maximum(chosen / total, 1e-30)) ** -beta
    return Draw(index, weight / jnp.max(weight))


def _put(levels: tuple[Array, ...], index: Array, value: Array) -> tuple[Array, ...]:
    """The tree with these leaves; what goes nowhere is dropped."""
    if len(index) == 1:  # as in `replay.add`: a scatter of one number would copy the whole tree
        index, value = jnp.append(index, NOWHERE), jnp.append(value, 0.0)
    # The largest of several values for one leaf is the same in whatever order they are written.
    leaves = levels[0].at[index].set(0.0, mode="drop").at[index].max(value, mode="drop")
    changed = [leaves]
    for level in levels[1:]:
        index = index // FANOUT
        sums = jnp.sum(changed[-1].reshape(-1, FANOUT)[index], axis=-1)
        changed.append(level.at[index].set(sums, mode="drop"))
    return tuple(changed)
