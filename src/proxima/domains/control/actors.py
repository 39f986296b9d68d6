"""Environments on other machines: Ray actors own pools, and a pool here hands each its share of the rows.

    send      to every actor its rows of the actions, in a fixed order
    receive   from every actor its rows of the step, in the same order, laid side by side

Who steps an environment changes nothing about it: its seed comes with the reset, and rows keep their place.
All pools of a run, for training and for evaluation, are divided over the same actors. An actor that is lost,
raises or does not answer in time is named. Then either the run stops, or a new actor takes its place with new
seeds: a row lost that way has the mask False and says truncated, and its observation begins a new episode.

Actors import this file too, and do not wait for JAX.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from proxima.cluster.session import imported_ray, start_ray
from proxima.core.errors import ProximaError
from proxima.core.spaces import ObservationSpace, Space
from proxima.core.types import HostEnv, HostStep, PyTree

START_SECONDS = 60.0  # for a process to start, import its packages and make its environments
CLOSE_SECONDS = 2.0  # for environments to be closed before their process is ended

# A share's first row, the one after its last, who takes sentences for the user → a pool for each group.
MakeShare = Callable[[int, int, Callable[[str], None]], Sequence[HostEnv]]


class Settings(NamedTuple):
    """How many actors there are, and what happens when one fails."""

    name: str  # of the environment
    actors: int
    cores: int  # that each asks of the cluster
    timeout: float  # seconds after which one that has not answered counts as hung
    restarts: bool  # whether another takes the place of one that failed
    most_failures: int  # of one actor, in a row
    steady: int  # answers after which an actor's earlier failures are forgotten


class Shape(NamedTuple):
    """The pools that share some environments."""

    observation_space: ObservationSpace
    action_space: Space
    num_envs: int
    groups: int


class Answer(NamedTuple):
    """What an actor sends back, and sentences for the user that came up."""

    content: Any
    sentences: list[str]


@final
class EnvActor:
    """What runs in an actor's process: pools by their number."""

    def __init__(self, path: Sequence[str]):
        # As in the trainer, so that modules are found that its settings name.
        sys.path += [folder for folder in path if folder not in sys.path]
        self._pools: dict[int, HostEnv] = {}
        self._sentences: list[str] = []

    def open(self, first: int, start: int, stop: int, make: MakeShare) -> Answer:
        """Makes the pools from number `first` on; which process of which machine has them."""
        import ray

        for number, pool in enumerate(make(start, stop, self._sentences.append), first):
            self._pools[number] = pool
        return self._answer(f"process {os.getpid()} on {ray.util.get_node_ip_address()}")

    def reset(self, number: int, seeds: Sequence[int]) -> Answer:
        """First observations of the pool's environments."""
        return self._answer(self._pools[number].reset(seeds))

    def step(self, number: int, actions: np.ndarray) -> Answer:
        """One step of the pool's environments."""
        return self._answer(self._pools[number].step(actions))

    def close(self, numbers: Sequence[int]) -> Answer:
        """Frees these pools."""
        for number in numbers:
            if number in self._pools:
                self._pools.pop(number).close()
        return self._answer(None)

    def _answer(self, content: Any) -> Answer:
        sentences = self._sentences.copy()
        self._sentences.clear()
        return Answer(content, sentences)


@final
class Actors:
    """The actors of a run, started with the first pools that are opened and ended with the last."""

    def __init__(self, settings: Settings, say: Callable[[str], None]):
        self.settings = settings
        self._say = say
        self._ray: Any = None  # while there are actors
        self._actors: list[_Actor] = []
        self._rooms: list[_Room] = []
        self._opened = 0  # pools so far, to number them

    def open(self, shape: Shape, make: MakeShare) -> list["ActorPool"]:
        """Pools whose environments are divided over the actors; these come up while the trainer compiles."""
        if self._ray is None:
            self._ray = _joined_ray(self)
            self._actors = [_Actor(number) for number in range(self.settings.actors)]
            for actor in self._actors:
                self._start(actor)
        share = shape.num_envs // shape.groups
        count = min(len(self._actors), share)
        bounds = [share * k // count for k in range(count + 1)]
        rows = [slice(*pair) for pair in itertools.pairwise(bounds)]
        parts = list(zip(self._actors, rows, strict=False))
        room = _Room(self, shape, parts, make, self._opened)
        self._opened += shape.groups
        self._rooms.append(room)
        for actor, part in parts:
            actor.openings[room.first] = self._opening(actor, room, part)
        return room.pools

    def await_start(self, room: "_Room") -> None:
        """Waits until all environments of the room are made."""
        for actor, _ in room.parts:
            if room.first in actor.openings:
                self._expect_start(actor, room)

    def request(self, actor: "_Actor", method: str, *arguments: Any) -> Any:
        """What will hold the actor's answer; calls of one actor are done in the order they were made."""
        return getattr(actor.handle, method).remote(*arguments)

    def received(self, actor: "_Actor", room: "_Room", pending: Any) -> Any:
        """The actor's answer, or None if it failed and another, all its environments reset, replaces it."""
        content, problem = self._await(actor, pending, self.settings.timeout)
        if problem is None:
            return content
        self._replace(actor, room, problem)
        return None

    def expected(self, actor: "_Actor", room: "_Room", pending: Any, least: float = 0.0) -> Any:
        """The actor's answer, without which there is no going on."""
        content, problem = self._await(actor, pending, max(least, self.settings.timeout))
        if problem is not None:
            self.end()
            raise ProximaError(self._described(actor, room, problem))
        return content

    def leave(self, room: "_Room") -> None:
        """Frees the room's environments; the actors end with the last room. A second call does nothing."""
        if room not in self._rooms:
            return
        if len(self._rooms) == 1:
            self.end()
            return
        self._rooms.remove(room)
        for actor, _ in room.parts:
            self.request(actor, "close", room.numbers)

    def end(self) -> None:
        """Ends the actors, and Ray where it was started for them; a second call does nothing."""
        rooms, self._rooms = self._rooms, []
        actors, self._actors = self._actors, []
        if self._ray is None:
            return
        ray, self._ray = self._ray, None
        if ray.is_initialized():
            numbers = [number for room in rooms for number in room.numbers]
            closing = [actor.handle.close.remote(numbers) for actor in actors]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
            for actor in actors:
                ray.kill(actor.handle)
        _leave_ray(self, ray)

    def _start(self, actor: "_Actor") -> None:
        cores = 0 if self in _guests else self.settings.cores  # nobody else is in a Ray of our own
        kind = self._ray.remote(num_cpus=cores, max_restarts=0, scheduling_strategy="SPREAD")
        actor.handle = kind(EnvActor).remote([folder or os.getcwd() for folder in sys.path])
        actor.where, actor.answers = "not yet started", 0
        actor.openings.clear()

    def _opening(self, actor: "_Actor", room: "_Room", rows: slice) -> Any:
        return self.request(actor, "open", room.first, rows.start, rows.stop, room.make)

    def _expect_start(self, actor: "_Actor", room: "_Room") -> None:
        """Waits until the actor has made its environments of the room."""
        opening = actor.openings.pop(room.first)
        ready, _ = self._ray.wait([opening], timeout=max(START_SECONDS, self.settings.timeout))
        if not ready and actor.answers == 0:
            free = self._ray.available_resources().get("CPU", 0.0)
            self.end()
            raise ProximaError(
                f"env.actors: actor {actor.number} of {self.settings.actors}, which asks for "
                f"{self.settings.cores} CPU(s), has not started within {START_SECONDS:g} seconds; the "
                f"cluster has {free:g} free; take fewer actors or env.workers, or add machines"
            )
        actor.where = self.expected(actor, room, opening)

    def _await(self, actor: "_Actor", pending: Any, seconds: float) -> tuple[Any, str | None]:
        """The content of an answer and no problem, or the problem in words."""
        failures = self._ray.exceptions
        try:
            answer: Answer = self._ray.get(pending, timeout=seconds)
        except failures.GetTimeoutError:
            return None, f"has not answered for {seconds:g} seconds (env.worker_timeout)"
        except failures.RayTaskError as error:
            cause = error.cause
            return None, f"failed: {str(cause) or type(cause).__name__}"
        except failures.RayActorError as error:
            with_what = "machine" if "node has died" in str(error) else "process"
            return None, f"was lost with its {with_what}"
        except failures.RayError as error:
            return None, f"was lost ({str(error).splitlines()[0]})"
        actor.answers += 1
        for sentence in answer.sentences:
            self._say(f"actor {actor.number} of {self.settings.actors}: {sentence}")
        return answer.content, None

    def _replace(self, actor: "_Actor", room: "_Room", problem: str) -> None:
        """Starts another in the actor's place, in new episodes; or ends the run, by the settings."""
        message = self._described(actor, room, problem)
        self._ray.kill(actor.handle)
        most, is_steady = self.settings.most_failures, actor.answers >= self.settings.steady
        actor.failures = 1 if is_steady else actor.failures + 1
        if not self.settings.restarts or actor.failures > most:
            self.end()
            with_restart = "with env.on_worker_failure=restart the run would go on"
            again = f"it was started again {most} times already"
            raise ProximaError(f"{message}; {again if self.settings.restarts else with_restart}")
        self._start(actor)
        concerned = [(each, part) for each in self._rooms for part in each.rows_of(actor)]
        for each, rows in concerned:
            actor.openings[each.first] = self._opening(actor, each, rows)
        for each, rows in concerned:
            self._expect_start(actor, each)
            for pool in each.pools:
                pool.begin_again(actor, rows, each.steps)
        self._say(f"{message}; they were started again, and their open episodes count as truncated")

    def _described(self, actor: "_Actor", room: "_Room", problem: str) -> str:
        total, share = room.shape.num_envs, room.shape.num_envs // room.shape.groups
        spans = [
            f"{first + rows.start} to {first + rows.stop - 1}"
            for first in range(0, total, share)
            for rows in room.rows_of(actor)
        ]
        return (
            f"{self.settings.name}: actor {actor.number} of {self.settings.actors} ({actor.where}; "
            f"environments {' and '.join(spans)} of {total}) {problem} at step {room.steps} after the "
            "pool's reset"
        )


@final
class ActorPool:
    """One group's environments, on all actors, as a pool of their own."""

    def __init__(self, actors: Actors, room: "_Room", number: int):
        self._actors = actors
        self._room = room
        self._number = number
        self.observation_space = room.shape.observation_space
        self.action_space = room.shape.action_space
        self.num_envs = room.shape.num_envs // room.shape.groups
        self._seeds: np.ndarray | None = None  # of the last reset, None before the first
        self._pending: dict[int, Any] = {}  # by actor, answers that are awaited
        self._begun: dict[int, PyTree] = {}  # by actor, observations of resets nobody asked for

    def reset(self, seeds: Sequence[int]) -> PyTree:
        """First observations of fresh episodes, environment i seeded with seeds[i]."""
        self._actors.await_start(self._room)
        self._room.steps = 0
        self._seeds = np.array(seeds)
        self._begun.clear()
        pending = [
            self._resetting(actor, rows, self._seeds[rows]) for actor, rows in self._room.parts
        ]
        obs = []
        for (actor, rows), answer in zip(self._room.parts, pending, strict=True):
            first = self._actors.received(actor, self._room, answer)
            if first is None:  # what the new one began with are not the seeds that were asked for
                self._seeds[rows] = seeds[rows]
                self._begun.pop(actor.number)
                again = self._resetting(actor, rows, self._seeds[rows])
                first = self._actors.expected(actor, self._room, again)
            obs.append(first)
        return _side_by_side(obs)

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of every environment."""
        for actor, rows in self._room.parts:
            if actor.number not in self._begun:
                self._pending[actor.number] = self._actors.request(
                    actor, "step", self._number, actions[rows]
                )

    def receive(self) -> HostStep:
        """The step that was started last."""
        self._room.steps += 1
        steps: dict[int, HostStep] = {}
        for actor, _ in self._room.parts:
            if actor.number in self._pending:
                pending = self._pending.pop(actor.number)
                steps[actor.number] = self._actors.received(actor, self._room, pending)
        for number, obs in self._begun.items():
            rows = next(rows for actor, rows in self._room.parts if actor.number == number)
            steps[number] = _lost(obs, rows.stop - rows.start)
        self._begun.clear()
        parts = [steps[actor.number] for actor, _ in self._room.parts]
        return HostStep(*map(_side_by_side, zip(*parts, strict=True)))

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment."""
        self.send(actions)
        return self.receive()

    def render(self) -> np.ndarray | None:
        """None: actors draw nothing."""
        return None

    def close(self) -> None:
        """Frees the environments, of all groups."""
        self._actors.leave(self._room)

    def begin_again(self, actor: "_Actor", rows: slice, steps: int) -> None:
        """Resets what a new actor has of this pool, with seeds made from the old ones."""
        from proxima.core.seeds import host_seed

        self._pending.pop(actor.number, None)
        if self._seeds is None:
            return
        old = self._seeds[rows].tolist()
        self._seeds[rows] = [host_seed(seed, steps, actor.failures) for seed in old]
        pending = self._resetting(actor, rows, self._seeds[rows])
        self._begun[actor.number] = self._actors.expected(actor, self._room, pending)

    def _resetting(self, actor: "_Actor", rows: slice, seeds: np.ndarray) -> Any:
        return self._actors.request(actor, "reset", self._number, seeds.tolist())


@final
class _Actor:
    """An actor, and what has to be remembered of it."""

    def __init__(self, number: int):
        self.number = number
        self.handle: Any = None
        self.where = ""  # process and machine
        self.failures = 0
        self.answers = 0  # since it was started
        self.openings: dict[int, Any] = {}  # by a room's first number, answers that are awaited


@final
class _Room:
    """Environments that were opened together: a pool for each group, and who has which rows of it."""

    def __init__(
        self,
        actors: Actors,
        shape: Shape,
        parts: list[tuple[_Actor, slice]],
        make: MakeShare,
        first: int,
    ):
        self.shape = shape
        self.parts = parts  # rows of every group
        self.make = make
        self.first = first
        self.numbers = list(range(first, first + shape.groups))
        self.steps = 0  # since the last reset, of all groups
        self.pools = [ActorPool(actors, self, number) for number in self.numbers]

    def rows_of(self, actor: _Actor) -> Iterator[slice]:
        """The actor's rows of every group, if it has any."""
        return (rows for owner, rows in self.parts if owner is actor)


_guests: list[Actors] = []  # of a Ray that was started here


def _joined_ray(guest: Actors) -> Any:
    """Ray, as this process uses it already, or one of our own that ends with its last guest."""
    ray = imported_ray("env.actors", of_our_own=True)
    if not ray.is_initialized():
        start_ray(ray, guest.settings.actors)
        _guests.append(guest)
    elif _guests:
        _guests.append(guest)
    return ray


def _leave_ray(guest: Actors, ray: Any) -> None:
    """Ends a Ray of our own when its last guest goes."""
    if guest in _guests:
        _guests.remove(guest)
        if not _guests:
            ray.shutdown()


def _lost(obs: PyTree, count: int) -> HostStep:
    """The rows of a step that was never done, after which new episodes begin with these observations."""
    no = np.zeros(count, bool)
    return HostStep(obs, np.zeros(count, np.float32), no, ~no, obs, no)


def _side_by_side(parts: Sequence[PyTree]) -> PyTree:
    """Arrays, or dicts of them, one after the other along their rows; in new memory."""
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)
