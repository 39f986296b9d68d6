"""A compiled chunk: some updates in one program, trials side by side, spread over devices.

A batch of TrainStates (trials first) is divided over the devices along the trial axis, with nothing to
say to each other; a single large trial is divided along its environments instead, and averages its
gradient once per minibatch.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from proxima.core.trees import select
from proxima.core.types import Agent, PerEnv, PyTree, Streams, TrainState
from proxima.train.compiled.collect import Collector
from proxima.train.stage import is_watched

TRIAL, DATA = "trial", "data"
Result = TypeVar("Result")
Updated = tuple[TrainState, dict[str, Array]]  # states, and metrics or their sums


class Layout(NamedTuple):
    """How many devices share the trials, and how many share one trial's environments."""

    trial_devices: int
    data_devices: int


def update_step(agent: Agent, collector: Collector, state: TrainState) -> Updated:
    """Collect with the current policy, learn from it: every algorithm and every domain is this."""
    key, use = split_streams(state.key)
    actors, rollout, episodes = collector(agent, state.learner, state.actors, use)
    learner, metrics = agent.update(state.learner, rollout, use.shuffle)
    return TrainState(learner, actors, key), metrics | episodes


def split_streams(key: Streams) -> tuple[Streams, Streams]:
    """The streams to go on with, and keys to use now."""
    act, use_act = jax.random.split(key.act)
    shuffle, use_shuffle = jax.random.split(key.shuffle)
    env = jax.vmap(jax.random.split)(key.env)
    return Streams(act, env[:, 0], shuffle), Streams(use_act, env[:, 1], use_shuffle)


def run_updates(agent: Agent, collector: Collector, state: TrainState, updates: Array) -> Updated:
    """`updates` update steps and the sums of their metrics; the number may change without compiling."""

    def body(_: Array, carry: Updated) -> Updated:
        state, sums = carry
        state, metrics = update_step(agent, collector, state)
        return state, jax.tree.map(jnp.add, sums, metrics)

    sums = zeros_like(jax.eval_shape(update_step, agent, collector, state)[1])
    result: Updated = jax.lax.fori_loop(0, updates, body, (state, sums))
    return result


def zeros_like(shapes: PyTree) -> PyTree:
    """Zeros of the shapes that `jax.eval_shape` returns."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


copied = jax.jit(partial(jax.tree.map, jnp.copy))  # what a donating program is given instead


def over_trials(function: Callable[[PyTree], PyTree], states: PyTree) -> PyTree:
    """`function` over the leading trial axis; one trial is not batched, which is faster and simpler."""
    if jax.tree.leaves(states)[0].shape[0] == 1:
        alone = function(jax.tree.map(lambda leaf: leaf[0], states))
        return jax.tree.map(lambda leaf: leaf[None], alone)
    return jax.vmap(function)(states)


def all_finite(sums: dict[str, Array]) -> Array:
    """Whether a chunk's losses and gradients were finite throughout, per trial."""
    watched = [sums[key] for key in sums if is_watched(key)]
    return jnp.all(jnp.isfinite(jnp.stack(watched)), axis=0)


@partial(jax.jit, static_argnames="layout", donate_argnames="states")
def chunk(
    layout: Layout,
    agent: Agent,
    collector: Collector,
    states: TrainState,
    active: Array,
    updates: Array,
) -> Updated:
    """The states after `updates` updates of every active trial, and the sums of their metrics, (trials,).

    Trials that are not active come back as they were, and so do trials whose loss or gradient stopped
    being finite: their last good state is the one before this chunk. The states passed in are given up.
    """

    def on_one_device(
        agent: Agent, collector: Collector, states: TrainState, active: Array, updates: Array
    ) -> Updated:
        def some(states: TrainState) -> Updated:
            after, sums = over_trials(
                lambda state: run_updates(agent, collector, state, updates), states
            )
            return select(active & all_finite(sums), after, states), sums

        shapes = jax.eval_shape(some, states)[1]
        # A device all of whose trials have stopped leaves its core to the others.
        result: Updated = jax.lax.cond(
            jnp.any(active), some, lambda states: (states, zeros_like(shapes)), states
        )
        return result

    in_specs = (P(), P(), specs(states), P(TRIAL), P())
    sharded = on_devices(layout, on_one_device, in_specs, (specs(states), P(TRIAL)))
    return sharded(agent, collector, states, active, updates)


def on_devices(
    layout: Layout, function: Callable[..., Result], in_specs: PyTree, out_specs: PyTree
) -> Callable[..., Result]:
    """The function on every device of the layout at once, each with its part of the arrays."""
    sharded: Callable[..., Result] = jax.shard_map(
        function, mesh=make_mesh(layout), in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
    return sharded


def specs(states: TrainState) -> PyTree:
    """Which axes of the states lie on which mesh axis: trials and, within one, environments."""
    whole: PyTree = P(TRIAL)
    divided: PyTree = P(TRIAL, DATA)
    actors = jax.tree.map(lambda _: divided, states.actors)
    return TrainState(learner_specs(states.learner), actors, Streams(whole, divided, whole))


def learner_specs(learners: PyTree) -> PyTree:
    """The learners' part of `specs`."""

    def of_part(part: PyTree) -> PyTree:
        return PerEnv(P(TRIAL, DATA)) if isinstance(part, PerEnv) else P(TRIAL)  # type: ignore[arg-type]

    return jax.tree.map(of_part, learners, is_leaf=lambda part: isinstance(part, PerEnv))


def place(states: TrainState, layout: Layout) -> TrainState:
    """The states laid out on the devices as the chunk wants them."""
    mesh = make_mesh(layout)
    placed: TrainState = jax.device_put(
        states, jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs(states))
    )
    return placed


def make_mesh(layout: Layout) -> Mesh:
    """The first devices as a trial × data grid."""
    count = layout.trial_devices * layout.data_devices
    grid = np.array(jax.devices()[:count]).reshape(layout.trial_devices, layout.data_devices)
    return Mesh(grid, (TRIAL, DATA))
