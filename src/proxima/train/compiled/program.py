"""A Program over compiled environments: a chunk is some updates in one program, trials side by side.

A batch of TrainStates (trials first) is divided over the devices along the trial axis, with nothing to
say to each other; a single large trial is divided along its environments instead, and averages its
gradient once per minibatch.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from proxima.core.algorithm import Acting
from proxima.core.seeds import first_keys, split_streams
from proxima.core.trees import select, with_own
from proxima.core.types import Agent, Env, PyTree, TrainState
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.episodes import evaluator, recorder
from proxima.train.compiled.levels import Leveled, at_standing, followed, only
from proxima.train.compiled.profile import profiler
from proxima.train.devices import (
    TRIAL,
    Layout,
    lay_out,
    make_mesh,
    on_devices,
    over_trials,
    specs,
    zeros_like,
)
from proxima.train.program import Evaluation, Lanes, Policy, Program
from proxima.train.stage import is_watched

Updated = tuple[TrainState, dict[str, Array]]  # states, and metrics or their sums
Remake = Callable[[Any], tuple[Agent, int]]  # an algorithm's config → agent, steps of a rollout


class Settings(NamedTuple):
    """All that a compiled training depends on besides its seed."""

    agent: Agent
    collector: Collector
    evaluation_env: Env
    closing_env: Env


def compiled_program(
    agent: Agent,
    collector: Collector,
    layout: Layout,
    experiment_seed: int,
    evaluation_env: Env | None = None,
    closing_env: Env | None = None,
    acting: Acting = "act",
    remake: Remake | None = None,
    own: Settings | None = None,
) -> Program:
    """The Program of an agent on a compiled environment; evaluation may have environments of its own.

    `own` has what trials do not share of the settings, trials first, and None elsewhere.
    """
    evaluation_env = evaluation_env or collector.env
    closing_env = closing_env or evaluation_env
    settings = Settings(agent, collector, evaluation_env, closing_env)
    on_trials = NamedSharding(make_mesh(layout), P(TRIAL))
    own = None if own is None else jax.device_put(own, on_trials)
    training = None if own is None else (own.agent, own.collector)

    def player(env: Env, theirs: PyTree) -> Callable[[PyTree, Policy, int], Evaluation]:
        play = evaluator(agent, env, layout, experiment_seed)
        return play if own is None else partial(play, own=(own.agent, theirs))

    evaluate = player(evaluation_env, own and own.evaluation_env)

    def init(seeds: list[int]) -> TrainState:
        # Made on one device and then laid out: made in place, it would need the devices to talk.
        return lay_out(_init(agent, collector, np.asarray(seeds, np.uint32), training), layout)

    def run(
        states: TrainState, active: np.ndarray, updates: int
    ) -> tuple[TrainState, dict[str, np.ndarray]]:
        amount = jnp.asarray(active), jnp.int32(updates)
        states, sums = chunk(layout, agent, collector, states, *amount, training)
        return states, jax.device_get(sums)

    def prepare(states: TrainState, episodes: int) -> TrainState:
        """Compile the chunk (by running none of it) and the evaluation side by side."""
        trials = len(jax.tree.leaves(states)[0])
        learners = jax.tree.map(jnp.copy, states.learner)  # the chunk gives its own up
        with ThreadPoolExecutor(max_workers=1) as pool:
            evaluation = pool.submit(evaluate, learners, "greedy", episodes)
            states, _ = run(states, np.zeros(trials, bool), 0)
            evaluation.result()
        return states

    def examine_level(learners: PyTree, policy: Policy, episodes: int, level: int) -> Evaluation:
        assert isinstance(closing_env, Leveled)  # as the environment of every curriculum
        env = only(closing_env, level)
        return evaluator(agent, env, layout, experiment_seed)(learners, policy, episodes)

    return Program(
        init=init,
        shapes=lambda trials: jax.eval_shape(_init, agent, collector, np.zeros(trials, np.uint32)),
        lay_out=partial(lay_out, layout=layout),
        prepare=prepare,
        chunk=run,
        evaluate=evaluate,
        examine=player(closing_env, own and own.closing_env),
        record=recorder(agent, closing_env, experiment_seed),
        steps_per_update=collector.num_envs * collector.steps,
        examine_level=None if collector.course is None else examine_level,
        profile=profiler(partial(chunk, layout, agent), agent, collector, layout, acting),
        # A search gives lanes numbers of their own; both at once has no use yet.
        lanes=None if remake is None or own is not None else _lanes(settings, layout, remake),
    )


def _lanes(settings: Settings, layout: Layout, remake: Remake) -> Lanes:
    """The program's lanes; they share what `own` leaves open."""

    def init(own: Settings, seeds: list[int]) -> TrainState:
        numbers = np.asarray(seeds, np.uint32)
        states = _init(settings.agent, settings.collector, numbers, (own.agent, own.collector))
        return lay_out(states, layout)

    def run(
        own: Settings, states: TrainState, active: np.ndarray, updates: int
    ) -> tuple[TrainState, dict[str, np.ndarray]]:
        amount = jnp.asarray(active), jnp.int32(updates)
        both = own.agent, own.collector
        states, sums = chunk(layout, settings.agent, settings.collector, states, *amount, both)
        return states, jax.device_get(sums)

    def play(name: str, own: Settings, learners: PyTree, episodes: int, seed: int) -> Evaluation:
        played = evaluator(settings.agent, getattr(settings, name), layout, seed)
        return played(learners, "greedy", episodes, (own.agent, getattr(own, name)))

    def with_algorithm(config: Any) -> Settings:
        agent, steps = remake(config)
        collector = replace(settings.collector, steps=steps)
        return settings._replace(agent=agent, collector=collector)

    return Lanes(
        settings=settings,
        with_algorithm=with_algorithm,
        init=init,
        chunk=run,
        evaluate=partial(play, "evaluation_env"),
        examine=partial(play, "closing_env"),
        env_varies=True,
    )


@jax.jit
def _init(agent: Agent, collector: Collector, seeds: Array, own: PyTree = None) -> TrainState:
    """Fresh states, one per seed; `own` has what trials do not share of agent and collector."""

    def one(lane: tuple[PyTree, Array]) -> TrainState:
        own, seed = lane
        mine, collect = with_own((agent, collector), own)
        keys = first_keys(seed, collect.num_envs)
        standing = None if collect.course is None else collect.course.rule.init()
        first = at_standing(collect, standing)
        actors = first.init(keys.resets, mine.memory(collect.num_envs))
        return TrainState(mine.init(keys.weights), actors, keys.streams, standing)

    return jax.vmap(one)((own, seeds))


@partial(jax.jit, static_argnames="layout", donate_argnames="states")
def chunk(
    layout: Layout,
    agent: Agent,
    collector: Collector,
    states: TrainState,
    active: Array,
    updates: Array,
    own: PyTree = None,
) -> Updated:
    """The states after `updates` updates of every active trial, and the sums of their metrics, (trials,).

    Trials that are not active come back as they were, and so do trials whose loss or gradient stopped
    being finite: their last good state is the one before this chunk. The states passed in are given up.
    `own` has what trials do not share of agent and collector.
    """

    def on_one_device(
        shared: PyTree, own: PyTree, states: TrainState, active: Array, updates: Array
    ) -> Updated:
        def run(lane: tuple[PyTree, TrainState]) -> Updated:
            own, state = lane
            agent, collector = with_own(shared, own)
            return run_updates(agent, collector, state, updates)

        def some(states: TrainState) -> Updated:
            after, sums = over_trials(run, (own, states))
            return select(active & all_finite(sums), after, states), sums

        shapes = jax.eval_shape(some, states)[1]
        # A device all of whose trials have stopped leaves its core to the others.
        result: Updated = jax.lax.cond(
            jnp.any(active), some, lambda states: (states, zeros_like(shapes)), states
        )
        return result

    in_specs = (P(), P(TRIAL), specs(states), P(TRIAL), P())
    sharded = on_devices(layout, on_one_device, in_specs, (specs(states), P(TRIAL)))
    return sharded((agent, collector), own, states, active, updates)


def run_updates(agent: Agent, collector: Collector, state: TrainState, updates: Array) -> Updated:
    """`updates` update steps and the sums of their metrics; the number may change without compiling."""

    def body(_: Array, carry: Updated) -> Updated:
        state, sums = carry
        state, metrics = update_step(agent, collector, state)
        return state, jax.tree.map(jnp.add, sums, metrics)

    sums = zeros_like(jax.eval_shape(update_step, agent, collector, state)[1])
    result: Updated = jax.lax.fori_loop(0, updates, body, (state, sums))
    return result


def update_step(agent: Agent, collector: Collector, state: TrainState) -> Updated:
    """Collect with the current policy, learn from it: every algorithm and every domain is this."""
    key, use = split_streams(state.key)
    collector = at_standing(collector, state.curriculum)
    actors, rollout, episodes = collector(agent, state.learner, state.actors, use)
    learner, metrics = agent.update(state.learner, rollout, use.shuffle)
    curriculum, episodes = followed(collector, state.curriculum, episodes)
    return TrainState(learner, actors, key, curriculum), metrics | episodes


def all_finite(sums: dict[str, Array]) -> Array:
    """Whether a chunk's losses and gradients were finite throughout, per trial."""
    watched = [sums[key] for key in sums if is_watched(key)]
    return jnp.all(jnp.isfinite(jnp.stack(watched)), axis=0)
