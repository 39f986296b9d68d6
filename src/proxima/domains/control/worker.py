"""A worker process: steps its share of a pool's environments when told to.

    python -m proxima.domains.control.worker <socket> <memory>    two descriptors it was started with

First comes a line of JSON: which environment, and which rows of which arrays are this worker's. Then
two bytes at a time: reset or step, and the group. Each is answered by a byte; observations, actions and
the rest lie in the shared memory. After an error the words follow, and the worker ends. It also ends when
the trainer does: its side of the socket closes. JAX is never imported here.

The memory is a file without a name, handed on by its descriptor: when the last process that has it open
ends, killed or not, nothing of it is left.
"""

import contextlib
import importlib
import json
import mmap
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.spaces import Fields, ObservationSpace, Space
from proxima.core.types import HostStep
from proxima.domains.control.config import config_from
from proxima.domains.control.gymnasium import make_env
from proxima.domains.control.gymnasium_pools import GymnasiumPool
from proxima.domains.control.gymnasium_spaces import by_field

RESET, STEP = b"r", b"s"
DONE, FAILED = b".", b"!"
PARENT_SECONDS = 2.0  # between two looks whether the trainer still runs


class Rows(NamedTuple):
    """Environments of a group in the shared memory: views of arrays with a row for each."""

    seeds: np.ndarray
    actions: np.ndarray
    step: HostStep


def row_type(observation_space: ObservationSpace, action_space: Space) -> np.dtype:
    """What the memory holds of one environment; a structured observation has its fields within."""
    if isinstance(observation_space, Fields):
        inner = [(name, part.dtype, part.shape) for name, part in observation_space.items()]
        observed = np.dtype(inner, align=True)
    else:
        observed = np.dtype((observation_space.dtype, observation_space.shape))
    parts = {
        "seeds": "int64",
        "actions": (action_space.dtype, action_space.shape),
        "obs": observed,
        "reward": "float32",
        "terminated": "bool",
        "truncated": "bool",
        "next_obs": observed,
        "mask": "bool",
    }
    return np.dtype(list(parts.items()), align=True)


def rows_of(array: np.ndarray) -> Rows:
    """The parts of an array of the row type; a structured observation is a dict."""
    parts: dict[str, Any] = {name: array[name] for name in array.dtype.names or ()}
    for name in ("obs", "next_obs"):
        if fields := parts[name].dtype.names:
            parts[name] = {field: parts[name][field] for field in fields}
    return Rows(parts.pop("seeds"), parts.pop("actions"), HostStep(**parts))


def allocate(size: int) -> int:
    """The descriptor of that much memory."""
    if hasattr(os, "memfd_create"):  # Linux: never touches a disk
        descriptor = os.memfd_create("proxima")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, size)
    return descriptor


def main() -> None:
    """Serves until the socket closes."""
    # Sent to all processes of a run, these signals are the trainer's to answer.
    for number in signal.Signals:
        if number.name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    connection = socket.socket(fileno=int(sys.argv[1]))
    memory = mmap.mmap(int(sys.argv[2]), 0)
    with connection, connection.makefile("rb") as orders:
        try:
            groups = _groups(json.loads(orders.readline()), memory)
            connection.sendall(DONE)
            while order := orders.read(2):
                _obey(order[:1], *groups[order[1]])
                connection.sendall(DONE)
        except ConnectionError:
            return
        except Exception as error:
            message = str(error) or type(error).__name__
            with contextlib.suppress(ConnectionError):
                connection.sendall(FAILED + json.dumps(message).encode() + b"\n")
            sys.exit(1)


def _groups(orders: dict[str, Any], memory: mmap.mmap) -> list[tuple[GymnasiumPool, Rows]]:
    """This worker's environments of each group, and their rows of the shared arrays."""
    config = config_from(orders["config"])
    import_definition(config.name, orders["module"])
    shape = orders["groups"], orders["share"]
    start, stop = orders["rows"]
    groups = []
    for group in range(orders["groups"]):
        envs = [make_env(config) for _ in range(start, stop)]
        number = group * orders["share"] + start
        pool = GymnasiumPool(config.name, envs, number, orders["total"])
        kind = row_type(pool.observation_space, pool.action_space)
        shared = np.ndarray(shape, kind, memory)
        groups.append((pool, rows_of(shared[group, start:stop])))
    return groups


def import_definition(name: str, module: str | None) -> None:
    """Imports the module that the environment is defined in, if Gymnasium does not know the name yet."""
    if ":" in name or name in gymnasium.registry or module is None:
        return
    if module == "__main__":
        raise ProximaError(
            f"env.name: {name} is registered by the program that was started, and other processes do "
            'not run that; register it in a module and name it "module:Name-v0"'
        )
    importlib.import_module(module)


def _obey(order: bytes, pool: GymnasiumPool, rows: Rows) -> None:
    if order == RESET:
        by_field(np.copyto, rows.step.obs, pool.reset(rows.seeds.tolist()))
        return
    for target, source in zip(rows.step, pool.step(rows.actions), strict=True):
        by_field(np.copyto, target, source)


def _follow_parent(parent: int) -> None:
    """Ends the process when its parent has ended, even if an environment never returns."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
