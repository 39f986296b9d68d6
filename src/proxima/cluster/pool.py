"""Workers of a cluster, and orders that are carried out by whoever is free.

An order is a function of what travels with it, so one whose worker is lost is given to another: the answer
has the same bits. A worker that is lost is started again, on whichever machine has room for it.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

from proxima.cluster.messages import Message, read
from proxima.cluster.session import Session, answers
from proxima.cluster.worker import Hello, Worker, hello
from proxima.core.errors import ProximaError

MOST_LOSSES = 5  # workers that one order may cost
LOOK_SECONDS = 1.0  # how long nothing may happen before the cluster is looked at
HEAD_SECONDS = 15.0  # how long its head may be silent
GROW_SECONDS = 5.0  # between two looks for new machines


class Done(NamedTuple):
    """An order that was carried out."""

    key: Any
    answer: Message
    worker: str  # who did


@final
class Member:
    """A worker's place in the pool, whoever fills it."""

    def __init__(self, actor: Any, number: int):
        self.actor, self.number = actor, number
        self.host = ""
        self.call: Any = None  # what it is doing
        self.key: Any = None  # of the order that it carries out; None while it starts
        self.is_ready = False

    @property
    def name(self) -> str:
        return f"worker {self.number}" + (f" on {self.host}" if self.host else "")


@final
class Pool:
    """All workers, and the orders that wait for one."""

    def __init__(
        self,
        session: Session,
        scenario: str,
        luggage: Mapping[str, bytes],
        say: Callable[[str], None],
    ):
        self._session, self._ray, self._say = session, session.ray, say
        self._job = scenario, self._ray.put(dict(luggage))
        self._orders: deque[tuple[Any, Message]] = deque()
        self._sent: dict[Any, Message] = {}
        self._losses: dict[Any, int] = {}
        self._members: list[Member] = []
        self._looked = self._heard_of_head = time.monotonic()
        self._actor = self._ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=0)(Worker)
        self._grow()
        if not self._members:
            raise ProximaError(
                "--cluster: no machine of it has a core for a worker; look with  proxima cluster status"
            )

    @property
    def width(self) -> int:
        """How many workers there are."""
        return len(self._members)

    def standing(self, done: int, blocks: int) -> str:
        """How many blocks are at their end, and who trains which of the others."""
        busy: dict[str, list[str]] = {}
        for member in self._members:
            if member.key is not None:
                busy.setdefault(member.host, []).append(str(member.key))
        hosts = "; ".join(f"{host}: {', '.join(keys)}" for host, keys in sorted(busy.items()))
        return f"{done} of {blocks} blocks done" + (f", training {hosts}" if hosts else "")

    def submit(self, key: Any, order: Message) -> None:
        """The order is carried out as soon as a worker is free."""
        self._orders.append((key, order))

    def next(self) -> Done:
        """The order that is carried out next."""
        while True:
            self._hand_out()
            calls = {member.call: member for member in self._members if member.call is not None}
            ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=LOOK_SECONDS)
            if not ready:
                self._look()
                continue
            member = calls[ready[0]]
            done = self._heard(member)
            if done is not None:
                return done

    def close(self) -> None:
        """No worker is left."""
        for member in self._members:
            self._ray.kill(member.actor, no_restart=True)
        self._members = []

    def _heard(self, member: Member) -> Done | None:
        """What a worker's call came to: an answer, or that it is ready, or that it is lost."""
        call, key = member.call, member.key
        member.call = member.key = None
        try:
            result = self._ray.get(call)
        except self._ray.exceptions.RayActorError:
            self._lost(member, key)
            return None
        except self._ray.exceptions.RayError as failure:
            raise ProximaError(f"--cluster: {member.name}: {failure}") from failure
        if key is None:
            self._greeted(member, result)
            return None
        del self._sent[key]
        self._losses.pop(key, None)
        return Done(key, result, member.name)

    def _greeted(self, member: Member, result: Any) -> None:
        """A worker has said who it is and built what the scenario needs."""
        said, error = result
        other = read(said, Hello)
        member.host = other.host
        _check_versions(other, member.name)
        if error:
            raise ProximaError(f"{error} (said by {member.name})")
        member.is_ready = True

    def _lost(self, member: Member, key: Any) -> None:
        """The order goes to another; the worker starts again where there is room."""
        what = "while it started" if key is None else "its block is trained again by another"
        self._say(f"Lost {member.name}: {what}.")
        if key is not None:
            self._losses[key] = self._losses.get(key, 0) + 1
            if self._losses[key] >= MOST_LOSSES:
                raise ProximaError(
                    f"--cluster: {MOST_LOSSES} workers in turn were lost with the same block; look for what "
                    "ends them (memory, most often) on the machine that was said last"
                )
            self._orders.appendleft((key, self._sent.pop(key)))
        member.is_ready = False
        self._start(member)

    def _start(self, member: Member) -> None:
        member.call = member.actor.begin.remote(*self._job)

    def _hand_out(self) -> None:
        """Orders to those who are free."""
        for member in self._members:
            if member.is_ready and member.call is None and self._orders:
                member.key, order = self._orders.popleft()
                self._sent[member.key] = order
                member.call = member.actor.carry_out.remote(order)

    def _look(self) -> None:
        """Nothing has happened for a while: is the head there, are there new machines?"""
        now, head = time.monotonic(), self._session.head
        if head is None or answers(head):
            self._heard_of_head = now
        elif now - self._heard_of_head > HEAD_SECONDS:
            raise ProximaError(
                f"--cluster: its head at {head[0]}:{head[1]} has not answered for {HEAD_SECONDS:.0f} s; "
                "start it again, then go on"
            )
        if now - self._looked > GROW_SECONDS:
            self._looked = now
            self._grow()

    def _grow(self) -> None:
        """A worker for every core that the cluster has."""
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        for number in range(len(self._members), cores):
            member = Member(self._actor.remote(), number)
            self._start(member)
            self._members.append(member)


def _check_versions(other: Hello, name: str) -> None:
    """An error where a worker would compute something else than we."""
    ours = hello().versions
    differing = [
        f"{package} {other.versions.get(package)} there, {ours[package]} here"
        for package in ours
        if other.versions.get(package) != ours[package]
    ]
    if differing:
        raise ProximaError(
            f"--cluster: {name} has other versions: {'; '.join(differing)}; results would differ, so "
            "install the same on every machine"
        )
