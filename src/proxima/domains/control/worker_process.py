"""A worker process seen from the trainer: start it, tell it what to do, hear what came of it."""

import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any, final

from proxima.domains.control import worker

LAST_SECONDS = 2.0  # between the end of a connection and the end of its process


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
        path = os.pathsep.join(place or os.getcwd() for place in sys.path)
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
            said = self._connection.recv(1)
            if said == worker.DONE:
                self.answers += 1
                return None
            if said == worker.FAILED:
                with self._connection.makefile("rb") as rest:
                    return f"failed: {json.loads(rest.readline())}"
        except TimeoutError:
            return f"has not answered for {seconds:g} seconds (env.worker_timeout)"
        except (ConnectionError, ValueError):
            pass
        return self._how_it_ended()

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

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(LAST_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name} (exit code {code})"
        return f"ended by itself (exit code {code})"
