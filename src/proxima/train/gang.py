"""A gang: one training over several processes, here or on several machines, by jax.distributed.

Process 0 alone has the loop, the files and the user: what it decides (an interruption, a callback, an
alarm) it need not share, as the others only ever do what it says next. Messages go through the key-value
store of JAX's coordination service, where waiting has no time limit; numbers go by collectives, gloo's on
CPUs and NCCL's on GPUs.
"""

import ctypes
import ipaddress
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, NoReturn, final

import jax
from jax._src import distributed  # the only door to the store

from proxima.core.errors import ProximaError

CONNECT_SECONDS = 300  # for all processes to come together: a cluster starts them one by one
HEARTBEAT_SECONDS = 30  # of silence, after which a process counts as gone
LEAVE_SECONDS = 30  # for all to leave together
COMPLAINT_SECONDS = 5.0  # for those that live to say so when one is gone
NOTICED = "noticed"  # what they say
POLL_MILLISECONDS = 1_000  # between two looks whether this process was asked to stop
COLLECTIVE_SECONDS = 600  # a collective waits for the slowest to compile; a death is noticed sooner
LOST = os.EX_TEMPFAIL  # exit status of a process that lost its gang: to be started again

Message = dict[str, Any]


class Gang(NamedTuple):
    """A process's place in its gang."""

    process: int
    processes: int
    coordinator: str  # HOST:PORT of process 0


class GangLost(ProximaError):
    """A process of the gang is gone: the training can go on from its last checkpoint."""


def gang_of(process: int | None, processes: int | None, coordinator: str | None) -> Gang | None:
    """The gang that three options describe, None where none is given; what contradicts itself is refused."""
    if process is None and processes is None and coordinator is None:
        return None
    if process is None or processes is None or coordinator is None:
        raise ProximaError(
            "--process-id, --processes and --coordinator: give all three to train in several processes, or "
            "none"
        )
    if processes < 1 or not 0 <= process < processes:
        raise ProximaError(
            f"--process-id: {process} of {processes} processes; they are numbered 0 to --processes - 1"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ProximaError(
            f"--coordinator: {coordinator!r} is no HOST:PORT; name the machine of process 0 and a free port "
            "there, such as node1:9123"
        )
    if processes == 1:
        return None
    check_names(host)
    return Gang(process, processes, coordinator)


def check_names(coordinator: str) -> None:
    """An error where this machine's own name leads the others astray.

    gloo listens where the machine's name leads: with a line `127.0.1.1 name` in /etc/hosts the other
    machines would knock at their own doors.
    """
    name = socket.gethostname()
    theirs = _address_of(coordinator)
    if theirs is None:
        raise ProximaError(
            f"--coordinator: {coordinator} is no machine known here; give a name or an address that every "
            "machine of the gang can find"
        )
    mine = _address_of(name)
    if mine is None or (mine.is_loopback and not theirs.is_loopback):
        where = "cannot be found" if mine is None else f"leads to {mine}"
        raise ProximaError(
            f"/etc/hosts: this machine's own name {name} {where}, and the other machines of the gang could "
            "not reach it; give it its address in the network there, or --coordinator 127.0.0.1:PORT where "
            "all processes are on this machine"
        )


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = socket.getaddrinfo(host.strip("[]"), None)[0][4][0]
    except (OSError, UnicodeError):
        return None
    return ipaddress.ip_address(str(address).partition("%")[0])


@final
class Member:
    """This process's connection to its gang."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.remedy = "start all its processes again"  # until there is something to resume
        self.has_left = False
        self._messages = 0
        _speak_when_aborted(lambda: _apart(gang))
        _connect(gang)
        self._client: Any = distributed.global_state.client
        _speak_when_aborted(self._last_words)

    def send(self, message: Message) -> None:
        """The next message of process 0 to all others."""
        with self.explained():
            self._client.key_value_set(f"proxima/message/{self._messages}", json.dumps(message))
        self._messages += 1

    def receive(self) -> Message:
        """The next message of process 0, whenever it comes."""
        while True:
            try:
                text = self._client.blocking_key_value_get(
                    f"proxima/message/{self._messages}", POLL_MILLISECONDS
                )
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise self._explained(error) from error
            else:
                self._messages += 1
                message: Message = json.loads(text)
                return message

    def complain(self, words: str) -> None:
        """Leaves word of why this process ends, for process 0 to pass on."""
        with suppress(jax.errors.JaxRuntimeError):  # process 0 is gone: nobody is left to read it
            self._client.key_value_set(f"proxima/failed/{self.gang.process}", words)

    def be_ready(self) -> None:
        """Tells process 0 that this one has all that its last message needs."""
        self._client.key_value_set(f"proxima/ready/{self._messages}/{self.gang.process}", "yes")

    def wait_for_others(self) -> None:
        """Returns when all others are ready; what keeps one from it is an error here too."""
        for other in range(1, self.gang.processes):
            while not self._value_of(f"proxima/ready/{self._messages}/{other}"):
                if words := self._complaint_of(other):
                    raise ProximaError(f"process {other} of the gang: {words}")
                time.sleep(0.05)

    def meet(self) -> None:
        """Returns when all processes have come here, however long some compile."""
        with self.explained():
            name = f"proxima/met/{self._messages}"
            self._client.wait_at_barrier(name, 1_000 * COLLECTIVE_SECONDS)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """While open, this process needs the others: an error that comes of a death is said in words."""
        try:
            yield
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # gloo's are the latter
            explained = self._explained(error)
            if explained is error:
                raise
            raise explained from error

    def leave(self) -> None:
        """The end of the gang, when its work is done: all leave together, and each may go on alone."""
        self.has_left = True
        _be_aborted_as_usual()
        with suppress(jax.errors.JaxRuntimeError):  # who is gone now is not needed any more
            jax.distributed.shutdown()

    def _explained(self, error: Exception) -> Exception:
        """A death in words, or the error itself where it comes of something else."""
        signs = ("gloo", "unavailable", "connection", "aborted", "cancelled")
        if not any(sign in str(error).lower() for sign in signs):
            return error
        return GangLost(self._words(self._gone()))

    def _gone(self) -> dict[int, str]:
        """The others that are gone, as far as is known, with what each said of itself.

        A process that is alive notices a death too and says so: who stays silent is gone.
        """
        others = [other for other in range(self.gang.processes) if other != self.gang.process]
        if self.gang.process > 0:
            self.complain(NOTICED)
            return dict.fromkeys(others, "") if len(others) == 1 else {}
        complaints: dict[int, str] = {}
        for _ in range(int(COMPLAINT_SECONDS / 0.1)):
            complaints = {other: words for other in others if (words := self._complaint_of(other))}
            if len([words for words in complaints.values() if words == NOTICED]) >= len(others) - 1:
                break
            time.sleep(0.1)
        return {
            other: complaints.get(other, "") for other in others if complaints.get(other) != NOTICED
        }

    def _complaint_of(self, process: int) -> str:
        return self._value_of(f"proxima/failed/{process}")

    def _value_of(self, key: str) -> str:
        try:
            return str(self._client.key_value_try_get(key))
        except jax.errors.JaxRuntimeError:  # nobody has set it
            return ""

    def _words(self, gone: Mapping[int, str]) -> str:
        """Who is gone, why, and what to do."""
        names = " and ".join(
            f"process {process}" + (f" ({words})" if words else "")
            for process, words in gone.items()
        )
        return f"{names or 'a process'} of the gang of {self.gang.processes} is gone; {self.remedy}"

    def _last_words(self) -> str:
        """What is known when JAX ends this process, which it does when another has been silent too long."""
        return self._words({1 - self.gang.process: ""} if self.gang.processes == 2 else {})


def _connect(gang: Gang) -> None:
    """Joins the gang before JAX starts."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from us
    flags = os.environ.get("XLA_FLAGS", "")
    for name in ("collective_timeout_seconds", "collective_call_terminate_timeout_seconds"):
        if name not in flags:  # what the user's environment says stays
            flags += f" --xla_cpu_{name}={COLLECTIVE_SECONDS}"
    os.environ["XLA_FLAGS"] = flags.strip()
    if gang.process == 0:
        _check_port(gang)
    try:
        jax.distributed.initialize(
            gang.coordinator,
            gang.processes,
            gang.process,
            cluster_detection_method="deactivate",
            initialization_timeout=CONNECT_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=LEAVE_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        raise ProximaError(_apart(gang)) from error


def keep_programs() -> None:
    """This process keeps what it compiles, as process 0 does, or every start would compile all of it again.

    JAX has process 0 alone write to the cache, but programs differ by the devices that they run on: what
    process 0 wrote, no other process finds.
    """
    jax.devices()  # started with the true number
    distributed.global_state.process_id = 0


def _apart(gang: Gang) -> str:
    """What to say when the processes did not find each other."""
    return (
        f"--coordinator: the {gang.processes} processes of the gang did not come together at "
        f"{gang.coordinator}; start all of them within {CONNECT_SECONDS} s, with the same --coordinator, "
        "which all can reach, and ids 0 to --processes - 1"
    )


def _check_port(gang: Gang) -> None:
    """An error where the coordinator's port is taken, for which JAX has no words."""
    port = int(gang.coordinator.rpartition(":")[2])
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        socket.create_server(
            ("", port), family=family, dualstack_ipv6=family != socket.AF_INET
        ).close()
    except OSError as error:
        raise ProximaError(
            f"--coordinator: process 0 cannot listen on port {port} ({os.strerror(error.errno or 0)}); take "
            "another"
        ) from error


_on_abort: list[Any] = []  # what C calls must not be collected


def _speak_when_aborted(words: Callable[[], str]) -> None:
    """JAX ends a process whose peer is silent by abort(), from a thread of its own: then these are said.

    Python's own handlers do not run any more when a process aborts, so C calls this one.
    """

    def speak(_: int) -> None:
        end_lost(words())

    _on_abort[:] = [ctypes.CFUNCTYPE(None, ctypes.c_int)(speak)]
    ctypes.CDLL(None).signal(signal.SIGABRT, _on_abort[0])


def _be_aborted_as_usual() -> None:
    ctypes.CDLL(None).signal(signal.SIGABRT, ctypes.c_void_p(int(signal.SIG_DFL)))


def end_lost(words: str) -> NoReturn:
    """Ends a process that lost its gang at once: JAX's own ending would wait for who is gone."""
    sys.stdout.flush()
    os.write(2, f"Error: {words}\n".encode())
    os._exit(LOST)
