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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec as P

from proxima.core.algorithm import Acting
from proxima.core.seeds import split_streams
from proxima.core.types import Acted, Agent, PerEnv, PyTree, Streams, TrainState, Transition, View
from proxima.train.compiled.collect import Collector
from proxima.train.devices import (
    DATA,
    TRIAL,
    Layout,
    copied,
    on_devices,
    over_trials,
    specs,
    zeros_like,
)

Profile = dict[str, float]  # seconds per update of all trials together, by part

CALL_SECONDS = 0.05  # how long one timed call lasts at least: dispatching it is then no matter
PART_SECONDS = 2.0  # after so much of it, a part is not timed again
CALLS = 5


class Replaying(NamedTuple):
    """What a collector needs of an agent, to repeat actions: they are its learner, PerEnv (B, T, ...)."""

    def noise(self, learner: PerEnv, key: Array, shape: tuple[int, ...]) -> PyTree:
        return swapped(learner.value)

    def explore(self, learner: PerEnv, view: View, noise: PyTree) -> Acted:
        return Acted(noise, memory=view.memory)


class Repeating(NamedTuple):
    """What a chunk needs of a collector, to learn from one rollout: its actors, a Transition (B, T, ...)."""

    def __call__(
        self, agent: Agent, learner: PyTree, actors: Transition, key: Streams
    ) -> tuple[Transition, Transition, dict[str, Array]]:
        # The compiler must not know that it is the same every time.
        rollout = jax.lax.optimization_barrier((actors, key.shuffle))[0]
        return actors, swapped(rollout), {}


def swapped(tree: PyTree, axis: int = 0) -> PyTree:
    """The arrays with this axis and the next one exchanged: environments first, as devices share them."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, axis, axis + 1), tree)


def profiler(
    chunk: Callable[..., PyTree], agent: Agent, collector: Collector, layout: Layout, acting: Acting
) -> Callable[[TrainState], Profile]:
    """The function that measures the parts, `chunk` being all of them; the states it is given stay."""

    def chunks(collector: Any, states: TrainState) -> Callable[[Array], PyTree]:
        states = copied(states)
        active = jnp.ones(len(jax.tree.leaves(states)[0]), bool)

        def run(times: Array) -> PyTree:
            nonlocal states  # given up to every call
            states, sums = chunk(collector, states, active, times)
            return sums

        return run

    def profile(states: TrainState) -> Profile:
        rollout = _rollouts(layout, agent, collector, states, jnp.int32(1))
        # What learns from one rollout again and again meets no levels.
        taught = states._replace(actors=swapped(rollout, 1), curriculum=None)
        replay = states._replace(learner=PerEnv(swapped(rollout.action, 1)))
        rollouts = _seconds(partial(_rollouts, layout, agent, collector, states))
        steps = _seconds(partial(_rollouts, layout, Replaying(), collector, replay))
        return {
            "rollout": rollouts,
            "env": steps,
            acting: max(0.0, rollouts - steps),
            "learn": _seconds(chunks(Repeating(), taught)),
            "update": _seconds(chunks(collector, states)),
        }

    return profile


def _seconds(part: Callable[[Array], PyTree]) -> float:
    """The median time of one run of a part."""
    jax.block_until_ready(part(jnp.int32(0)))  # compiles, and runs nothing
    once = _timed(part, 1)
    times = max(1, min(1000, round(CALL_SECONDS / once)))
    # A call that was long enough is a measurement; a short one was mostly dispatch.
    measured = [once] if times == 1 else [_timed(part, times)]
    while len(measured) < CALLS and sum(measured) * times < PART_SECONDS:
        measured.append(_timed(part, times))
    return median(measured)


def _timed(part: Callable[[Array], PyTree], times: int) -> float:
    start = time.perf_counter()
    jax.block_until_ready(part(jnp.int32(times)))
    return (time.perf_counter() - start) / times


@partial(jax.jit, static_argnames="layout")
def _rollouts(
    layout: Layout, agent: Any, collector: Collector, states: TrainState, times: Array
) -> PyTree:
    """The last of some rollouts in a row, a Transition (trials, T, B, ...)."""

    def on_one_device(agent: Any, collector: Collector, states: TrainState, times: Array) -> PyTree:
        def one(state: TrainState) -> PyTree:
            def collect(_: Array, carry: PyTree) -> tuple[PyTree, PyTree, PyTree]:
                actors, key, _before = carry
                key, use = split_streams(key)
                actors, rollout, _sums = collector(agent, state.learner, actors, use)
                return actors, key, rollout

            start = (state.actors, state.key)
            # Carried along and handed out, or XLA would leave out what nobody reads.
            last = zeros_like(jax.eval_shape(collect, jnp.int32(0), (*start, None))[2])
            return jax.lax.fori_loop(0, times, collect, (*start, last))[2]

        return over_trials(one, states)

    in_specs = (P(), P(), specs(states), P())
    sharded = on_devices(layout, on_one_device, in_specs, P(TRIAL, None, DATA))
    return sharded(agent, collector, states, times)
