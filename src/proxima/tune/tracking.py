"""What a search tells its tracker: a run of its own, and below it one for every configuration.

A configuration is told when nothing more can come of it: its value is known, no order of it is open, and the
method will not go on with it. Those of a few seconds go together. The rest are told when all are over: those
that asha might still have promoted, and with pbt everybody, as members change to the end. What an interrupted
search had not told yet it tells when it is resumed.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import final

from proxima.track.tracker import FinishedRun, Status, Tracker
from proxima.tune.method import Event
from proxima.tune.phase import Carried
from proxima.tune.results import Configuration

EVERY = 5_000  # milliseconds between two messages: the more in each, the less each costs
MOST = 500  # configurations in a message


@final
class Tracking:
    """Owns a search's tracker; waits for it in `finish` only."""

    def __init__(self, tracker: Tracker, metric: str, note: Callable[[str], None]) -> None:
        self._tracker, self._metric, self._note = tracker, metric, note
        self._noted: str | None = None
        self._began = self._looked = self._sent = _now()
        self._read = 0  # events whose time is known
        self._times: dict[int, tuple[int, int]] = {}  # by number: first ordered, last told
        self._handed: set[int] = set()

    def follow(self, carried: Carried, configuration: Callable[[int], Configuration]) -> None:
        """After every chunk: tell what is over; `configuration` says what became of a number."""
        now = _now()
        self._note_times(carried.ledger.events, now)
        if now - self._sent >= EVERY:
            fresh = [number for number in over(carried) if number not in self._handed]
            self.hand_over([configuration(number) for number in fresh])
            self._sent = now

    def note_run(self) -> None:
        """Note the tracked run as soon as it is known, so that a search that is killed goes on with it."""
        ids = self._tracker.ids()
        if ids is not None and ids.parent != self._noted:
            self._noted = ids.parent
            self._note(ids.parent)

    def hand_over(self, configurations: Iterable[Configuration]) -> None:
        """Tell configurations that are over, each once."""
        fresh = [each for each in configurations if each.number not in self._handed]
        for start in range(0, len(fresh), MOST):
            runs = [self._run(each) for each in fresh[start : start + MOST]]
            self._tracker.log_finished(runs)
        self._handed |= {each.number for each in fresh}

    def hand_over_whole(
        self, steps: int, figures: Mapping[str, float], files: Sequence[Path]
    ) -> None:
        """Tell what the search came to: numbers, and those of the files that exist."""
        self._tracker.log_parent_metrics(steps, figures)
        for path in files:
            if path.exists():
                self._tracker.log_artifacts(None, path, None)

    def finish(self, status: Status) -> None:
        """Wait until all is written; whatever went wrong has been said."""
        self._tracker.finish((), status)
        self.note_run()

    def _note_times(self, events: Sequence[Event], now: int) -> None:
        """When configurations began and ended; what an interrupted search had done, when it was resumed."""
        for event in events[self._read :]:
            begin, _ = self._times.get(event.number, (self._looked, now))
            self._times[event.number] = begin, now
        self._read, self._looked = len(events), now

    def _run(self, each: Configuration) -> FinishedRun:
        begin, end = self._times.get(each.number, (self._began, _now()))
        values = () if each.value is None else ((each.steps, each.value),)
        metrics = {
            self._metric: each.curve,
            "search/value": values,
            "search/steps": ((each.steps, float(each.steps)),),
        }
        return FinishedRun(
            number=each.number,
            name=f"configuration_{each.number}",
            params={path: str(value) for path, value in each.settings.items()}
            | {"program": str(each.program)},
            metrics={
                name: [(step, value) for step, value in points if math.isfinite(value)]
                for name, points in metrics.items()
            },
            tags={"proxima.kind": "configuration", "proxima.state": each.state},
            start=begin,
            end=end,
        )


def over(carried: Carried) -> list[int]:
    """The numbers of configurations of which nothing more can come."""
    going = carried.ledger.open | carried.method.wanted()
    return [number for number in carried.ledger.finished if number not in going]


def _now() -> int:
    return time.time_ns() // 1_000_000
