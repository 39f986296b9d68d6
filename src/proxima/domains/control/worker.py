"""A worker process: steps its share of a pool's environments when told to.

    python -m proxima.domains.control.worker <socket> <memory>    two descriptors it was started with

First comes a line of JSON: which environment, and which rows of which arrays are this worker's. Then
two bytes at a time: reset or step, and the group. Each is answered by a byte; observations, actions and
the rest lie in the shared memory. After an error the words follow, and the worker ends. It also ends when
the trainer does: its side of the socket closes. JAX is never imported here.
"""

import contextlib
import importlib
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium import make_env
from proxima.domains.control.gymnasium_pools import GymnasiumPool, Numbers
from proxima.domains.control.own import is_own
from proxima.domains.control.worker_memory import (
    ACTIONS,
    NEXT_OBS,
    OBS,
    REWARD,
    SEEDS,
    TERMINATED,
    TRUNCATED,
    Block,
    arrays,
    write,
)

RESET, STEP = b"r", b"s"
DONE, FAILED = b".", b"!"
LOOK_FOR_PARENT = 2.0  # seconds between two looks whether the trainer is still there


class Group(NamedTuple):
    """This worker's environments of one group, and their rows of the shared arrays."""

    pool: GymnasiumPool
    rows: dict[str, Any]


def main() -> None:
    """Serves until the socket closes."""
    for (
        number
    ) in signal.Signals:  # sent to all processes of a run, they are the trainer's to answer
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
                _obey(order[:1], groups[order[1]])
                connection.sendall(DONE)
        except ConnectionError:
            return
        except Exception as error:
            told = str(error) or type(error).__name__
            with contextlib.suppress(ConnectionError):
                connection.sendall(FAILED + json.dumps(told).encode() + b"\n")
            sys.exit(1)


def _groups(orders: dict[str, Any], memory: mmap.mmap) -> list[Group]:
    config = EnvConfig(**orders["config"])
    if not is_own(config):
        _find(config.name, orders["module"])
    groups = []
    for each in orders["groups"]:
        first, last = each["rows"]
        blocks = [Block(*block) for block in each["blocks"]]
        envs = [make_env(config, render=False) for _ in range(first, last)]
        numbers = Numbers(each["first"] + first, orders["total"])
        pool = GymnasiumPool(config.name, envs, numbers)
        groups.append(Group(pool, arrays(memory, blocks, slice(first, last))))
    return groups


def _find(name: str, module: str | None) -> None:
    """Imports the module that the environment is defined in, if Gymnasium does not know the name yet."""
    import gymnasium

    if ":" in name or name in gymnasium.registry or module is None:
        return
    if module == "__main__":
        raise ProximaError(
            f"env.name: {name} is registered by the program that was started, and worker processes do "
            'not run that; register it in a module and name it "module:Name-v0"'
        )
    importlib.import_module(module)


def _obey(order: bytes, group: Group) -> None:
    pool, rows = group
    if order == RESET:
        write(rows[OBS], pool.reset(rows[SEEDS].tolist()))
        return
    step = pool.step(rows[ACTIONS])
    write(rows[OBS], step.obs)
    write(rows[NEXT_OBS], step.next_obs)
    rows[REWARD][...] = step.reward
    rows[TERMINATED][...] = step.terminated
    rows[TRUNCATED][...] = step.truncated


def _follow_parent(parent: int) -> None:
    """Ends the process when its parent has ended, even if an environment never returns."""
    while os.getppid() == parent:
        time.sleep(LOOK_FOR_PARENT)
    os._exit(1)


if __name__ == "__main__":
    main()
