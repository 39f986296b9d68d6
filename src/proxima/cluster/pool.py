"""Workers of a cluster, and orders that are carried out by whoever is free.

An order is a function of what travels with it, so one whose worker is lost, or slow, is given to another: the
answer has the same bits. A worker that is lost is started again, on whichever machine has room for it.
"""

import json
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, final

from proxima.cluster.messages import Message, read
from proxima.cluster.session import Session, answers
from proxima.cluster.worker import Hello, Worker, hello
from proxima.core.errors import ProximaError

T = TypeVar("T")

MOST_LOSSES = 5  # workers that one order may cost
LOOK_SECONDS = 1.0  # how long nothing may happen before the cluster is looked at
HEAD_SECONDS = 15.0  # how long its head may be silent
SLOW_TIMES, SLOW_SECONDS = 5.0, 30.0  # what counts as slow: so often the usual time, and so long
LEAVE_SECONDS = 5.0  # for workers to tidy up
RECENT = 100  # orders by which the usual time is known
AGAIN_SECONDS = 1.0  # before a lost worker is asked whether it is there again
GROW_SECONDS = 5.0  # between two looks for new machines


class Done(NamedTuple):
    """An order that was carried out."""

    key: Any
    answer: Message
    worker: str  # who did


class Sent(NamedTuple):
    """An order, and its place among all that were given."""

    number: int
    key: Any
    message: Message


@final
class Member:
    """A worker's place in the pool, whoever fills it."""

    def __init__(self, actor: Any, number: int):
        self.actor, self.number = actor, number
        self.host = ""
        self.call: Any = None  # what it is doing
        self.order: Sent | None = None  # None while it starts
        self.since = 0.0  # when it was given that
        self.again = 0.0  # when it may be started again, after it was lost
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
        self._waiting: deque[Sent] = deque()
        self._given = 0
        self._open: set[int] = set()  # numbers of orders that nobody has answered yet
        self._losses: dict[int, int] = {}
        self._seconds: deque[float] = deque(maxlen=RECENT)  # of the orders that were answered last
        self._members: list[Member] = []
        self._is_alone = True  # nobody is ready
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
        """How many blocks are at their end, and who trains which of the others, which count from 0."""
        busy: dict[str, list[str]] = {}
        for member in self._members:
            if member.order is not None:
                busy.setdefault(member.host, []).append(str(member.order.key))
        hosts = []
        for host, keys in sorted(busy.items()):
            listed = ", ".join(sorted(keys, key=lambda key: (len(key), key)))
            hosts.append(f"{host} trains block{'s' * (len(keys) > 1)} {listed}")
        return "; ".join([f"{done} of {blocks} blocks done", *hosts])

    def submit(self, key: Any, order: Message) -> None:
        """The order is carried out as soon as a worker is free."""
        self._waiting.append(Sent(self._given, key, order))
        self._open.add(self._given)
        self._given += 1
        self._hand_out()

    def next(self) -> Done:
        """The order that is carried out next."""
        while True:
            self._hand_out()
            calls = {member.call: member for member in self._members if member.call is not None}
            if not calls:  # all are lost
                time.sleep(LOOK_SECONDS)
            ready = (
                self._ray.wait(list(calls), num_returns=1, timeout=LOOK_SECONDS)[0] if calls else ()
            )
            if not ready:
                self._look()
                continue
            done = self._finished(calls[ready[0]])
            if done is not None:
                return done

    def close(self) -> None:
        """No worker is left: who has nothing to do may tidy up, others are ended where they are."""
        idle = [member for member in self._members if member.is_ready and member.call is None]
        leaving = [member.actor.__ray_terminate__.remote() for member in idle]
        if leaving:
            self._ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_SECONDS)
        for member in self._members:
            self._ray.kill(member.actor, no_restart=True)
        self._members = []

    def _finished(self, member: Member) -> Done | None:
        """What a worker's call came to: an answer, or that it is ready, or that it is lost."""
        call, order = member.call, member.order
        member.call = member.order = None
        errors = self._ray.exceptions
        try:
            result = self._ray.get(call)
        except (
            errors.RayActorError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,  # it answered, and its machine died before the answer was here
        ):
            self._lost(member, order)
            return None
        except errors.RayError as failure:
            raise ProximaError(f"--cluster: {member.name}: {failure}") from failure
        if order is None:
            self._greeted(member, result)
            return None
        if order.number not in self._open:  # another was given it too, and was quicker
            return None
        self._open.remove(order.number)
        self._seconds.append(time.monotonic() - member.since)
        return Done(order.key, result, member.name)

    def _greeted(self, member: Member, result: Any) -> None:
        """A worker has said who it is and built what the scenario needs."""
        greeting, error = result
        other = read(greeting, Hello)
        member.host = other.host
        _check_versions(other, member.name)
        if error:
            raise ProximaError(f"{error} (said by {member.name})")
        member.is_ready, self._is_alone = True, False

    def _lost(self, member: Member, order: Sent | None) -> None:
        """The order goes to another; the worker starts again where there is room."""
        if member.is_ready:  # one that is not there yet is not lost
            self._say(f"Lost {member.name}; it is started again where there is room.")
        if order is not None and order.number in self._open and order not in self._under_way():
            self._losses[order.number] = self._losses.get(order.number, 0) + 1
            if self._losses[order.number] >= MOST_LOSSES:
                raise ProximaError(
                    f"--cluster: {MOST_LOSSES} workers in turn were lost with the same block; look for what "
                    "ends them (memory, most often) on the machine that was said last"
                )
            self._waiting.appendleft(order)
        member.is_ready, member.again = False, time.monotonic() + AGAIN_SECONDS
        if not any(other.is_ready for other in self._members) and not self._is_alone:
            self._say("No worker is left; waiting for one to start, or for a machine to join.")
        self._is_alone = not any(other.is_ready for other in self._members)

    def _start(self, member: Member) -> None:
        member.call = member.actor.begin.remote(*self._job)

    def _hand_out(self) -> None:
        """Orders to those who are free; where none waits, one that takes much longer than usual."""
        for member in self._members:
            if member.call is not None:
                continue
            if not member.is_ready:
                if time.monotonic() >= member.again:
                    self._start(member)
                continue
            order = self._waiting.popleft() if self._waiting else self._overdue()
            if order is None:
                return
            member.order, member.since = order, time.monotonic()
            member.call = member.actor.carry_out.remote(order.message)

    def _overdue(self) -> Sent | None:
        """An order that one worker alone has had for too long: its machine may be cut off, or slow."""
        if not self._seconds:
            return None
        limit = max(SLOW_SECONDS, SLOW_TIMES * statistics.median(self._seconds))
        under_way = self._under_way()
        for member in self._members:
            order = member.order
            if order is None or under_way.count(order) > 1 or order.number not in self._open:
                continue
            if time.monotonic() - member.since > limit:
                self._say(
                    f"{member.name} is slow with its block: another trains it too.".capitalize()
                )
                return order
        return None

    def _under_way(self) -> list[Sent]:
        """Orders that workers have, one of them twice where it was overdue."""
        return [member.order for member in self._members if member.order is not None]

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
            self._members.append(Member(self._actor.remote(), number))


def answered(done: Done, kind: type[T]) -> T:
    """What a worker answered; an error of its own is raised here."""
    content = json.loads(done.answer.text)
    if "error" in content:
        raise ProximaError(f"{content['error']} (said by {done.worker})")
    return read(done.answer.text, kind)


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
