"""Gymnasium environments in worker processes, each with a share of every group.

    send      actions into shared memory, two bytes to every worker
    receive   a byte from every worker; observations and the rest are in shared memory

A worker takes up one group's step after the other's, so it stays busy while the policy acts for a group
that it has finished. A worker that dies, raises or does not answer in time is named. Then either the run
stops, or a new process takes its place with new seeds: a row lost that way has the mask False and says
truncated, and its observation begins a new episode. What a worker does is in `worker.py`.
"""

import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.seeds import host_seed
from proxima.core.types import HostStep
from proxima.domains.control import gymnasium
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium_spaces import copied
from proxima.domains.control.own import is_own
from proxima.domains.control.worker import RESET, STEP
from proxima.domains.control.worker_memory import (
    ACTIONS,
    NEXT_OBS,
    OBS,
    REWARD,
    SEEDS,
    TERMINATED,
    TRUNCATED,
    allocate,
    arrays,
    plan,
)
from proxima.domains.control.worker_process import Worker

START_SECONDS = 60.0  # a process that starts has to import Gymnasium and make its environments
CLOSE_SECONDS = 2.0
MOST_FAILURES = (
    3  # in a row: of a worker that fails so soon after each restart, none is to be hoped for
)
STEADY = 1_000  # answers after which a worker's earlier failures are forgotten


def worker_groups(
    config: EnvConfig, num_envs: int, groups: int, say: Callable[[str], None]
) -> list["WorkerGroup"]:
    """`num_envs` environments in as many pools as there are groups, all stepped by the same workers."""
    workers = Workers(config, num_envs, groups, say)
    return [WorkerGroup(workers, group) for group in range(groups)]


@final
class WorkerGroup:
    """One group's environments as a pool of their own."""

    def __init__(self, workers: "Workers", group: int):
        self._workers = workers
        self._group = group
        self.observation_space = workers.observation_space
        self.action_space = workers.action_space
        self.num_envs = workers.share

    def reset(self, seeds: Sequence[int]) -> Any:
        """First observations of fresh episodes, environment i seeded with seeds[i]."""
        return self._workers.reset(self._group, seeds)

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of every environment."""
        self._workers.send(self._group, actions)

    def receive(self) -> HostStep:
        """The step that was started last."""
        return self._workers.receive(self._group)

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment; those that end are reset at once."""
        self.send(actions)
        return self.receive()

    def render(self) -> np.ndarray | None:
        """None: worker processes draw nothing."""
        return None

    def close(self) -> None:
        """Ends the worker processes, of all groups."""
        self._workers.close()


@final
class Workers:
    """The worker processes of a pool, and the memory it shares with them."""

    def __init__(self, config: EnvConfig, num_envs: int, groups: int, say: Callable[[str], None]):
        self.observation_space, self.action_space = gymnasium.spaces(config)
        self.share = num_envs // groups
        self._config = config
        self._total = num_envs
        self._say = say
        self._steps = 0
        self._plan, size = plan([self.share] * groups, self.observation_space, self.action_space)
        self._descriptor = allocate(size)
        self._memory = mmap.mmap(self._descriptor, size)
        self._groups = [arrays(self._memory, blocks, slice(None)) for blocks in self._plan]
        count = min(config.workers, self.share)
        bounds = [self.share * k // count for k in range(count + 1)]
        self._workers = [Worker(k, slice(bounds[k], bounds[k + 1])) for k in range(count)]
        for each in self._workers:
            self._start(each)
        self._ready = False  # they come up while the trainer compiles

    def reset(self, group: int, seeds: Sequence[int]) -> Any:
        """First observations of the group's fresh episodes."""
        if not self._ready:
            for each in self._workers:
                self._expect_start(each)
        self._ready = True
        self._steps = 0
        rows = self._groups[group]
        rows[SEEDS][...] = seeds
        for each in self._workers:
            each.order(RESET, group)
        for each in self._workers:
            told = each.answer(self._config.worker_timeout)
            if told is not None:
                self._replace(each, told)
                rows[SEEDS][each.rows] = np.asarray(seeds)[each.rows]
                each.order(RESET, group)
                self._expect(each, self._config.worker_timeout)
            each.fresh.discard(group)
        return copied(rows[OBS])

    def send(self, group: int, actions: np.ndarray) -> None:
        """Starts a step of the group."""
        self._groups[group][ACTIONS][...] = actions
        for each in self._workers:
            if group not in each.fresh:
                each.order(STEP, group)

    def receive(self, group: int) -> HostStep:
        """The step of the group that was started last."""
        self._steps += 1
        lost = []
        for each in self._workers:
            if group not in each.fresh:
                told = each.answer(self._config.worker_timeout)
                if told is not None:
                    self._replace(each, told)
            if group in each.fresh:
                each.fresh.discard(group)
                lost.append(each.rows)
        rows = self._groups[group]
        mask = np.ones(self.share, bool)
        for place in lost:
            _lose(rows, place)
            mask[place] = False
        return HostStep(
            copied(rows[OBS]),
            rows[REWARD].copy(),
            rows[TERMINATED].copy(),
            rows[TRUNCATED].copy(),
            copied(rows[NEXT_OBS]),
            mask,
        )

    def close(self) -> None:
        """Ends the processes; a second call does nothing."""
        for each in self._workers:
            each.hang_up()
        for each in self._workers:
            each.end(CLOSE_SECONDS)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _start(self, each: Worker) -> None:
        each.start(
            self._descriptor,
            {
                "config": {
                    "name": self._config.name,
                    "backend": self._config.backend,
                    "params": dict(self._config.params),
                    "max_steps_per_episode": self._config.max_steps_per_episode,
                },
                "module": None if is_own(self._config) else gymnasium.module_of(self._config.name),
                "total": self._total,
                "groups": [
                    {
                        "rows": [each.rows.start, each.rows.stop],
                        "first": group * self.share,
                        "blocks": blocks,
                    }
                    for group, blocks in enumerate(self._plan)
                ],
            },
        )

    def _expect_start(self, each: Worker) -> None:
        self._expect(each, max(START_SECONDS, self._config.worker_timeout))

    def _expect(self, each: Worker, seconds: float) -> None:
        """Waits for an answer without which there is no going on."""
        told = each.answer(seconds)
        if told is not None:
            self.close()
            raise ProximaError(self._named(each, told))

    def _replace(self, each: Worker, told: str) -> None:
        """A new process for a worker that failed, all its environments reset; or the end of the run."""
        words = self._named(each, told)
        each.end(0.0)
        each.failures = each.failures + 1 if each.answers < STEADY else 1
        if self._config.on_worker_failure == "stop":
            self.close()
            raise ProximaError(f"{words}; with env.on_worker_failure=restart the run would go on")
        if each.failures > MOST_FAILURES:
            self.close()
            raise ProximaError(f"{words}; it was started again {MOST_FAILURES} times already")
        self._start(each)
        self._expect_start(each)
        for group, rows in enumerate(self._groups):
            seeds = rows[SEEDS][each.rows]
            seeds[...] = [host_seed(int(seed), self._steps, each.failures) for seed in seeds]
            each.order(RESET, group)
            self._expect(each, self._config.worker_timeout)
            each.fresh.add(group)
        self._say(f"{words}; they were started again, and their open episodes count as truncated")

    def _named(self, each: Worker, told: str) -> str:
        spans = [
            f"{group * self.share + each.rows.start} to {group * self.share + each.rows.stop - 1}"
            for group in range(len(self._groups))
        ]
        return (
            f"{self._config.name}: worker {each.number} of {len(self._workers)} (process {each.pid}; "
            f"environments {' and '.join(spans)} of {self._total}) {told} at step {self._steps} after "
            "the pool's reset"
        )


def _lose(rows: dict[str, Any], place: slice) -> None:
    """Makes rows of a group those of a step that was never done."""
    rows[REWARD][place] = 0.0
    rows[TERMINATED][place] = False
    rows[TRUNCATED][place] = True
    obs, next_obs = rows[OBS], rows[NEXT_OBS]
    if isinstance(obs, dict):
        for name, array in obs.items():
            next_obs[name][place] = array[place]
    else:
        next_obs[place] = obs[place]
