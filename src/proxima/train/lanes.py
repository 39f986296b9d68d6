"""States of lanes put into place: fresh, copied from each other, with other numbers; each one program.

All take and give states of all lanes, lanes first. Those that are replaced are given up.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.hyper import with_numbers_of
from proxima.core.trees import select
from proxima.core.types import TrainState


@partial(jax.jit, donate_argnums=2)
def chosen(mask: Array, fresh: TrainState, states: TrainState) -> TrainState:
    """The fresh states in the lanes of the mask, else those at hand."""
    replaced: TrainState = select(mask, fresh, states)
    return replaced


@partial(jax.jit, donate_argnums=0)
def put(states: TrainState, lane: Array, state: TrainState) -> TrainState:
    """The states with one lane's replaced."""
    is_lane = jnp.arange(len(jax.tree.leaves(states)[0])) == lane
    spread = jax.tree.map(lambda old, new: jnp.broadcast_to(new, old.shape), states, state)
    replaced: TrainState = select(is_lane, spread, states)
    return replaced


@jax.jit
def copies(states: TrainState, sources: Array) -> TrainState:
    """Each lane as a copy of its source, but for its random streams."""
    copied: TrainState = jax.tree.map(lambda leaf: leaf[sources], states)
    return copied._replace(key=states.key)


@partial(jax.jit, donate_argnums=2)
def numbered(mask: Array, fresh: TrainState, states: TrainState) -> TrainState:
    """The states with fresh ones' numbers in the lanes of the mask."""
    with_new: TrainState = select(mask, with_numbers_of(fresh, states), states)
    return with_new
