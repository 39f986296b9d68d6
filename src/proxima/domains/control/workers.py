"""Gymnasium environments in worker processes, each with a share of every group.

    send      actions into shared memory, two bytes to every worker
    receive   a byte from every worker; observations and the rest are in shared memory

A worker takes up one group's step after the other's, so it stays busy while the policy acts for a group
that it has finished. A worker that dies, raises or does not answer in time is named. Then either the run
stops, or a new process takes its place with new seeds: a row lost that way has the mask False and says
truncated, and its observation begins a new episode. What a worker does is in `worker.py`.
"""

import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.seeds import host_seed
from proxima.core.types import HostStep
from proxima.domains.control import gymnasium, worker
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium_spaces import by_field
from proxima.domains.control.worker import RESET, STEP

START_SECONDS = 60.0  # a process that starts has to import Gymnasium and make its environments
CLOSE_SECONDS = 2.0  # between the end of a connection and the end of its process
MOST_FAILURES = 3  # in a row: a worker that fails so soon after each restart will fail again
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
        self._rows = workers.groups[group]
        self.observation_space = workers.observation_space
        self.action_space = workers.action_space
        self.num_envs = workers.share

    def reset(self, seeds: Sequence[int]) -> Any:
        """First observations of fresh episodes, environment i seeded with seeds[i]."""
        self._workers.await_start()
        self._workers.steps = 0
        self._rows.seeds[...] = seeds
        for process in self._workers.processes:
            process.order(RESET, self._group)
        for process in self._workers.processes:
            if not self._workers.has_answered(process):
                self._rows.seeds[process.rows] = np.asarray(seeds)[process.rows]
                self._workers.reset(process, self._group)
            process.fresh.discard(self._group)
        return by_field(np.array, self._rows.step.obs)

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of every environment."""
        self._rows.actions[...] = actions
        for process in self._workers.processes:
            if self._group not in process.fresh:
                process.order(STEP, self._group)

    def receive(self) -> HostStep:
        """The step that was started last."""
        self._workers.steps += 1
        for process in self._workers.processes:
            if self._group not in process.fresh:
                self._workers.has_answered(process)
        for process in self._workers.processes:
            if self._group in process.fresh:
                process.fresh.discard(self._group)
                self._lose(process.rows)
        return HostStep(*(by_field(np.array, part) for part in self._rows.step))

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

    def _lose(self, rows: slice) -> None:
        """Makes the rows those of a step that was never done."""
        step = self._rows.step
        step.reward[rows] = 0.0
        step.terminated[rows] = step.mask[rows] = False
        step.truncated[rows] = True
        by_field(lambda after, obs: np.copyto(after[rows], obs[rows]), step.next_obs, step.obs)


@final
class Workers:
    """The worker processes of a pool, and the memory it shares with them."""

    def __init__(self, config: EnvConfig, num_envs: int, groups: int, say: Callable[[str], None]):
        self.observation_space, self.action_space = gymnasium.spaces(config)
        self.share = num_envs // groups
        self.steps = 0
        self._config = config
        self._total = num_envs
        self._say = say
        kind = worker.row_type(self.observation_space, self.action_space)
        self._descriptor = worker.allocate(num_envs * kind.itemsize)
        memory = mmap.mmap(self._descriptor, num_envs * kind.itemsize)
        shared = np.ndarray((groups, self.share), kind, memory)
        self.groups = [worker.rows_of(rows) for rows in shared]
        count = min(config.workers, self.share)
        bounds = [self.share * k // count for k in range(count + 1)]
        self.processes = [Worker(k, slice(bounds[k], bounds[k + 1])) for k in range(count)]
        for process in self.processes:
            self._start(process)
        self._is_ready = False  # they come up while the trainer compiles

    def await_start(self) -> None:
        """Waits until all environments are made."""
        if not self._is_ready:
            for process in self.processes:
                self._expect(process, START_SECONDS)
        self._is_ready = True

    def has_answered(self, process: "Worker") -> bool:
        """Waits for the process; False if it failed and another, all its environments reset, replaces it."""
        problem = process.answer(self._config.worker_timeout)
        if problem is None:
            return True
        message = self._described(process, problem)
        process.end(0.0)
        process.failures = process.failures + 1 if process.answers < STEADY else 1
        if self._config.on_worker_failure == "stop":
            self.close()
            raise ProximaError(f"{message}; with env.on_worker_failure=restart the run would go on")
        if process.failures > MOST_FAILURES:
            self.close()
            raise ProximaError(f"{message}; it was started again {MOST_FAILURES} times already")
        self._start(process)
        self._expect(process, START_SECONDS)
        for group, rows in enumerate(self.groups):
            seeds = rows.seeds[process.rows]
            seeds[...] = [host_seed(int(seed), self.steps, process.failures) for seed in seeds]
            self.reset(process, group)
            process.fresh.add(group)
        self._say(f"{message}; they were started again, and their open episodes count as truncated")
        return False

    def reset(self, process: "Worker", group: int) -> None:
        """Resets the environments of a process, which must not fail again."""
        process.order(RESET, group)
        self._expect(process)

    def close(self) -> None:
        """Ends the processes; a second call does nothing."""
        for process in self.processes:
            process.hang_up()
        for process in self.processes:
            process.end(CLOSE_SECONDS)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _start(self, process: "Worker") -> None:
        config = self._config
        orders = {
            "config": asdict(config),
            "module": None if config.is_own else gymnasium.module_of(config.name),
            "total": self._total,
            "share": self.share,
            "rows": [process.rows.start, process.rows.stop],
            "groups": len(self.groups),
        }
        process.start(self._descriptor, orders)

    def _expect(self, process: "Worker", least: float = 0.0) -> None:
        """Waits, at least so many seconds, for an answer without which there is no going on."""
        problem = process.answer(max(least, self._config.worker_timeout))
        if problem is not None:
            self.close()
            raise ProximaError(self._described(process, problem))

    def _described(self, process: "Worker", problem: str) -> str:
        starts = range(0, self._total, self.share)
        spans = [f"{k + process.rows.start} to {k + process.rows.stop - 1}" for k in starts]
        return (
            f"{self._config.name}: worker {process.number} of {len(self.processes)} (process "
            f"{process.pid}; environments {' and '.join(spans)} of {self._total}) {problem} at step "
            f"{self.steps} after the pool's reset"
        )


@final
class Worker:
    """One worker process, and what its pool has to remember of it."""

    def __init__(self, number: int, rows: slice):
        self.number = number
        self.rows = rows  # of every group
        self.fresh: set[int] = set()  # groups whose observations are of a reset nobody asked for
        self.failures = 0
        self.answers = 0  # since it was started
        self._process: subprocess.Popen | None = None
        self._connection: socket.socket

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self, memory: int, orders: dict[str, Any]) -> None:
        """Starts the process; its first answer says that the environments are made."""
        self._connection, theirs = socket.socketpair()
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", worker.__name__, str(theirs.fileno()), str(memory)],
                env={"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=2,  # what an environment prints is no result of ours
                pass_fds=(theirs.fileno(), memory),
            )
        self.answers = 0
        self._send(json.dumps(orders).encode() + b"\n")

    def order(self, what: bytes, group: int) -> None:
        """Tells the process what to do."""
        self._send(what + bytes([group]))

    def answer(self, seconds: float) -> str | None:
        """Waits for the process; None if it has done what it was told, else in words what happened."""
        self._connection.settimeout(seconds)
        try:
            reply = self._connection.recv(1)
            if reply == worker.DONE:
                self.answers += 1
                return None
            if reply == worker.FAILED:
                with self._connection.makefile("rb") as rest:
                    return f"failed: {json.loads(rest.readline())}"
        except TimeoutError:
            return f"has not answered for {seconds:g} seconds (env.worker_timeout)"
        except (ConnectionError, ValueError):
            pass
        assert self._process is not None
        try:
            code = self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name} (exit code {code})"
        return f"ended by itself (exit code {code})"

    def hang_up(self) -> None:
        """Lets the process end by itself."""
        if self._process is not None:
            self._connection.close()

    def end(self, seconds: float) -> None:
        """Ends the process, by force after so many seconds."""
        if self._process is None:
            return
        self._connection.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _send(self, message: bytes) -> None:
        try:
            self._connection.sendall(message)
        except OSError:
            return  # it has died: the answer that does not come says so
