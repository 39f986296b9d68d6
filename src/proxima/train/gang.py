"""A gang: one training over several processes, here or on several machines, by jax.distributed.

    process 0:   loop ─► stage, led ─┬─► says to all what comes next ─► does it with them
    the others:            follow ───┘   init, join, prepare, advance, evaluate, gather, reseed, end

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple, NoReturn, final

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed  # the only door to the store
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.train.stage import Row, Score, Stage

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


def led(stage: Stage, member: Member) -> Stage:
    """The stage as process 0 has it: what it does, all others do with it."""

    def together(name: str, *values: Any) -> None:
        member.send({"name": name, "values": values})

    def init() -> PyTree:
        together("init")
        with member.explained():
            return stage.init()

    def split(states: PyTree) -> list[PyTree]:
        together("gather")
        with member.explained():
            return stage.split(gathered(states))

    def join(lanes: Sequence[PyTree]) -> PyTree:
        together("join")
        with member.explained():
            return stage.join(shared(lanes))

    def prepare(states: PyTree) -> PyTree:
        together("prepare")
        with member.explained():
            states = stage.prepare(states)
        member.meet()
        return states

    def advance(
        states: PyTree, active: np.ndarray, updates: int, done: int
    ) -> tuple[PyTree, list[Row]]:
        together("advance", active.tolist(), updates, done)
        with member.explained():
            return stage.advance(states, active, updates, done)

    def evaluate(states: PyTree) -> list[Score]:
        together("evaluate")
        with member.explained():
            return stage.evaluate(states)

    def reseed(states: PyTree) -> PyTree:
        together("reseed")
        return stage.reseed(states)

    return stage._replace(
        init=init,
        split=split,
        join=join,
        prepare=prepare,
        advance=advance,
        evaluate=evaluate,
        reseed=reseed,
        layout={**stage.layout, "processes": member.gang.processes},
    )


class Held(NamedTuple):
    """What a process that follows has of a stage."""

    states: PyTree = None
    # Fresh states as lanes: those that process 0 restores have their shapes. None until they were gathered.
    fresh: Sequence[PyTree] | None = None


def follow(stage: Stage, member: Member) -> Message:
    """Does what process 0 says with this process's part of the stage; the message that is none of it."""
    held = Held()
    while (message := member.receive())["name"] in ANSWERS:
        with member.explained():
            held = ANSWERS[message["name"]](stage, member, held, *message["values"])
    return message


def _init(stage: Stage, member: Member, held: Held) -> Held:
    return Held(stage.init())


def _gather(stage: Stage, member: Member, held: Held) -> Held:
    whole = gathered(held.states)
    return held if held.fresh is not None else held._replace(fresh=stage.split(whole))


def _join(stage: Stage, member: Member, held: Held) -> Held:
    assert held.fresh is not None  # whoever restores asks for fresh states first
    return Held(stage.join(shared(held.fresh)), fresh=())


def _prepare(stage: Stage, member: Member, held: Held) -> Held:
    states = stage.prepare(held.states)
    member.meet()
    return Held(states, fresh=())


def _advance(
    stage: Stage, member: Member, held: Held, active: list[bool], updates: int, done: int
) -> Held:
    return held._replace(states=stage.advance(held.states, np.array(active), updates, done)[0])


def _evaluate(stage: Stage, member: Member, held: Held) -> Held:
    stage.evaluate(held.states)
    return held


def _reseed(stage: Stage, member: Member, held: Held) -> Held:
    return held._replace(states=stage.reseed(held.states))


ANSWERS: Mapping[str, Callable[..., Held]] = {
    "init": _init,
    "gather": _gather,
    "join": _join,
    "prepare": _prepare,
    "advance": _advance,
    "evaluate": _evaluate,
    "reseed": _reseed,
}


def gathered(tree: PyTree) -> PyTree:
    """The tree with what lies on several processes on this one's host, whole."""
    leaves, structure = jax.tree.flatten(tree)
    apart = [index for index, leaf in enumerate(leaves) if _is_apart(leaf)]
    if apart:
        whole = _whole(leaves[apart[0]].sharding.mesh)([leaves[index] for index in apart])
        for index, leaf in zip(apart, whole, strict=True):
            leaves[index] = leaf
    return jax.tree.unflatten(structure, [_here(leaf) for leaf in leaves])


def _is_apart(leaf: Any) -> bool:
    return (
        isinstance(leaf, jax.Array)
        and not leaf.is_fully_addressable
        and not leaf.is_fully_replicated
    )


def _here(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    own = leaf.addressable_data(0)
    # a copy, as the next chunk wants the memory; on the host, from where it may go to any devices
    return _like(own, np.array(_numbers(own)))


@cache
def _whole(mesh: Mesh) -> Callable[[list[jax.Array]], list[jax.Array]]:
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, P()))


def shared(lanes: Sequence[PyTree]) -> list[PyTree]:
    """Process 0's lanes in every process, bit for bit; the others give some of the same shapes."""
    leaves, structure = jax.tree.flatten(list(lanes))
    arrays = [_numbers(leaf) for leaf in leaves]
    # as bytes: floats are added up on the way, and −0.0 + 0.0 is not −0.0
    sent = b"".join(array.tobytes() for array in arrays)
    received = np.frombuffer(shared_bytes(sent, len(sent)), np.uint8)
    ends = np.cumsum([array.nbytes for array in arrays])[:-1]
    parts = [
        np.frombuffer(part.tobytes(), array.dtype).reshape(array.shape)
        for part, array in zip(np.split(received, ends), arrays, strict=True)
    ]
    restored = [_like(leaf, part) for leaf, part in zip(leaves, parts, strict=True)]
    same: list[PyTree] = jax.tree.unflatten(structure, restored)
    return same


def shared_bytes(content: bytes, size: int) -> bytes:
    """Process 0's bytes in every process; the others know how many come."""
    if size == 0:
        return b""
    own = np.frombuffer(content.ljust(size, b"\0"), np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(own)).tobytes()


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _numbers(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(leaf: Any, numbers: np.ndarray) -> Any:
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(numbers), impl=jax.random.key_impl(leaf))
    return numbers
