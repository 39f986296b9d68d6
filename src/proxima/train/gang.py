"""A gang: one training over several processes, here or on several machines, by jax.distributed.

    process 0:   loop ─► stage, led ─┬─► says to all what comes next ─► does it with them
    the others:            follow ───┘   init, join, prepare, advance, evaluate, gather, reseed, end

Process 0 alone has the loop, the files and the user: what it decides (an interruption, a callback, an alarm) it
need not share, as the others only ever do what it says next. Messages go through the key-value store of JAX's
coordination service, where waiting has no time limit; numbers go by collectives, gloo's on CPUs, NCCL's on GPUs.
"""

import ipaddress
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, NoReturn, final

import jax
import numpy as np
from jax._src import distributed  # the only door to the store and to what happens when a peer dies
from jax._src.lib import _jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.train.stage import Row, Score, Stage

CONNECT_SECONDS = 300  # for all processes to come together: a cluster starts them one by one
HEARTBEAT_SECONDS = 30  # of silence, after which a process counts as gone
LEAVE_SECONDS = 30  # for all to leave together
GRACE_SECONDS = 5.0  # for a process to end by itself, in order, when another is gone
POLL_MILLISECONDS = 1_000  # between two looks whether this process was asked to stop
COLLECTIVE_SECONDS = 600  # a collective waits for the slowest to compile; a death is noticed sooner
LOST = 75  # exit status of a process that lost its gang: EX_TEMPFAIL, to be started again

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
            "--process-id, --processes and --coordinator: give all three to train in several processes, or none"
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
            f"/etc/hosts: this machine's own name {name} {where}, and the other machines of the gang could not "
            "reach it; give it its address in the network there, or --coordinator 127.0.0.1:PORT where all "
            "processes are on this machine"
        )


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = socket.getaddrinfo(host.strip("[]"), None)[0][4][0]
    except (OSError, UnicodeError):
        return None
    return ipaddress.ip_address(str(found).partition("%")[0])


@final
class Member:
    """This process's connection to its gang."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.remedy = "start all its processes again"  # until there is something to resume
        self._messages = 0
        self._gone: str | None = None  # what the coordination service says of a death
        self._is_lost = threading.Event()
        self._waits_since: float | None = None  # for the others, since then
        _ask_for_collectives()
        self._client = _connect(gang, self._note_death)

    @property
    def leads(self) -> bool:
        return self.gang.process == 0

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
                if not _is_late(error):
                    raise self._lost(error) from error
            else:
                self._messages += 1
                message: Message = json.loads(text)
                return message

    def complain(self, words: str) -> None:
        """Leaves word of why this process ends, for process 0 to pass on."""
        try:
            self._client.key_value_set(f"proxima/failed/{self.gang.process}", words)
        except jax.errors.JaxRuntimeError:  # process 0 is gone: nobody is left to read it
            return

    def meet(self, where: str) -> None:
        """Returns when all processes have come here, however long some compile."""
        with self.explained():
            self._client.wait_at_barrier(
                f"proxima/{where}/{self._messages}", 1_000 * COLLECTIVE_SECONDS)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """While open, this process needs the others: an error that comes of a death is said in words."""
        self._waits_since = time.monotonic()
        try:
            yield
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # gloo's are the latter
            raise self._lost(error) from error
        finally:
            self._waits_since = None

    def leave(self) -> None:
        """The end of the gang, when its work is done: all leave together."""
        self._waits_since = None
        try:
            distributed.global_state.shutdown()
        except jax.errors.JaxRuntimeError:  # somebody was gone before, and is not needed any more
            self.drop()

    def drop(self) -> None:
        """The end of this process's part: nobody is waited for."""
        state = distributed.global_state
        state.client = state.service = None

    def _lost(self, error: Exception) -> Exception:
        """What an error means: a death, in words, or the error itself."""
        told = "gloo" in str(error).lower() or "UNAVAILABLE" in str(error)
        if not (told and self.gang.processes == 2):
            self._is_lost.wait(HEARTBEAT_SECONDS + GRACE_SECONDS)
        if not told and not self._is_lost.is_set():
            return error
        return GangLost(self._words())

    def _words(self) -> str:
        """Who is gone as far as is known, why, and what to do."""
        who = _named_in(self._gone or "", self.gang)
        if not who and self.gang.processes == 2:
            who = [1 - self.gang.process]
        complaints = [f" ({words})" for other in who if (words := self._complaint_of(other))]
        names = " and ".join(f"process {other}" for other in who) or "a process"
        return f"{names} of the gang of {self.gang.processes} is gone{''.join(complaints)}; {self.remedy}"

    def _complaint_of(self, process: int) -> str | None:
        if not self.leads:
            return None
        try:
            return str(self._client.key_value_try_get(f"proxima/failed/{process}"))
        except jax.errors.JaxRuntimeError:  # it left no word
            return None

    def _note_death(self, status: Any) -> None:
        """Called by JAX, from a thread of its own, when a process has been silent for too long."""
        self._gone = str(status)
        self._is_lost.set()
        threading.Thread(target=self._end_if_stuck, daemon=True).start()

    def _end_if_stuck(self) -> None:
        """Ends this process if it goes on waiting for one that is gone, which NCCL would for ever."""
        while True:
            time.sleep(0.5)
            since = self._waits_since
            if since is not None and time.monotonic() - since > HEARTBEAT_SECONDS + GRACE_SECONDS:
                sys.stderr.write(f"Error: {self._words()}\n")
                sys.stderr.flush()
                os._exit(LOST)


def _ask_for_collectives() -> None:
    """Collectives between processes, on CPUs too; what the user's environment says stays."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    flags = os.environ.get("XLA_FLAGS", "")
    for name in ("collective_timeout_seconds", "collective_call_terminate_timeout_seconds"):
        if name not in flags:
            flags += f" --xla_cpu_{name}={COLLECTIVE_SECONDS}"
    os.environ["XLA_FLAGS"] = flags.strip()


def _connect(gang: Gang, note_death: Callable[[Any], None]) -> Any:
    """Joins the gang as jax.distributed.initialize does, but a death is noted instead of aborting."""
    state = distributed.global_state
    state.process_id, state.num_processes = gang.process, gang.processes
    state.coordinator_address = gang.coordinator
    try:
        if gang.process == 0:
            port = gang.coordinator.rpartition(":")[2]
            state.service = _jax.get_distributed_runtime_service(
                f"[::]:{port}",
                gang.processes,
                heartbeat_timeout=HEARTBEAT_SECONDS,
                shutdown_timeout=LEAVE_SECONDS,
            )
        state.client = _jax.get_distributed_runtime_client(
            gang.coordinator,
            gang.process,
            init_timeout=CONNECT_SECONDS,
            heartbeat_timeout=HEARTBEAT_SECONDS,
            shutdown_timeout=LEAVE_SECONDS,
            missed_heartbeat_callback=note_death,
            shutdown_on_destruction=False,
            use_compression=True,
        )
        state.client.connect()
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        state.client = state.service = None
        first = str(error).partition("\n")[0]
        raise ProximaError(
            f"--coordinator: the {gang.processes} processes of the gang did not come together at "
            f"{gang.coordinator} within {CONNECT_SECONDS} s ({first}); start all of them with the same "
            "--coordinator, a port that is free there and open to all, and ids 0 to --processes - 1"
        ) from error
    return state.client


def _is_late(error: Exception) -> bool:
    return "DEADLINE_EXCEEDED" in str(error)


def _named_in(status: str, gang: Gang) -> list[int]:
    """The processes that the coordination service calls dead; process 0 where it does not answer itself."""
    if "Failed to send RPC" in status or "Socket closed" in status:
        return [0] if gang.process else []
    lines = re.findall(r"^\D*?(?:task:)?(\d+)\s*$", status, re.MULTILINE)
    return sorted({int(line) for line in lines if int(line) < gang.processes})


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
        member.meet("prepared")
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


def follow(stage: Stage, member: Member) -> Message:
    """Does what process 0 says with this process's part of the stage; the message that is none of it."""
    states: PyTree = None
    while (message := member.receive())["name"] in ANSWERS:
        with member.explained():
            states = ANSWERS[message["name"]](stage, member, states, *message["values"])
    return message


def _prepare(stage: Stage, member: Member, states: PyTree) -> PyTree:
    states = stage.prepare(states)
    member.meet("prepared")
    return states


def _advance(
    stage: Stage, member: Member, states: PyTree, active: list[bool], updates: int, done: int
) -> PyTree:
    return stage.advance(states, np.array(active), updates, done)[0]


def _evaluate(stage: Stage, member: Member, states: PyTree) -> PyTree:
    stage.evaluate(states)
    return states


def _gather(stage: Stage, member: Member, states: PyTree) -> PyTree:
    gathered(states)
    return states


def _join(stage: Stage, member: Member, states: PyTree) -> PyTree:
    # its own fresh states have the shapes of those that process 0 restored
    return stage.join(shared(stage.split(gathered(states))))


ANSWERS: Mapping[str, Callable[..., PyTree]] = {
    "init": lambda stage, member, states: stage.init(),
    "join": _join,
    "prepare": _prepare,
    "advance": _advance,
    "evaluate": _evaluate,
    "gather": _gather,
    "reseed": lambda stage, member, states: stage.reseed(states),
}


def gathered(tree: PyTree) -> PyTree:
    """The tree on this process's first device, what was divided over processes made whole."""
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
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return leaf.addressable_data(0)
    return leaf


@cache
def _whole(mesh: Mesh) -> Callable[[list[jax.Array]], list[jax.Array]]:
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, P()))


def shared(lanes: Sequence[PyTree]) -> list[PyTree]:
    """Process 0's lanes in every process, bit for bit; the others give some of the same shapes."""
    leaves, structure = jax.tree.flatten(list(lanes))
    arrays = [_numbers(leaf) for leaf in leaves]
    # as bytes: floats are added up on the way, and −0.0 + 0.0 is not −0.0
    sent = np.concatenate([np.frombuffer(array.tobytes(), np.uint8) for array in arrays])
    received = np.asarray(multihost_utils.broadcast_one_to_all(sent))
    ends = np.cumsum([array.nbytes for array in arrays])[:-1]
    parts = [
        np.frombuffer(part.tobytes(), array.dtype).reshape(array.shape)
        for part, array in zip(np.split(received, ends), arrays, strict=True)
    ]
    restored = [_like(leaf, part) for leaf, part in zip(leaves, parts, strict=True)]
    same: list[PyTree] = jax.tree.unflatten(structure, restored)
    return same


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _numbers(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(leaf: Any, numbers: np.ndarray) -> Any:
    if _is_key(leaf):
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf))
    return numbers


def end_lost(error: GangLost) -> NoReturn:
    """Ends a process that lost its gang at once: JAX's own ending would wait for who is gone."""
    sys.stderr.write(f"Error: {error}\n")
    sys.stderr.flush()
    os._exit(LOST)
