"""How long the parts of an update take, where a chunk is one program that cannot be looked into.

Each part is compiled by itself and run on copies, many times in one call where it is short:

    rollout    the collector, with the policy as it is
    env        the same environments, stepped with that rollout's actions and reset where episodes end
    act        rollout − env: the noise, the nets and, where the agent plans ahead, its search
    learn      the agent's update from that rollout
    update     the chunk itself

Apart they are not quite what they are together: XLA fuses across them, and `env` keeps to the first
rollout's actions. So rollout and learn add up to about the update, not to the microsecond. Programs over
host environments time their parts while they run and need none of this.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec as P

from proxima.core.trees import select
from proxima.core.types import Agent, PyTree, TrainState, Transition
from proxima.train.compiled.chunk import (
    DATA,
    TRIAL,
    Layout,
    chunk,
    learner_specs,
    make_mesh,
    over_trials,
    specs,
    split_streams,
)
from proxima.train.compiled.collect import Collector

Acting = Literal["act", "search"]  # what is done between two steps of the environments
Profile = dict[str, float]  # seconds per update of all trials together, by part

CALL_SECONDS = 0.05  # how long one timed call lasts at least: dispatching it is then no matter
PART_SECONDS = 2.0  # after so much of it, a part is not timed again
CALLS = 5


def profiler(
    agent: Agent, collector: Collector, layout: Layout, acting: Acting
) -> Callable[[TrainState], Profile]:
    """The function that measures the parts; the states it is given stay as they are."""

    def profile(states: TrainState) -> Profile:
        times = jnp.int32(1)
        rollout = _rollouts(layout, agent, collector, states, times)
        blind = states._replace(learner=None)  # the environments alone need no learner
        learners, whole = _copy(states.learner), _copy(states)
        active = jnp.ones(len(jax.tree.leaves(states)[0]), bool)

        def learn(times: Array) -> None:
            nonlocal learners  # given up to every call, as the chunk does: a replay buffer is not copied
            learners, metrics = _updates(
                layout, agent, learners, rollout, states.key.shuffle, times
            )
            jax.block_until_ready(metrics)

        def update(times: Array) -> None:
            nonlocal whole
            whole, sums = chunk(layout, agent, collector, whole, active, times)
            jax.block_until_ready(sums)

        parts: dict[str, Callable[[Array], Any]] = {
            "rollout": lambda times: _rollouts(layout, agent, collector, states, times),
            "env": lambda times: _env_steps(layout, collector, blind, rollout.action, times),
            "learn": learn,
            "update": update,
        }
        seconds = {name: _seconds(part) for name, part in parts.items()}
        seconds[acting] = max(0.0, seconds["rollout"] - seconds["env"])
        return {name: seconds[name] for name in ("rollout", "env", acting, "learn", "update")}

    return profile


def _seconds(part: Callable[[Array], Any]) -> float:
    """The median time of one run of a part."""
    jax.block_until_ready(part(jnp.int32(0)))  # compiles, and runs nothing
    once = _timed(part, 1)
    times = max(1, min(1000, round(CALL_SECONDS / once)))
    # A call that was long enough is a measurement; a short one was mostly dispatch.
    found = [once] if times == 1 else [_timed(part, times)]
    while len(found) < CALLS and sum(found) * times < PART_SECONDS:
        found.append(_timed(part, times))
    return median(found)


def _timed(part: Callable[[Array], Any], times: int) -> float:
    start = time.perf_counter()
    jax.block_until_ready(part(jnp.int32(times)))
    return (time.perf_counter() - start) / times


@jax.jit
def _copy(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.copy, tree)


@partial(jax.jit, static_argnames="layout")
def _rollouts(
    layout: Layout, agent: Agent, collector: Collector, states: TrainState, times: Array
) -> Transition:
    """The last of some rollouts in a row, (trials, T, B, ...)."""

    def one(agent: Agent, collector: Collector, state: TrainState, times: Array) -> Transition:
        def collect(actors: PyTree, key: PyTree) -> tuple[PyTree, PyTree, PyTree]:
            key, use = split_streams(key)
            actors, rollout, _ = collector(agent, state.learner, actors, use)
            return actors, key, rollout

        return _repeat(lambda _, carry: collect(*carry[:2]), (state.actors, state.key), times)

    return _on_devices(layout, one, (agent, collector), (states, specs(states)), times, _ROLLOUT)


@partial(jax.jit, static_argnames="layout")
def _env_steps(
    layout: Layout, collector: Collector, states: TrainState, actions: PyTree, times: Array
) -> PyTree:
    """What the environments say to the same actions, some times in a row, (trials, T, B, ...)."""

    def one(collector: Collector, given: tuple[TrainState, PyTree], times: Array) -> PyTree:
        state, actions = given

        def step(carry: PyTree, row: PyTree) -> tuple[PyTree, PyTree]:
            action, step_key, reset = row
            env_state, result = jax.vmap(collector.env.step)(carry[0], action, step_key)
            ended = result.terminated | result.truncated
            seen = (result.obs, result.reward, result.terminated, result.truncated)
            return select(ended, reset, (env_state, result.obs)), seen

        def collect(index: Array, carry: PyTree) -> tuple[PyTree, PyTree, PyTree]:
            envs, key, _ = carry
            key, use = split_streams(key)
            rows = (_anew(actions, index), *collector.draw(use.env))
            envs, seen = jax.lax.scan(step, envs, rows)
            return envs, key, seen

        start = (state.actors.env_state, state.actors.obs)
        return _repeat(collect, (start, state.key), times)

    given = (states, actions), (specs(states), _ROLLOUT)
    return _on_devices(layout, one, (collector,), given, times, _ROLLOUT)


@partial(jax.jit, static_argnames="layout", donate_argnames="learners")
def _updates(
    layout: Layout, agent: Agent, learners: PyTree, rollout: Transition, keys: Array, times: Array
) -> tuple[PyTree, dict[str, Array]]:
    """The learners after some updates from the same rollout, and the last one's metrics."""

    def one(agent: Agent, given: PyTree, times: Array) -> PyTree:
        learner, rollout, key = given

        def learn(index: Array, carry: PyTree) -> PyTree:
            now = jax.random.fold_in(key, index)
            return agent.update(carry[0], _anew(rollout, index), now)

        shapes = jax.eval_shape(learn, jnp.int32(0), (learner,))[1]
        return jax.lax.fori_loop(0, times, learn, (learner, _zeros(shapes)))

    of_learners = learner_specs(learners)
    given = (learners, rollout, keys), (of_learners, _ROLLOUT, P(TRIAL))
    return _on_devices(layout, one, (agent,), given, times, (of_learners, P(TRIAL)))


_ROLLOUT: Any = P(TRIAL, None, DATA)


def _on_devices(
    layout: Layout,
    one: Callable,
    shared: tuple,
    given: tuple[PyTree, PyTree],
    times: Array,
    out: PyTree,
) -> PyTree:
    """`one` for every trial, on the devices where the chunk has them; `given` comes with its specs."""

    def on_one_device(shared: tuple, trees: PyTree, times: Array) -> PyTree:
        return over_trials(lambda tree: one(*shared, tree, times), trees)

    trees, tree_specs = given
    return jax.shard_map(
        on_one_device,
        mesh=make_mesh(layout),
        in_specs=(P(), tree_specs, P()),
        out_specs=out,
        check_vma=False,
    )(shared, trees, times)


def _repeat(body: Callable, start: tuple[PyTree, PyTree], times: Array) -> PyTree:
    """The last product of a body that goes from (state, key) to (state, key, product)."""
    # Carried along and handed out, or XLA would leave out what nobody reads.
    product = _zeros(jax.eval_shape(body, jnp.int32(0), (*start, None))[2])
    return jax.lax.fori_loop(0, times, body, (*start, product))[2]


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _anew(tree: PyTree, index: Array) -> PyTree:
    """The same arrays, of which the compiler must not know that they are the same every time."""
    return jax.lax.optimization_barrier((tree, index))[0]
