"""Carries out a method's orders on lanes that are never idle.

    until no order is left:
        free lanes take up jobs: the seeds of the method's next orders
        all lanes advance to their next evaluation together, and are evaluated
        jobs that are done free their lane; an order whose seeds are all done is told to the method

A lane keeps the state of what it trained until it takes up something else. If the method may want that
state later, it is parked: in memory, and on the disk when the search is saved.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.types import TrainState
from proxima.train.convergence import ConvergenceConfig, observe
from proxima.train.stage import Row, Score, is_watched
from proxima.tune.bench import Bench, Start
from proxima.tune.ledger import Job, Lane, Ledger, Seat, Training
from proxima.tune.method import Method, Order, Outcome, Settings
from proxima.tune.objective import Objective, score_of, value_of

SOMETIMES = ("episode/return", "episode/length")  # recorded only where an episode ended


class Rules(NamedTuple):
    """How configurations are trained and judged."""

    seeds: tuple[int, ...]  # one training of a configuration for each
    evaluations: int  # of a whole training
    objective: Objective
    convergence: ConvergenceConfig
    max_episodes: int | None


def metric_of(figures: Row, metric: str) -> float | None:
    """A metric's value, None where it has none this time; an error where it never has one."""
    if metric in figures or metric in SOMETIMES:
        return figures.get(metric)
    known = [*figures, *SOMETIMES]
    near = difflib.get_close_matches(metric, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known))}"
    raise ProximaError(f"search.metric: {metric} is not recorded; {hint}")


def values_of(ledger: Ledger, rules: Rules, number: int) -> tuple[float | None, ...]:
    """The objective of each seed of a configuration so far; None where it broke down."""
    trainings = [ledger.training((number, place)) for place in range(len(rules.seeds))]
    return tuple(
        None if each.ended == "broken" or not each.curve else value_of(rules.objective, each.curve)
        for each in trainings
    )


# Settings that change on the way: evaluations done, and the settings from then on; by configuration.
Schedules = Mapping[int, Mapping[int, Settings]]


class Parking(Protocol):
    """Where states wait that no lane has."""

    def put(self, seat: Seat, evaluations: int, state: TrainState) -> None: ...
    def get(self, seat: Seat, evaluations: int, like: TrainState) -> TrainState: ...


Program = Callable[[Settings], int]  # which program trains a configuration


@final
class Engine:
    """A search under way."""

    def __init__(
        self,
        method: Method,
        rules: Rules,
        bench: Bench,
        program_of: Program,
        parking: Parking,
        ledger: Ledger,
        schedules: Schedules | None = None,
    ):
        self.method, self.rules, self.bench, self.ledger = method, rules, bench, ledger
        self._schedules = schedules or {}
        self._program_of, self._parking = program_of, parking
        self._programs: dict[int, int] = {}  # by the configuration's number

    def take_up(self) -> bool:
        """Free lanes go on with something else; whether any lane has something to train."""
        self._order()
        # An order of a configuration that has converged is carried out at once: then ask again.
        while not self.ledger.running and not self.ledger.waiting:
            if not self._switch():
                return False
        self._assign()
        return True

    def advance(self) -> None:
        """All lanes to their next evaluation."""
        ledger, updates = self.ledger, [0] * self.bench.width
        for index in ledger.running:
            updates[index] = self._updates(self._lane(index).done)
        self._follow_schedules()
        rows, scores = self.bench.advance(updates), self.bench.evaluate()
        ledger.chunks += 1
        ledger.steps += sum(updates) * self.bench.loaded.program.steps_per_update
        for index in ledger.running:
            self._record(index, rows[index], scores[index])
        for index in ledger.running:
            self._end_if_done(index)

    def wanted(self) -> set[int]:
        """The configurations whose states must not be lost: seeds end before their siblings, too."""
        jobs = [self._lane(index).job for index in self.ledger.running] + self.ledger.waiting
        open_ones = {
            job.number for job in jobs if job.begin > 0 or job.end < self.rules.evaluations
        }
        return self.method.wanted() | open_ones

    def start_of(self, lane: Lane, state: TrainState | None = None) -> Start:
        """What a lane with this job is begun with."""
        job = lane.job
        settings = self.method.settings[job.number]
        for begin, changed in self._schedules.get(job.number, {}).items():
            settings = changed if begin < lane.done else settings
        return Start(settings, self.rules.seeds[job.place], state)

    def park(self) -> None:
        """Park the states that lanes have and the method may want later."""
        wanted = self.wanted()
        for index, lane in enumerate(self.ledger.lanes):
            if lane is not None and not lane.is_running and lane.job.number in wanted:
                self._parking.put(lane.job.seat, lane.done, self.bench.take(index))

    def _follow_schedules(self) -> None:
        """Lanes go on with the settings that are due now."""
        changes = {}
        for index in self.ledger.running:
            lane = self._lane(index)
            due = self._schedules.get(lane.job.number, {})
            if lane.done and lane.done in due:
                changes[index] = due[lane.done]
        self.bench.change(changes)

    def _order(self) -> None:
        """Orders for the program at hand, as many as there are free lanes for."""
        ledger = self.ledger
        while len(ledger.waiting) < self.bench.width - len(ledger.running):
            order = self.method.next(self._fits)
            if order is None:
                return
            self._accept(order)

    def _fits(self, number: int) -> bool:
        return self.program_of(number) == self.ledger.program

    def program_of(self, number: int) -> int:
        """The program that trains a configuration."""
        if number not in self._programs:
            self._programs[number] = self._program_of(self.method.settings[number])
        return self._programs[number]

    def _accept(self, order: Order) -> None:
        self.ledger.events.append(order)
        jobs = [Job(order.number, place, *order[1:]) for place in range(len(self.rules.seeds))]
        # A seed that converged or used its episodes up before has nothing more to train.
        self.ledger.waiting += [job for job in jobs if self.ledger.training(job.seat).ended is None]
        if not self._is_open(order.number):
            self._tell(order.number, order.end)

    def _switch(self) -> bool:
        """No order is left for the program at hand: another program, if one has orders."""
        order = self.method.next(lambda number: True)
        if order is None:
            return False
        self.park()
        self.ledger.lanes = [None] * self.bench.width
        self.ledger.program = self.program_of(order.number)
        self.bench.load(self.ledger.program, self.method.settings[order.number])
        self._accept(order)
        self._order()
        return True

    def _assign(self) -> None:
        """Waiting jobs to lanes: first to those that still have their state, then to any free one."""
        ledger = self.ledger
        for index, lane in enumerate(ledger.lanes):
            if lane is None or lane.is_running:
                continue
            mine = [job for job in ledger.waiting if job.seat == lane.job.seat]
            if mine:
                ledger.waiting.remove(mine[0])
                ledger.lanes[index] = Lane(mine[0], lane.done)
        free = [i for i in range(self.bench.width) if i not in ledger.running]
        taken = ledger.waiting[: len(free)]
        if not taken:
            return
        wanted, starts = self.wanted(), {}
        for index in free[: len(taken)]:
            before = ledger.lanes[index]
            if before is not None and before.job.number in wanted:
                self._parking.put(before.job.seat, before.done, self.bench.take(index))
        for index, job in zip(free, taken, strict=False):
            lane = Lane(job, job.begin)
            state = None
            if job.begin:
                state = self._parking.get(job.seat, job.begin, self.bench.take(index))
            starts[index] = self.start_of(lane, state)
            ledger.lanes[index] = lane
        ledger.waiting = ledger.waiting[len(taken) :]
        self.bench.begin(starts)

    def _updates(self, done: int) -> int:
        """Updates from one evaluation to the next: a whole training in as many even parts."""
        whole, parts = self.bench.loaded.updates, self.rules.evaluations
        return whole * (done + 1) // parts - whole * done // parts

    def _record(self, index: int, row: Row, score: Score) -> None:
        """What a lane has learnt since its last evaluation."""
        lane, rules = self._lane(index), self.rules
        self.ledger.lanes[index] = lane = lane._replace(done=lane.done + 1)
        whole = self.bench.loaded.updates * lane.done // rules.evaluations
        steps = whole * self.bench.loaded.program.steps_per_update
        before, figures = self.ledger.training(lane.job.seat), row | score.figures
        value = metric_of(figures, rules.objective.metric)
        watched = [figures[name] for name in row if is_watched(name)]
        is_broken = not np.isfinite(watched).all() or (value is not None and not np.isfinite(value))
        curve = before.curve if value is None or is_broken else (*before.curve, (steps, value))
        memory = before.convergence
        if rules.convergence.source == "evaluation":
            memory = observe(rules.convergence, memory, score.value, score.episodes, steps)
        elif "episode/return" in row:
            count = round(row["episode/count"])
            memory = observe(rules.convergence, memory, row["episode/return"], count, steps)
        episodes = before.episodes + round(row["episode/count"])
        after = Training(curve, episodes, memory)
        if is_broken:
            after = after._replace(ended="broken")
        elif memory.converged:
            after = after._replace(ended="converged")
        elif rules.max_episodes is not None and episodes >= rules.max_episodes:
            after = after._replace(ended="done")
        self.ledger.trainings[lane.job.seat] = after

    def _end_if_done(self, index: int) -> None:
        lane = self.ledger.lanes[index]
        if lane is None or not lane.is_running:  # ended with another seed of its configuration
            return
        ended = self.ledger.training(lane.job.seat).ended
        if ended is None and lane.done < lane.job.end:
            return
        self.ledger.lanes[index] = lane._replace(is_running=False)
        number = lane.job.number
        if ended == "broken":
            self._abandon(number)
        if not self._is_open(number):
            self._tell(number, lane.job.end)

    def _abandon(self, number: int) -> None:
        """One seed broke down: the configuration's others need not go on."""
        ledger = self.ledger
        ledger.waiting = [job for job in ledger.waiting if job.number != number]
        for index in ledger.running:
            lane = self._lane(index)
            if lane.job.number == number:
                ledger.lanes[index] = lane._replace(is_running=False)

    def _is_open(self, number: int) -> bool:
        return number in self.ledger.open

    def _tell(self, number: int, evaluations: int) -> None:
        value = score_of(self.rules.objective, values_of(self.ledger, self.rules, number))
        self.ledger.events.append(Outcome(number, evaluations, value))
        self.ledger.finished[number] = self.ledger.steps
        self.method.tell(number, evaluations, value)

    def _lane(self, index: int) -> Lane:
        lane = self.ledger.lanes[index]
        assert lane is not None
        return lane
