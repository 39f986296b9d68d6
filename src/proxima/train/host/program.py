"""A Program over host environments: the same agents, with the environments stepped in Python.

    per update:  the noise of a whole rollout, one compiled call
                 the rollout: `collect.py`
                 learn, one compiled call over all trials

With a policy lag of one, a rollout is collected while the learner still learns from the one before:

    learner        update 0 ──┐ update 1 ──┐ update 2 ──
    environments   rollout 1 ─┘ rollout 2 ─┘ rollout 3 ─     rollout k + 1 by the policy before update k

The policy that collects next is a part of the saved state, and no rollout outlasts a chunk: the first one
of a chunk is collected while nothing is learnt. So chunks and checkpoints change nothing.

The state of host environments cannot be saved, so the training loop re-seeds them at checkpoints:
whether a run goes on or is restored there, it sees the same episodes. `evaluate.py` evaluates and
records, in pools of its own.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.seeds import FIRST_RESET, first_keys, host_seed, split_streams
from proxima.core.trees import select, with_own
from proxima.core.types import Agent, HostEnv, PyTree, Streams, TrainState, Transition
from proxima.train.compiled.episodes import finished_episodes
from proxima.train.compiled.program import Remake, all_finite
from proxima.train.devices import copied, over_trials
from proxima.train.host.act import chooser
from proxima.train.host.collect import HostCollector
from proxima.train.host.evaluate import HostEvaluator, MakePool
from proxima.train.program import Evaluation, Lanes, Program

SUMS = ("episode_return", "episode_length")  # of the open episodes


class HostActors(NamedTuple):
    """What can be saved of a trial's environments: their seeds, and the open episodes' sums."""

    trial_seed: Array  # uint32 scalar
    generation: Array  # how often the environments were re-seeded, int32 scalar
    steps: Array  # since then, of each environment, int32 scalar
    episode_return: Array  # (B,)
    episode_length: Array  # (B,)
    policy: PyTree = None  # that collects the next rollout; None without a lag: the learner's own


class Pools(NamedTuple):
    """Where host environments come from."""

    train: Callable[[int], Sequence[HostEnv]]  # number of environments → groups that share them
    evaluate: MakePool
    evaluation_width: int = 16  # environments per trial that evaluate side by side, at most


def host_program(
    agent: Agent,
    pools: Pools,
    trials: int,
    num_envs: int,
    steps: int,
    experiment_seed: int,
    remake: Remake | None = None,
    policy_lag: int = 0,
) -> Program:
    """The Program of an agent on host environments, `num_envs` for each trial."""
    kept = 1 + policy_lag
    collector = HostCollector(agent, pools.train(trials * num_envs), trials, steps, kept)
    training = Training(agent, collector, num_envs, steps)
    first = partial(_init, num_envs=num_envs, lags=policy_lag > 0)
    evaluator = HostEvaluator(agent, pools.evaluate, pools.evaluation_width, experiment_seed)

    def prepare(states: TrainState, episodes: int) -> TrainState:
        training.prepare(states)
        evaluator.prepare(states.learner, episodes, collector.observation_space)
        return states

    def close() -> None:
        collector.close()
        evaluator.close()

    return Program(
        init=lambda seeds: first(agent, jnp.asarray(seeds, jnp.uint32)),
        shapes=lambda trials: jax.eval_shape(first, agent, jnp.zeros(trials, jnp.uint32)),
        lay_out=jax.device_put,
        prepare=prepare,
        chunk=training.run,
        evaluate=evaluator.evaluate,
        examine=evaluator.evaluate,
        record=evaluator.record,
        reseed=_reseed,
        exact_anywhere=False,
        steps_per_update=num_envs * steps,
        close=close,
        lanes=None if remake is None else _lanes(agent, training, evaluator, remake, first),
    )


class Settings(eqx.Module):
    """All that a training on given host environments depends on besides its seed."""

    agent: Agent
    num_envs: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)


def _lanes(
    agent: Agent,
    training: "Training",
    evaluator: HostEvaluator,
    remake: Remake,
    first: Callable[..., TrainState],
) -> Lanes:
    """The program's lanes; what they have of their own is in their learners from the first on."""
    steps, num_envs = training.shape

    def init(own: Settings, seeds: list[int]) -> TrainState:
        return first(agent, jnp.asarray(seeds, jnp.uint32), own=own.agent)

    def play(own: Settings, learners: PyTree, episodes: int, seed: int) -> Evaluation:
        return evaluator.evaluate(learners, "greedy", episodes, seed)

    def with_algorithm(config: Any) -> Settings:
        other, steps = remake(config)
        return Settings(other, num_envs, steps)

    return Lanes(
        settings=Settings(agent, num_envs, steps),
        with_algorithm=with_algorithm,
        init=init,
        chunk=lambda own, states, active, updates: training.run(states, active, updates),
        evaluate=play,
        examine=play,
        env_varies=False,
    )


@final
class Training:
    """Updates, and where the training environments stand: what cannot be saved."""

    def __init__(self, agent: Agent, collector: HostCollector, num_envs: int, steps: int):
        self._agent = agent
        self._collector = collector
        self.shape = (steps, num_envs)
        self._generation: np.ndarray | None = None  # (trials,), None before the first reset
        self._steps = 0

    def run(
        self, states: TrainState, active: np.ndarray, updates: int
    ) -> tuple[TrainState, dict[str, np.ndarray]]:
        """The states after some updates, and the sums of their metrics per trial."""
        active = np.asarray(active, bool)
        self._follow(jax.device_get(states.actors), active)
        before = copied(states)
        metrics: list[dict[str, Array]] = []
        advance = self._in_turns if states.actors.policy is None else self._side_by_side
        states, going, seconds = advance(states, active, updates, metrics)
        rows, going = jax.device_get((metrics, going))
        if not going.all():
            states = _select(going, states, before)
        totals = {name: np.sum([row[name] for row in rows], axis=0) for name in rows[0]}
        times = zip(("time/env", "time/act", "time/learn"), seconds, strict=True)
        return states, totals | {name: np.full(len(active), spent) for name, spent in times}

    def _in_turns(
        self, states: TrainState, active: np.ndarray, updates: int, metrics: list[dict[str, Array]]
    ) -> tuple[TrainState, Array, np.ndarray]:
        """Collect, learn, collect, learn: the states, who still may learn, and the seconds of each part."""
        learner, actors, key, _ = states
        policy = copied(self._agent.policy(learner))
        going, seconds = jnp.asarray(active), np.zeros(3)
        for _ in range(updates):
            begun = time.perf_counter()
            key, shuffle, noise = _begin(self._agent, learner, key, active, self.shape)
            rollout, stepping = self._collect(policy, noise)
            collected = time.perf_counter()
            learner, policy, actors, sums, going = _update(
                self._agent, learner, policy, actors, rollout, shuffle, going
            )
            metrics.append(sums)
            # The next rollout overwrites the arrays that this update reads.
            jax.block_until_ready(learner)
            learnt = time.perf_counter()
            seconds += stepping, collected - begun - stepping, learnt - collected
        return TrainState(learner, actors, key), going, seconds

    def _side_by_side(
        self, states: TrainState, active: np.ndarray, updates: int, metrics: list[dict[str, Array]]
    ) -> tuple[TrainState, Array, np.ndarray]:
        """The same where each update but the last has the next rollout collected beside it.

        Of the time to learn, only what the next rollout had to wait for is counted.
        """
        learner, actors, key, _ = states
        policy, actors = actors.policy, actors._replace(policy=None)
        newest = copied(self._agent.policy(learner))
        going, begun = jnp.asarray(active), time.perf_counter()
        key, shuffle, noise = _begin(self._agent, learner, key, active, self.shape)
        rollout, stepping = self._collect(policy, noise)
        collected = time.perf_counter()
        seconds = np.array([stepping, collected - begun - stepping, 0.0])
        # A thread of its own, because a program runs on the thread that calls it (devices.py).
        with ThreadPoolExecutor(max_workers=1) as learning:
            for later in reversed(range(updates)):
                begun, stepping, policy = time.perf_counter(), 0.0, newest
                update = self._agent, learner, policy, actors, rollout, shuffle, going
                if later:  # before the update takes the learner's memory
                    key, shuffle, noise = _begin(self._agent, learner, key, active, self.shape)
                learnt = learning.submit(
                    lambda parts: jax.block_until_ready(_update(*parts)), update
                )
                if later:
                    rollout, stepping = self._collect(policy, noise)
                collected = time.perf_counter()
                learner, newest, actors, sums, going = learnt.result()
                metrics.append(sums)
                waited = time.perf_counter() - collected
                seconds += stepping, collected - begun - stepping, waited
        return TrainState(learner, actors._replace(policy=policy), key), going, seconds

    def _collect(self, policy: PyTree, noise: PyTree) -> tuple[Transition, float]:
        """The policy's next rollout, and the seconds the environments took."""
        explore = chooser(self._agent, policy, greedy=False)
        rollout, seconds = self._collector.collect(explore, jax.device_get(noise))
        self._steps += self.shape[0]
        return rollout, seconds

    def prepare(self, states: TrainState) -> None:
        """Compiles everything that a chunk needs; the states stay as they are."""
        none = np.zeros(len(states.actors.steps), bool)
        _, shuffle, noise = _begin(self._agent, states.learner, states.key, none, self.shape)
        learner = copied(states.learner)  # the update gives its own up
        policy = self._agent.policy(states.learner)
        explore = chooser(self._agent, policy, greedy=False)
        rollout = self._collector.example(explore, jax.device_get(noise))
        actors = states.actors._replace(policy=None)
        _update(self._agent, learner, policy, actors, rollout, shuffle, jnp.asarray(none))

    def _follow(self, actors: HostActors, active: np.ndarray) -> None:
        """Resets every environment, unless the pool stands where the active trials left it."""
        if (
            self._generation is not None
            and np.array_equal(actors.generation[active], self._generation[active])
            and np.all(actors.steps[active] == self._steps)
        ):
            return
        self._generation = np.asarray(actors.generation)
        self._steps = 0
        seeds = [
            [_training_seed(int(trial_seed), int(generation), i) for i in range(self.shape[1])]
            for trial_seed, generation in zip(actors.trial_seed, actors.generation, strict=True)
        ]
        self._collector.reset(np.asarray(seeds))


def _training_seed(trial_seed: int, generation: int, index: int) -> int:
    first = trial_seed + index + (FIRST_RESET if generation == 0 else 0)
    return host_seed(first, trial_seed, generation)


@partial(jax.jit, static_argnames=("num_envs", "lags"))
def _init(
    agent: Agent, seeds: Array, num_envs: int, own: PyTree = None, lags: bool = False
) -> TrainState:
    def one(lane: tuple[PyTree, Array]) -> TrainState:
        own, seed = lane
        keys = first_keys(seed, num_envs)
        count, sums = jnp.zeros((), jnp.int32), jnp.zeros(num_envs)
        learner = with_own(agent, own).init(keys.weights)
        policy = agent.policy(learner) if lags else None
        actors = HostActors(seed, count, count, sums, sums, policy)
        return TrainState(learner, actors, keys.streams)

    return jax.vmap(one)((own, seeds))


def _reseed(states: TrainState) -> TrainState:
    """The same states with new episodes to come; what the open ones had gathered is dropped."""
    actors = states.actors
    zeros = {name: jnp.zeros_like(getattr(actors, name)) for name in ("steps", *SUMS)}
    return states._replace(actors=actors._replace(generation=actors.generation + 1, **zeros))


@partial(jax.jit, static_argnames="shape")
def _begin(
    agent: Agent, learner: PyTree, key: Streams, active: Array, shape: tuple[int, int]
) -> tuple[Streams, Array, PyTree]:
    """Streams to go on with, a shuffle key per trial, and a rollout's noise (T, trials, B, ...)."""

    def one(trial: tuple[PyTree, Streams]) -> tuple[Streams, Array, PyTree]:
        learner, key = trial
        key, use = split_streams(key)
        return key, use.shuffle, agent.noise(learner, use.act, shape)

    after, shuffle, noise = over_trials(one, (learner, key))
    return (
        select(active, after, key),
        shuffle,
        jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), noise),
    )


_select = jax.jit(select)


@partial(jax.jit, donate_argnums=1)
def _update(
    agent: Agent,
    learner: PyTree,
    policy: PyTree,
    actors: HostActors,
    rollout: Transition,
    shuffle: Array,
    active: Array,
) -> tuple[PyTree, PyTree, HostActors, dict[str, Array], Array]:
    """All trials learn from their part of the rollout; also which ones still may.

    Trials that are not active, or whose loss or gradient is not finite, keep the policy they acted with.
    Their learners are of no more use: keeping the old ones here would copy every replay buffer.
    """
    steps = rollout.reward.shape[0]

    def one(trial: tuple[PyTree, HostActors, Transition, Array]) -> tuple[PyTree, PyTree]:
        learner, actors, rollout, key = trial
        rollout, actors = _cut_at_losses(rollout, actors)
        learner, metrics = agent.update(learner, rollout, key)
        actors, episodes = finished_episodes(rollout, actors)
        return (learner, actors._replace(steps=actors.steps + steps)), metrics | episodes

    by_trial = jax.tree.map(
        lambda leaf: leaf.reshape(steps, len(active), -1, *leaf.shape[2:]).swapaxes(0, 1), rollout
    )
    (learner, actors), sums = over_trials(one, (learner, actors, by_trial, shuffle))
    active = active & all_finite(sums)
    return learner, select(active, agent.policy(learner), policy), actors, sums, active


def _cut_at_losses(rollout: Transition, actors: HostActors) -> tuple[Transition, HostActors]:
    """The rollout with episodes truncated at the last step before the row they were lost in."""
    lost = rollout.truncated & ~rollout.mask
    before = jnp.concatenate([lost[1:], jnp.zeros_like(lost[:1])]) & rollout.mask
    # Where the first row is such a one, what the open episode had gathered is dropped.
    sums = {name: getattr(actors, name) * ~lost[0] for name in SUMS}
    truncated = rollout.truncated | (before & ~rollout.terminated)
    return rollout._replace(truncated=truncated), actors._replace(**sums)
