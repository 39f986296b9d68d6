"""A compiled chunk: some updates in one program, trials side by side, spread over devices.

A batch of TrainStates (trials first) is divided over the devices along the trial axis, with nothing to
say to each other; a single large trial is divided along its environments instead, and averages its
gradient once per minibatch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from proxima.core.trees import select
from proxima.core.types import Agent, PerEnv, PyTree, Streams, TrainState

TRIAL, DATA = "trial", "data"


class Layout(NamedTuple):
    """How many devices share the trials, and how many share one trial's environments."""

    trial_devices: int
    data_devices: int


def update_step(agent: Agent, collector, state: TrainState) -> tuple[TrainState, dict]:
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


def run_updates(agent, collector, state: TrainState, updates: Array) -> tuple[TrainState, PyTree]:
    """`updates` update steps and the sums of their metrics; the number may change without compiling."""
    shapes = jax.eval_shape(update_step, agent, collector, state)[1]
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(_, carry):
        state, sums = carry
        state, metrics = update_step(agent, collector, state)
        return state, jax.tree.map(jnp.add, sums, metrics)

    return jax.lax.fori_loop(0, updates, body, (state, zeros))


def over_trials(function, states: PyTree) -> PyTree:
    """`function` over the leading trial axis; one trial is not batched, which is faster and simpler."""
    if jax.tree.leaves(states)[0].shape[0] == 1:
        alone = function(jax.tree.map(lambda leaf: leaf[0], states))
        return jax.tree.map(lambda leaf: leaf[None], alone)
    return jax.vmap(function)(states)


def compiled_chunk(layout: Layout):
    """The function (agent, collector, states, active, updates) → (states, metric sums), per trial.

    Trials that are not active come back as they were. The states passed in are given up.
    """
    mesh = make_mesh(layout)

    def on_device(agent, collector, states, active, updates):
        def some(states):
            after, sums = over_trials(
                lambda state: run_updates(agent, collector, state, updates), states
            )
            return select(active, after, states), sums

        shapes = jax.eval_shape(some, states)[1]

        def none(states):
            return states, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        return jax.lax.cond(jnp.any(active), some, none, states)

    def chunk(agent, collector, states, active, updates):
        sharded = jax.shard_map(
            on_device,
            mesh=mesh,
            in_specs=(P(), P(), specs(states), P(TRIAL), P()),
            out_specs=(specs(states), P(TRIAL)),
            check_vma=False,
        )
        return sharded(agent, collector, states, active, updates)

    return jax.jit(chunk, donate_argnums=2)


def specs(states: TrainState) -> TrainState:
    """Which axes of the states lie on which mesh axis: trials, and where there is one, environments."""

    def of_learner(leaf) -> P | PerEnv:
        return PerEnv(P(TRIAL, DATA)) if isinstance(leaf, PerEnv) else P(TRIAL)

    learner = jax.tree.map(of_learner, states.learner, is_leaf=lambda leaf: isinstance(leaf, PerEnv))
    actors = jax.tree.map(lambda _: P(TRIAL, DATA), states.actors)
    return TrainState(learner, actors, Streams(P(TRIAL), P(TRIAL, DATA), P(TRIAL)))


def place(states: TrainState, layout: Layout) -> TrainState:
    """The states laid out on the devices as the chunk wants them."""
    mesh = make_mesh(layout)
    return jax.tree.map(
        lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec)), states, specs(states)
    )


def make_mesh(layout: Layout) -> Mesh:
    """The first devices as a trial × data grid."""
    count = layout.trial_devices * layout.data_devices
    grid = np.array(jax.devices()[:count]).reshape(layout.trial_devices, layout.data_devices)
    return Mesh(grid, (TRIAL, DATA))
