"""What a search remembers of its configurations while it runs, all of it plain enough for JSON.

events      orders handed out and values told, as they happened: a resumed search replays them
lanes       what runs where, and how far it is
waiting     seeds of orders that no lane has taken up yet
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proxima.train.convergence import Convergence
from proxima.tune.method import Event, Order, Outcome
from proxima.tune.objective import Point
from proxima.tune.results import State

Seat = tuple[int, int]  # a configuration's number, and which of its seeds


class Job(NamedTuple):
    """One seed of an order."""

    number: int
    place: int  # which of the configuration's seeds
    begin: int
    end: int

    @property
    def seat(self) -> Seat:
        return self.number, self.place


class Lane(NamedTuple):
    """What a lane trains, and how far it is."""

    job: Job
    done: int  # evaluations so far, those of orders before included
    is_running: bool = True  # False: the job is over, but the lane still has its state


class Training(NamedTuple):
    """What is known of one seed of a configuration."""

    curve: tuple[Point, ...] = ()
    episodes: int = 0
    convergence: Convergence = Convergence()
    ended: State | None = None  # before its budget was used


@dataclass
class Ledger:
    """The books of a search."""

    lanes: list[Lane | None]
    events: list[Event] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    trainings: dict[Seat, Training] = field(default_factory=dict)
    # Number → steps of the search at its end.
    finished: dict[int, int] = field(default_factory=dict)
    program: int = -1  # none yet
    chunks: int = 0
    steps: int = 0  # of all environments together
    seconds: float = 0.0
    is_over: bool = False

    def training(self, seat: Seat) -> Training:
        """What is known of a seed; nothing yet where it has not begun."""
        return self.trainings.get(seat, Training())

    @property
    def running(self) -> list[int]:
        """The lanes that train something."""
        return [i for i, lane in enumerate(self.lanes) if lane is not None and lane.is_running]

    @property
    def open(self) -> set[int]:
        """The configurations with an order that is not carried out yet."""
        running = {self.lanes[i].job.number for i in self.running}  # type: ignore[union-attr]
        return running | {job.number for job in self.waiting}


def to_json(ledger: Ledger) -> dict[str, Any]:
    """As a checkpoint holds it; events, and the trainings of values that were told, have a file."""
    still_open = ledger.open
    return {
        "lanes": [None if lane is None else _lane_json(lane) for lane in ledger.lanes],
        "waiting": [list(job) for job in ledger.waiting],
        "trainings": [
            [*seat, _training_json(each)]
            for seat, each in ledger.trainings.items()
            if seat[0] in still_open
        ],
        "finished": [list(pair) for pair in ledger.finished.items()],
        "events": len(ledger.events),
        "program": ledger.program,
        "chunks": ledger.chunks,
        "steps": ledger.steps,
        "seconds": ledger.seconds,
        "is_over": ledger.is_over,
    }


def from_json(content: dict[str, Any], lines: Sequence[list[Any]]) -> Ledger:
    """The ledger that `to_json` described, with the lines of the file of events."""
    known = lines[: content["events"]]
    trainings = dict(pair for line in known for pair in told_trainings(line))
    trainings |= {(number, place): _training(each) for number, place, each in content["trainings"]}
    return Ledger(
        lanes=[None if each is None else _lane(each) for each in content["lanes"]],
        events=[event_of(line) for line in known],
        waiting=[Job(*job) for job in content["waiting"]],
        trainings=trainings,
        finished={number: steps for number, steps in content["finished"]},
        program=content["program"],
        chunks=content["chunks"],
        steps=content["steps"],
        seconds=content["seconds"],
        is_over=content["is_over"],
    )


def event_line(ledger: Ledger, event: Event, seeds: int) -> list[Any]:
    """An order; or a value, null where it is not finite, with the trainings that it is of."""
    if isinstance(event, Order):
        return ["order", *event]
    trainings = [_training_json(ledger.training((event.number, place))) for place in range(seeds)]
    value = event.value if math.isfinite(event.value) else None
    return ["told", event.number, event.evaluations, value, trainings]


def event_of(line: list[Any]) -> Event:
    """The event that a line is about."""
    kind, number, *rest = line
    if kind == "order":
        return Order(number, *rest)
    evaluations, value, _ = rest
    return Outcome(number, evaluations, -math.inf if value is None else value)


def told_trainings(line: list[Any]) -> Iterator[tuple[Seat, Training]]:
    """The trainings that a told value is of."""
    if line[0] == "told":
        for place, training in enumerate(line[4]):
            yield (line[1], place), _training(training)


def _lane_json(lane: Lane) -> list[Any]:
    return [list(lane.job), lane.done, lane.is_running]


def _lane(content: list[Any]) -> Lane:
    job, done, is_running = content
    return Lane(Job(*job), done, is_running)


def _training_json(training: Training) -> list[Any]:
    memory = training.convergence._asdict()
    return [[list(point) for point in training.curve], training.episodes, memory, training.ended]


def _training(content: list[Any]) -> Training:
    curve, episodes, memory, ended = content
    groups = tuple((mean, count) for mean, count in memory.pop("groups"))
    points = tuple((steps, value) for steps, value in curve)
    return Training(points, episodes, Convergence(groups=groups, **memory), ended)
