"""A Program over host environments: the same agents, with the environments stepped in Python.

    per update:  the noise of a whole rollout, one compiled call
                 per step: explore, one compiled call over all trials; step the pool
                 learn, one compiled call over all trials

One pool holds the environments of all trials. Its state cannot be saved, so the training loop
re-seeds it at checkpoints: whether a run goes on or is restored there, it sees the same episodes.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import NamedTuple, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.seeds import EVALUATION, FIRST_RESET, evaluation_keys, first_keys, host_seed
from proxima.core.spaces import Discrete, Space
from proxima.core.trees import select
from proxima.core.types import Agent, HostEnv, PyTree, Streams, TrainState, Transition, View
from proxima.train.chunk import all_finite, over_trials, split_streams
from proxima.train.collect import finished_episodes
from proxima.train.compiled import random_action
from proxima.train.program import Evaluation, Policy, Program, Recording

EVALUATION_WIDTH = 16  # environments per trial that evaluate side by side, at most
EVALUATION_STEPS = 100_000  # an evaluation episode longer than this is taken for endless
NOISE_ROWS = 128  # steps whose randomness an evaluation draws at once
RECORDED_STEPS = 2_000
RECORDED_FRAMES = 500


class HostActors(NamedTuple):
    """What can be saved of a trial's environments: their seeds, and the open episodes' sums."""

    trial_seed: Array  # uint32 scalar
    generation: Array  # how often the environments were re-seeded, int32 scalar
    steps: Array  # since then, of each environment, int32 scalar
    episode_return: Array  # (B,)
    episode_length: Array  # (B,)


class Pool(HostEnv, Protocol):
    """Host environments that may show a picture of the first one."""

    def render(self) -> np.ndarray | None: ...


MakePool = Callable[[int, bool], Pool]  # number of environments, with pictures?


def host_program(
    agent: Agent, make_pool: MakePool, trials: int, num_envs: int, steps: int, experiment_seed: int
) -> Program:
    """The Program of an agent on host environments, `num_envs` for each trial."""
    training = Training(make_pool(trials * num_envs, False), num_envs, steps)
    evaluation_pools: dict[int, Pool] = {}

    def init(seeds: list[int]) -> TrainState:
        return _init(agent, jnp.asarray(seeds, jnp.uint32), num_envs)

    def chunk(states: TrainState, active: np.ndarray, updates: int):
        return training.run(agent, states, np.asarray(active, bool), updates)

    def prepare(states: TrainState, episodes: int) -> TrainState:
        learners = jax.tree.map(jnp.copy, states.learner)  # the update gives its own up
        states = training.prepare(agent, states)
        count = jax.tree.leaves(learners)[0].shape[0]
        obs = _zeros(training.pool, count * _width(episodes))
        _policy(agent, learners, "greedy", count)(obs, None)
        return states

    def evaluate(learners: PyTree, policy: Policy, episodes: int) -> Evaluation:
        width = _width(episodes)
        count = jax.tree.leaves(learners)[0].shape[0]
        # A random policy ignores its learner: what one trial gets, all would.
        size = width if policy == "random" else count * width
        if size not in evaluation_pools:
            evaluation_pools[size] = make_pool(size, False)
        results = _evaluate(
            agent, evaluation_pools[size], learners, policy, (experiment_seed, episodes, width)
        )
        return Evaluation(*(np.broadcast_to(rows, (count, episodes)) for rows in results))

    def record(learner: PyTree) -> Recording:
        pool = make_pool(1, True)
        try:
            return _record(agent, pool, learner, _evaluation_seed(experiment_seed, 0))
        finally:
            pool.close()

    def close() -> None:
        for pool in (training.pool, *evaluation_pools.values()):
            pool.close()

    return Program(
        init=init,
        place=jax.device_put,
        prepare=prepare,
        chunk=chunk,
        evaluate=evaluate,
        record=record,
        reseed=_reseed,
        exact_anywhere=False,
        steps_per_update=num_envs * steps,
        close=close,
    )


@final
class Training:
    """The training environments of all trials, and where they stand: what cannot be saved."""

    def __init__(self, pool: Pool, num_envs: int, steps: int):
        self.pool = pool
        self._shape = (steps, num_envs)
        self._generation: np.ndarray | None = None  # (trials,), None before the first reset
        self._steps = 0
        self._obs: np.ndarray
        self._stores: list[np.ndarray] = []  # the arrays that every rollout is written into

    def run(
        self, agent: Agent, states: TrainState, active: np.ndarray, updates: int
    ) -> tuple[TrainState, dict[str, np.ndarray]]:
        """The states after some updates, and the sums of their metrics per trial."""
        self._follow(jax.device_get(states.actors), active)
        before = _copy(states)
        learner, actors, key = states
        going: Array = jnp.asarray(active)  # a trial that broke down acts on with its last good net
        metrics, seconds = [], np.zeros(3)
        for _ in range(updates):
            begun = time.perf_counter()
            key, shuffle, noise = _begin(agent, key, active, self._shape)
            explore = _acting(_explorer, agent, learner, len(active))
            rollout, stepping = self._collect(explore, jax.device_get(noise))
            collected = time.perf_counter()
            learner, actors, sums, going = _update(agent, learner, actors, rollout, shuffle, going)
            metrics.append(sums)
            # The next rollout overwrites the arrays that this update reads.
            jax.block_until_ready(learner)
            learnt = time.perf_counter()
            seconds += stepping, collected - begun - stepping, learnt - collected
        states = TrainState(learner, actors, key)
        rows, going = jax.device_get((metrics, going))
        if not going[active].all():
            states = _select(going, states, before)
        totals = {name: np.sum([row[name] for row in rows], axis=0) for name in rows[0]}
        names = ("time/env", "time/act", "time/learn")
        times = {
            name: np.full(len(active), spent) for name, spent in zip(names, seconds, strict=True)
        }
        return states, totals | times

    def prepare(self, agent: Agent, states: TrainState) -> TrainState:
        """The states as they were, everything compiled that a chunk needs."""
        none = np.zeros(len(states.actors.steps), bool)
        obs = _zeros(self.pool, self.pool.num_envs)
        _, shuffle, noise = _begin(agent, states.key, none, self._shape)
        explore = _acting(_explorer, agent, states.learner, len(none))
        action, aux = jax.device_get(
            explore(obs, jax.tree.map(itemgetter(0), jax.device_get(noise)))
        )
        number, flag = np.zeros(len(obs), np.float32), np.zeros(len(obs), bool)
        row = (obs, action, number, obs, flag, flag, flag, aux)
        self._write(0, row)
        learner, actors, _, _ = _update(
            agent, states.learner, states.actors, self._rollout(row), shuffle, jnp.asarray(none)
        )
        return states._replace(learner=learner, actors=actors)

    def _follow(self, actors: HostActors, active: np.ndarray) -> None:
        """Resets every environment, unless the pool stands where the active trials left it."""
        same = (
            self._generation is not None
            and np.array_equal(actors.generation[active], self._generation[active])
            and np.all(actors.steps[active] == self._steps)
        )
        if same:
            return
        self._generation = np.asarray(actors.generation)
        self._steps = 0
        self._obs = self.pool.reset(
            [
                _training_seed(int(trial_seed), int(generation), index)
                for trial_seed, generation in zip(actors.trial_seed, actors.generation, strict=True)
                for index in range(self._shape[1])
            ]
        )

    def _collect(self, explore: Callable, noise: PyTree) -> tuple[Transition, float]:
        """A rollout (T, trials × B, ...), and the seconds spent in the environments."""
        stepping = 0.0
        for t in range(self._shape[0]):
            obs = self._obs
            chosen = explore(obs, jax.tree.map(itemgetter(t), noise))
            action, aux = jax.tree.map(np.asarray, chosen)  # device_get costs more than the nets
            start = time.perf_counter()
            self._obs, reward, terminated, truncated, next_obs, mask = self.pool.step(action)
            stepping += time.perf_counter() - start
            row = (obs, action, reward, next_obs, terminated, truncated, mask, aux)
            self._write(t, row)
        self._steps += self._shape[0]
        return self._rollout(row), stepping

    def _write(self, t: int, row: tuple) -> None:
        """One time step into the stores, in the order of a Transition's fields."""
        leaves = jax.tree.leaves(row)
        if not self._stores:
            steps = self._shape[0]
            self._stores = [np.empty((steps, *leaf.shape), leaf.dtype) for leaf in leaves]
        for store, leaf in zip(self._stores, leaves, strict=True):
            store[t] = leaf

    def _rollout(self, row: tuple) -> Transition:
        """What the stores hold, structured as the rows are."""
        return Transition(*jax.tree.unflatten(jax.tree.structure(row), self._stores))


def _zeros(pool: Pool, count: int) -> np.ndarray:
    """Observations to compile with."""
    space = pool.observation_space
    dtype = "int32" if isinstance(space, Discrete) else space.dtype
    return np.zeros((count, *space.shape), dtype)


def _width(episodes: int) -> int:
    """Environments per trial for an evaluation: as few rounds as allowed, evenly filled."""
    rounds = -(-episodes // EVALUATION_WIDTH)
    return -(-episodes // rounds)


def _training_seed(trial_seed: int, generation: int, index: int) -> int:
    first = trial_seed + index + (FIRST_RESET if generation == 0 else 0)
    return host_seed(first, trial_seed, generation)


def _evaluation_seed(experiment_seed: int, episode: int) -> int:
    return host_seed(experiment_seed + EVALUATION + episode, experiment_seed, 0)


@partial(jax.jit, static_argnames="num_envs")
def _init(agent: Agent, seeds: Array, num_envs: int) -> TrainState:
    def one(seed: Array) -> TrainState:
        keys = first_keys(seed, num_envs)
        none, zeros = jnp.zeros((), jnp.int32), jnp.zeros(num_envs)
        actors = HostActors(seed, none, none, zeros, zeros)
        return TrainState(agent.init(keys.weights), actors, keys.streams)

    return jax.vmap(one)(seeds)


def _reseed(states: TrainState) -> TrainState:
    """The same states with new episodes to come; what the open ones had gathered is dropped."""
    actors = states.actors
    return states._replace(
        actors=HostActors(
            trial_seed=actors.trial_seed,
            generation=actors.generation + 1,
            steps=jnp.zeros_like(actors.steps),
            episode_return=jnp.zeros_like(actors.episode_return),
            episode_length=jnp.zeros_like(actors.episode_length),
        )
    )


@partial(jax.jit, static_argnames="shape")
def _begin(
    agent: Agent, key: Streams, active: Array, shape: tuple[int, int]
) -> tuple[Streams, Array, PyTree]:
    """Streams to go on with, a shuffle key per trial, and a rollout's noise (T, trials, B, ...)."""

    def one(key: Streams) -> tuple[Streams, Array, PyTree]:
        key, use = split_streams(key)
        return key, use.shuffle, agent.noise(use.act, shape)

    after, shuffle, noise = over_trials(one, key)
    return (
        select(active, after, key),
        shuffle,
        jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), noise),
    )


def _acting(make: Callable, agent: Agent, learners: PyTree, trials: int) -> Callable:
    """`make`'s compiled function with the agent and what acting needs of the learners filled in."""
    leaves, structure = jax.tree.flatten((agent, agent.policy(learners)))
    return partial(make(structure, trials), leaves)


@functools.cache
def _explorer(structure, trials: int) -> Callable:
    """The compiled function (leaves of agent and policy, obs, noise) → actions and aux, (N, ...).

    It takes leaves because flattening modules in Python at every step costs more than the nets do.
    """

    @jax.jit
    def explore(leaves: list[Array], obs: Array, noise: PyTree) -> PyTree:
        agent, learner = jax.tree.unflatten(structure, leaves)
        rows = (learner, _by_trial(obs, trials), noise)
        chosen = over_trials(lambda row: agent.explore(row[0], View(row[1]), row[2]), rows)
        return jax.tree.map(_together, chosen)

    return explore


@functools.cache
def _exploiter(structure, trials: int) -> Callable:
    """The compiled function (leaves of agent and policy, obs) → actions, (N, ...)."""

    @jax.jit
    def exploit(leaves: list[Array], obs: Array) -> PyTree:
        agent, learner = jax.tree.unflatten(structure, leaves)
        rows = (learner, _by_trial(obs, trials))
        return _together(over_trials(lambda row: agent.exploit(row[0], View(row[1])), rows))

    return exploit


def _by_trial(rows: Array, trials: int) -> Array:
    return rows.reshape(trials, -1, *rows.shape[1:])


def _together(rows: Array) -> Array:
    return rows.reshape(-1, *rows.shape[2:])


@jax.jit
def _copy(states: TrainState) -> TrainState:
    return jax.tree.map(jnp.copy, states)


_select = jax.jit(select)


@partial(jax.jit, donate_argnums=1)
def _update(
    agent: Agent,
    learner: PyTree,
    actors: HostActors,
    rollout: Transition,
    shuffle: Array,
    active: Array,
) -> tuple[PyTree, HostActors, dict[str, Array], Array]:
    """All trials learn from their part of the rollout; also which ones still may.

    Trials that are not active, or whose loss or gradient is not finite, come back as they were.
    """
    steps = rollout.reward.shape[0]

    def one(trial):
        learner, actors, rollout, key = trial
        learner, metrics = agent.update(learner, rollout, key)
        open_return, open_length, episodes = finished_episodes(
            rollout, actors.episode_return, actors.episode_length
        )
        actors = actors._replace(
            steps=actors.steps + steps, episode_return=open_return, episode_length=open_length
        )
        return (learner, actors), metrics | episodes

    by_trial = jax.tree.map(
        lambda leaf: leaf.reshape(steps, len(active), -1, *leaf.shape[2:]).swapaxes(0, 1), rollout
    )
    after, sums = over_trials(one, (learner, actors, by_trial, shuffle))
    active = active & all_finite(sums)
    return *select(active, after, (learner, actors)), sums, active


def _evaluate(
    agent: Agent, pool: Pool, learners: PyTree, policy: Policy, plan: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths, (trials, episodes): in a round every environment plays one episode."""
    experiment_seed, episodes, width = plan
    trials = pool.num_envs // width
    keys = evaluation_keys(jnp.uint32(experiment_seed), -(-episodes // width) * width)
    act = _policy(agent, learners, policy, trials)
    rounds = []
    for first in range(0, episodes, width):
        seeds = [_evaluation_seed(experiment_seed, first + j) for j in range(width)]
        wanted = np.tile(np.arange(first, first + width) < episodes, trials)
        noise = _noise(agent, pool.action_space, keys[first : first + width], policy, trials)
        played = _play(pool, act, noise, seeds * trials, wanted)
        rounds.append([rows.reshape(trials, width) for rows in played])
    returns, lengths = zip(*rounds, strict=True)
    return np.hstack(returns)[:, :episodes], np.hstack(lengths)[:, :episodes]


def _play(
    pool: Pool, act: Callable, noise: Iterator[PyTree], seeds: list[int], alive: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return and length of the first episode of every environment that is `alive`, (N,)."""
    obs = pool.reset(seeds)
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds))
    for row in itertools.islice(noise, EVALUATION_STEPS):
        step = pool.step(np.asarray(act(obs, row)))
        returns += np.where(alive, step.reward, 0.0)
        lengths += alive
        alive = alive & ~(step.terminated | step.truncated)
        obs = step.obs
        if not alive.any():
            return returns.astype(np.float32), lengths.astype(np.float32)
    raise ProximaError(
        f"an evaluation episode did not end within {EVALUATION_STEPS:,} steps; "
        "set a limit with env.max_steps_per_episode"
    )


def _policy(agent: Agent, learners: PyTree, policy: Policy, trials: int) -> Callable:
    """The function (obs, noise) → actions of a whole pool."""
    if policy == "random":
        return lambda obs, noise: noise
    if policy == "greedy":
        exploit = _acting(_exploiter, agent, learners, trials)
        return lambda obs, noise: exploit(obs)
    explore = _acting(_explorer, agent, learners, trials)
    return lambda obs, noise: explore(obs, noise)[0]


def _noise(
    agent: Agent, space: Space, keys: Array, policy: Policy, trials: int
) -> Iterator[PyTree]:
    """The randomness of one step after the other; it depends on the episode and the step alone."""
    if policy == "greedy":
        yield from itertools.repeat(None)
    for block in itertools.count():
        rows = jax.device_get(_draw(agent, space, keys, block, policy))
        for t in range(NOISE_ROWS):
            row = jax.tree.map(itemgetter(t), rows)
            if policy == "random":
                yield row
            else:
                yield jax.tree.map(lambda leaf: np.broadcast_to(leaf, (trials, *leaf.shape)), row)


@partial(jax.jit, static_argnames=("space", "policy"))
def _draw(agent: Agent, space: Space, keys: Array, block: Array, policy: Policy) -> PyTree:
    """The randomness of NOISE_ROWS steps of each episode, (NOISE_ROWS, episodes, ...)."""

    def one(key: Array) -> PyTree:
        key = jax.random.fold_in(key, block)
        if policy == "random":
            return jax.vmap(partial(random_action, space))(jax.random.split(key, NOISE_ROWS))
        return agent.noise(key, (NOISE_ROWS,))

    return jax.vmap(one, out_axes=1)(keys)


def _record(agent: Agent, pool: Pool, learner: PyTree, seed: int) -> Recording:
    """One greedy episode, with pictures for as long as the environment gives any."""
    alone = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], learner)
    exploit = _acting(_exploiter, agent, alone, 1)
    rows: list[tuple] = []
    frames: list[np.ndarray] = []
    obs = pool.reset([seed])
    for t in range(RECORDED_STEPS):
        frame = pool.render() if t == len(frames) < RECORDED_FRAMES else None
        if frame is not None:
            frames.append(frame)
        action = np.asarray(exploit(obs))
        step = pool.step(action)
        rows.append((obs[0], action[0], step.reward[0]))
        obs = step.obs
        if step.terminated[0] or step.truncated[0]:
            break
    obs, actions, rewards = (np.stack(column) for column in zip(*rows, strict=True))
    return Recording(obs, actions, rewards, frames or None)
