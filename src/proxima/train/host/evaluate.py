"""Evaluation and recording on host environments: the same episodes for every learner and policy.

per round:  reset, as many environments per trial as play side by side
            per step: act, one compiled call over all trials; step the pool
            until the first episode of every environment has ended
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.seeds import EVALUATION, evaluation_keys, host_seed
from proxima.core.spaces import ObservationSpace, Space, action_mask, zeros
from proxima.core.types import Acted, Agent, HostEnv, PyTree
from proxima.train.compiled.episodes import random_action
from proxima.train.host.act import Act, chooser
from proxima.train.program import RECORDED_STEPS, Evaluation, Policy, Recording

EVALUATION_STEPS = 100_000  # an evaluation episode longer than this is taken for endless
NOISE_ROWS = 128  # steps whose randomness an evaluation draws at once
TRIES = 3  # of a round of evaluation episodes, where processes fail
RECORDED_FRAMES = 500

MakePool = Callable[[int, bool], HostEnv]  # number of environments, with pictures?


class Start(NamedTuple):
    """How a round of episodes begins, (N, ...)."""

    seeds: list[int]
    memory: PyTree  # None without one
    alive: np.ndarray  # False: nobody asks for this episode


@final
class HostEvaluator:
    """Plays an agent's evaluation episodes, in pools that it makes when needed and then keeps."""

    def __init__(self, agent: Agent, make_pool: MakePool, width: int, experiment_seed: int):
        self._agent = agent
        self._width = width  # environments per trial that play side by side, at most
        self._make_pool = make_pool
        self._seed = experiment_seed
        self._pools: dict[int, HostEnv] = {}  # by their number of environments

    def prepare(self, learners: PyTree, episodes: int, space: ObservationSpace) -> None:
        """Compiles what a greedy evaluation needs."""
        rows = _count(learners) * _even(episodes, self._width)
        act = chooser(self._agent, self._agent.policy(learners), greedy=True)
        act(zeros(space, (rows,)), None, self._agent.memory(rows), None)

    def evaluate(
        self, learners: PyTree, policy: Policy, episodes: int, seed: int | None = None
    ) -> Evaluation:
        """Returns and lengths, (trials, episodes): in a round every environment plays one episode.

        The episodes are those of the experiment's seed, unless another is given.
        """
        seed = self._seed if seed is None else seed
        # A random policy ignores its learner: what one trial gets, all would.
        trials = 1 if policy == "random" else _count(learners)
        width = _even(episodes, self._width)
        size = trials * width
        if size not in self._pools:
            self._pools[size] = self._make_pool(size, False)
        pool = self._pools[size]
        act = _policy(self._agent, learners, policy)
        keys = evaluation_keys(jnp.uint32(seed), -(-episodes // width) * width)
        rounds = []
        for first in range(0, episodes, width):
            numbers = np.arange(first, first + width)
            noise = partial(_noise, self._agent, pool, keys[first : first + width], policy, trials)
            seeds = [_episode_seed(seed, number) for number in numbers.tolist()] * trials
            start = Start(seeds, self._agent.memory(size), np.tile(numbers < episodes, trials))
            played = _play(pool, act, noise, start)
            rounds.append([rows.reshape(trials, width) for rows in played])
        columns = (np.hstack(rows)[:, :episodes] for rows in zip(*rounds, strict=True))
        shape = (_count(learners), episodes)
        return Evaluation(*(np.broadcast_to(rows, shape) for rows in columns))

    def record(self, learner: PyTree) -> Recording:
        """The first evaluation episode, played greedily, with pictures where there are any."""
        alone = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], learner)
        act = chooser(self._agent, self._agent.policy(alone), greedy=True)
        with contextlib.closing(self._make_pool(1, True)) as pool:
            return _record(pool, act, _episode_seed(self._seed, 0), self._agent.memory(1))

    def close(self) -> None:
        """Frees the pools."""
        for pool in self._pools.values():
            pool.close()


def _episode_seed(experiment_seed: int, episode: int) -> int:
    return host_seed(experiment_seed + EVALUATION + episode, experiment_seed, 0)


def _count(learners: PyTree) -> int:
    """The trials that the learners are of."""
    return len(jax.tree.leaves(learners)[0])


def _even(episodes: int, width: int) -> int:
    """Environments per trial for an evaluation: as few rounds as allowed, evenly filled."""
    rounds = -(-episodes // width)
    return -(-episodes // rounds)


def _policy(agent: Agent, learners: PyTree, policy: Policy) -> Act:
    """How the policy acts for a whole pool."""
    if policy == "random":
        return _take_drawn
    return chooser(agent, agent.policy(learners), policy == "greedy")


def _take_drawn(obs: PyTree, drawn: np.ndarray, memory: PyTree, begins: np.ndarray | None) -> Acted:
    """The random actions of the one trial that plays: as drawn, or of the valid ones the likeliest."""
    mask = action_mask(obs)
    return Acted(drawn[0] if mask is None else np.argmax(np.where(mask, drawn[0], -1.0), axis=-1))


def _noise(
    agent: Agent, pool: HostEnv, keys: Array, policy: Policy, trials: int
) -> Iterator[PyTree]:
    """The randomness of step after step, by episode and step alone, (trials, episodes, ...)."""
    if policy == "greedy":
        yield from itertools.repeat(None)
    mask = action_mask(zeros(pool.observation_space))
    shape = None if mask is None else mask.shape

    def for_all(leaf: np.ndarray) -> np.ndarray:
        return np.broadcast_to(leaf[:, None], (len(leaf), trials, *leaf.shape[1:]))

    for block in itertools.count():
        drawn = jax.device_get(_draw(agent, pool.action_space, shape, keys, block, policy))
        rows = jax.tree.map(for_all, drawn)
        for t in range(NOISE_ROWS):
            yield jax.tree.map(itemgetter(t), rows)


@partial(jax.jit, static_argnames=("space", "masks", "policy"))
def _draw(
    agent: Agent,
    space: Space,
    masks: tuple[int, ...] | None,
    keys: Array,
    block: Array,
    policy: Policy,
) -> PyTree:
    """The randomness of NOISE_ROWS steps of each episode, (NOISE_ROWS, episodes, ...).

    A random policy gets its actions, or where there are `masks` of a shape a number for every action.
    """

    def one(key: Array) -> PyTree:
        key = jax.random.fold_in(key, block)
        if policy == "random" and masks is not None:
            return jax.random.uniform(key, (NOISE_ROWS, *masks))
        if policy == "random":
            return jax.vmap(partial(random_action, space))(jax.random.split(key, NOISE_ROWS))
        return agent.noise(None, key, (NOISE_ROWS,))

    return jax.vmap(one, out_axes=1)(keys)


def _play(
    pool: HostEnv, act: Act, noise: Callable[[], Iterator[PyTree]], start: Start
) -> tuple[np.ndarray, np.ndarray]:
    """Return and length of the first episode of every environment that is `alive`, (N,).

    A round is played anew where an episode was lost with its process: seeded, it is the same one.
    """
    for _ in range(TRIES):
        played = _play_once(pool, act, noise(), start)
        if played is not None:
            return played
    raise ProximaError(
        f"an evaluation was begun {TRIES} times, and each time a process with some of its environments "
        "failed; set env.on_worker_failure to stop to hear of the first"
    )


def _play_once(
    pool: HostEnv, act: Act, noise: Iterator[PyTree], start: Start
) -> tuple[np.ndarray, np.ndarray] | None:
    """The same of one attempt, None if an episode was lost."""
    seeds, memory, alive = start
    obs = pool.reset(seeds)
    returns, lengths = np.zeros((2, len(seeds)))
    for row in itertools.islice(noise, EVALUATION_STEPS):
        action, _, memory = act(obs, row, memory, None)
        step = pool.step(np.asarray(action))
        if (alive & ~step.mask).any():  # a next-step autoreset's fake rows come after an ending
            return None
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


def _record(pool: HostEnv, act: Act, seed: int, memory: PyTree) -> Recording:
    """One episode, with pictures for as long as the environment gives any."""
    rows: list[PyTree] = []
    frames: list[np.ndarray] = []
    obs = pool.reset([seed])
    for t in range(RECORDED_STEPS):
        frame = pool.render() if t == len(frames) < RECORDED_FRAMES else None
        if frame is not None:
            frames.append(frame)
        acted = act(obs, None, memory, None)
        memory, action = acted.memory, np.asarray(acted.action)
        step = pool.step(action)
        rows.append(jax.tree.map(itemgetter(0), (obs, action, step.reward)))
        obs = step.obs
        if step.terminated[0] or step.truncated[0]:
            break
    obs, actions, rewards = jax.tree.map(lambda *column: np.stack(column), *rows)
    return Recording(obs, actions, rewards, frames or None)
