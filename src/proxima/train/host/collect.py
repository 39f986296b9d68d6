"""Rollouts from host environments: the policy acts for one group while the others step.

    per time step, group after group:  receive what its last actions led to
                                       act, one compiled call over all trials; send the actions
    after the last one:                receive what is still out

The order is fixed, so the same seeds give the same rollout, however quick a group is. With one group
nothing overlaps: acting and stepping take turns. A group holds the same share of every trial's
environments; its rows are (trials × B / groups, ...), trial by trial.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import final

import jax
import numpy as np

from proxima.core.spaces import zeros
from proxima.core.types import Agent, HostEnv, PyTree, Transition
from proxima.train.host.act import Act


@final
class HostCollector:
    """The training environments of all trials, in groups, and the arrays that rollouts are written to."""

    def __init__(
        self, agent: Agent, pools: Sequence[HostEnv], trials: int, steps: int, kept: int = 1
    ):
        self.observation_space = pools[0].observation_space
        self._agent = agent
        self._pools = list(pools)
        self._trials = trials
        self._steps = steps
        self._share = pools[0].num_envs // trials  # environments of a trial in a group
        self._obs: list[PyTree] = []  # by group
        # By group, what the agent remembers and which rows begin an episode; None without a memory.
        self._memory: list[PyTree] = []
        self._begins: list[np.ndarray | None] = []
        shape = steps, trials, len(pools), self._share
        # As many rollouts are kept as may be read or written at one time.
        self._buffers = itertools.cycle([(_Stores(shape), _Stores(shape)) for _ in range(kept)])
        self._chosen: _Stores  # obs, action, aux: known before the step
        self._given: _Stores  # what the environments answer

    def reset(self, seeds: np.ndarray) -> None:
        """Starts every environment afresh; seeds are (trials, B)."""
        self._obs = [
            pool.reset(seeds[:, self._members(group)].ravel().tolist())
            for group, pool in enumerate(self._pools)
        ]
        self._memory = [self._agent.memory(pool.num_envs) for pool in self._pools]
        self._begins = [
            None if memory is None else np.ones(pool.num_envs, bool)
            for memory, pool in zip(self._memory, self._pools, strict=True)
        ]

    def collect(self, explore: Act, noise: PyTree) -> tuple[Transition, float]:
        """A rollout (T, trials × B, ...) and the seconds the environments took.

        The next rollout overwrites it, or with two that are kept the one after the next.
        """
        spent = 0.0
        self._chosen, self._given = next(self._buffers)
        noises = [self._noise_of(group, noise) for group in range(len(self._pools))]
        for t in range(self._steps):
            for group, pool in enumerate(self._pools):
                if t > 0:
                    spent += self._receive(group, t - 1)
                obs = self._obs[group]
                remembered = self._memory[group], self._begins[group]
                acted = explore(obs, next(noises[group]), *remembered)
                self._memory[group] = acted.memory
                # device_get costs more than the nets
                action, aux = jax.tree.map(np.asarray, acted[:2])
                start = time.perf_counter()
                pool.send(action)
                spent += time.perf_counter() - start
                self._chosen.write(group, t, (obs, action, aux))
        for group in range(len(self._pools)):
            spent += self._receive(group, self._steps - 1)
        return self._rollout(), spent

    def example(self, explore: Act, noise: PyTree) -> Transition:
        """A rollout of nothing in particular, shaped like any other, to compile with."""
        rows = self._trials * self._share
        obs = zeros(self.observation_space, (rows,))
        memory = self._agent.memory(rows)
        begins = None if memory is None else np.ones(rows, bool)
        acted = explore(obs, next(self._noise_of(0, noise)), memory, begins)
        action, aux = jax.tree.map(np.asarray, acted[:2])
        number, flag = np.zeros(rows, np.float32), np.zeros(rows, bool)
        self._chosen, self._given = next(self._buffers)
        self._chosen.write(0, 0, (obs, action, aux))
        self._given.write(0, 0, (number, flag, flag, obs, flag))
        return self._rollout()

    def close(self) -> None:
        """Frees the environments."""
        for pool in self._pools:
            pool.close()

    def _receive(self, group: int, t: int) -> float:
        """Takes the group's step number t; the seconds it took."""
        start = time.perf_counter()
        self._obs[group], *given = self._pools[group].receive()
        seconds = time.perf_counter() - start
        if self._begins[group] is not None:
            _, terminated, truncated, _, mask = given
            self._begins[group] = terminated | truncated | ~mask
        self._given.write(group, t, given)
        return seconds

    def _noise_of(self, group: int, noise: PyTree) -> Iterator[PyTree]:
        """The group's part of a rollout's noise (T, trials, B, ...), step by step."""
        members = self._members(group)
        part = jax.tree.map(lambda leaf: leaf[:, :, members], noise)
        return (jax.tree.map(itemgetter(t), part) for t in range(self._steps))

    def _members(self, group: int) -> slice:
        """A group's environments among those of a trial."""
        return slice(group * self._share, (group + 1) * self._share)

    def _rollout(self) -> Transition:
        obs, action, aux = self._chosen.tree()
        reward, terminated, truncated, next_obs, mask = self._given.tree()
        return Transition(obs, action, reward, next_obs, terminated, truncated, mask, aux)


@final
class _Stores:
    """Arrays for some fields of all rows of a rollout, made when the first row shows their shapes."""

    def __init__(self, shape: tuple[int, int, int, int]):
        self._shape = shape  # steps, trials, groups, environments of a trial in a group
        self._structure: jax.tree_util.PyTreeDef
        self._stores: list[np.ndarray] = []
        self._views: list[list[np.ndarray]] = []  # each group's part of the stores

    def write(self, group: int, t: int, row: PyTree) -> None:
        """One time step of a group, (trials × share, ...)."""
        if not self._stores:
            self._make(row)
        for view, leaf in zip(self._views[group], jax.tree.leaves(row), strict=True):
            view[t] = leaf if view.ndim == leaf.ndim + 1 else leaf.reshape(view.shape[1:])

    def tree(self) -> PyTree:
        """All rows, (T, trials × B, ...), structured as one is."""
        return jax.tree.unflatten(self._structure, self._stores)

    def _make(self, row: PyTree) -> None:
        steps, trials, groups, share = self._shape
        leaves, self._structure = jax.tree.flatten(row)
        rows = trials * groups * share
        self._stores = [np.empty((steps, rows, *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
        self._views = [
            [self._part(store, group) for store in self._stores] for group in range(groups)
        ]

    def _part(self, store: np.ndarray, group: int) -> np.ndarray:
        """A group's rows, (T, rows, ...) where they lie side by side, else (T, trials, share, ...)."""
        _, trials, groups, share = self._shape
        if groups == 1:
            return store
        if trials == 1:
            return store[:, group * share : (group + 1) * share]
        return store.reshape(*self._shape, *store.shape[2:])[:, :, group]
