"""Where the wall time of a run goes: seconds by part, each part also a span for whoever collects them.

build       reading data, making agent and environments
compile     programs made ready, before the first update
train       chunks: rollouts and learning
evaluate    evaluations during training
save        metrics written, checkpoints
profile     measuring the parts of an update, where telemetry.phases asks for it
finish      closing evaluation, plots, film, exported policies, report
tracking    waiting at the end for the tracker
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from proxima.track.tracker import Attributes, Spans
from proxima.train.loop import Report


class Clock(NamedTuple):
    """The seconds so far, those before a resume included, and where spans go."""

    seconds: dict[str, float]
    spans: Spans


def note(
    clock: Clock, part: str, seconds: float, attributes: Attributes | None = None, ago: float = 0.0
) -> None:
    """A part took so many seconds and ended that long ago."""
    clock.seconds[part] = clock.seconds.get(part, 0.0) + seconds
    end = time.time_ns() - round(ago * 1e9)
    clock.spans.add(part, end - round(seconds * 1e9), end, attributes or {})


@contextmanager
def timed(clock: Clock, part: str, attributes: Attributes | None = None) -> Iterator[None]:
    """Notes the time that passes within, also where that ends in an error."""
    start = time.perf_counter()
    try:
        yield
    finally:
        note(clock, part, time.perf_counter() - start, attributes)


def note_chunk(clock: Clock, report: Report) -> None:
    """A chunk that has just ended, and its evaluation if it had one."""
    step, evaluating = report.progress.steps, report.evaluate_seconds
    active = sum(row is not None for row in report.rows)
    chunk = {"step": step, "chunk": report.progress.chunks, "trials": active}
    note(clock, "train", report.seconds - evaluating, chunk, ago=evaluating)
    scores = [score for score in report.scores or [] if score is not None]
    if scores:
        note(clock, "evaluate", evaluating, {"step": step, "episodes": scores[0].episodes})


def time_summary(clock: Clock) -> dict[str, float]:
    """What results.json calls `time`: seconds by part, and in all."""
    return clock.seconds | {"total": sum(clock.seconds.values())}
