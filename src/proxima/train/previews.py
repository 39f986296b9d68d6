"""Previews of evaluations for onlookers: of as many lanes at a time as training does not notice.

    after each evaluation, beginning with the lane whose preview is oldest:
        while all previews so far took less than GRACE_SECONDS + SHARE × the time since the first
            make that lane's preview

Which lanes have one therefore depends on the clock, as nothing that is trained or judged may.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import final

from proxima.core.types import PyTree
from proxima.train.stage import Preview, Score, Stage

SHARE = 0.01  # of the time of training that previews may take
GRACE_SECONDS = 0.25  # that they may take besides, so that short runs have them all

Policies = Callable[[PyTree], Sequence[PyTree]]  # states → each lane's policy, on the host
MakePreview = Callable[[int, PyTree], Preview]  # of a trial and its policy


@final
class Previews:
    """Makes previews of lanes in turn, within the time that they may take."""

    def __init__(
        self,
        trials: Sequence[int],
        policies: Policies,
        make: MakePreview,
        clock: Callable[[], float],
    ):
        self._trials, self._policies, self._make, self._clock = trials, policies, make, clock
        self._oldest_first = deque(range(len(trials)))
        self._began: float | None = None
        self._spent = 0.0

    def compile(self, states: PyTree) -> None:
        """Make one that does not count."""
        self._make(self._trials[0], self._policies(states)[0])

    def due(self, states: PyTree) -> Iterator[tuple[int, Preview]]:
        """Lanes, each with its preview, until the time is used up."""
        policies: Sequence[PyTree] = ()
        for lane in tuple(self._oldest_first):
            started = self._clock()
            self._began = started if self._began is None else self._began
            if self._spent >= GRACE_SECONDS + SHARE * (started - self._began):
                return
            policies = policies or self._policies(states)
            preview = self._make(self._trials[lane], policies[lane])
            self._oldest_first.rotate(-1)
            self._spent += self._clock() - started
            yield lane, preview


def with_previews(
    stage: Stage,
    policies: Policies,
    make: MakePreview,
    clock: Callable[[], float] = time.perf_counter,
) -> Stage:
    """The stage with previews among its scores; what it trains and how it is evaluated stays the same."""
    previews = Previews(stage.trials, policies, make, clock)

    def prepare(states: PyTree) -> PyTree:
        states = stage.prepare(states)
        previews.compile(states)
        return states

    def evaluate(states: PyTree) -> list[Score]:
        scores = stage.evaluate(states)
        for lane, preview in previews.due(states):
            scores[lane] = scores[lane]._replace(preview=preview)
        return scores

    return stage._replace(prepare=prepare, evaluate=evaluate)
