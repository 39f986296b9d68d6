"""The training loop: advance, record, evaluate, converge, save, repeat.

All lanes of a stage advance together; `books.py` keeps what happened to each. The loop drives a Stage
and knows nothing of environments, models or devices. What happens goes to an observer, once per chunk.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from proxima.core.types import PyTree
from proxima.train import books
from proxima.train.books import Progress
from proxima.train.stage import Row, Score, Stage


class Report(NamedTuple):
    """What an observer hears after a chunk; rows and scores by lane, None where the lane had stopped."""

    progress: Progress
    rows: list[Row | None]
    scores: list[Score | None] | None  # None: nothing was evaluated
    seconds: float
    evaluate_seconds: float  # of these
    best: list[int]  # lanes whose evaluation was their best so far
    save: bool  # a checkpoint is due
    states: PyTree  # to be read now: the next chunk gives them up


class Observer(NamedTuple):
    """Who listens to a stage."""

    record: Callable[[Report], Mapping[int, str]]  # lanes that should stop now, and why
    save: Callable[[PyTree, Progress], None]  # a checkpoint of all lanes besides those of reports
    interrupted: Callable[[], bool]  # asked between chunks


def train(
    stage: Stage, states: PyTree, progress: Progress, observer: Observer
) -> tuple[PyTree, Progress]:
    """Chunks until every lane has stopped or the observer was interrupted."""
    if stage.schedule.evaluate_first and progress.chunks == 0:
        progress = _first_evaluation(stage, states, progress, observer)
    while progress.active.any() and not observer.interrupted():
        active, started = progress.active, time.perf_counter()
        updates = books.next_updates(stage, progress)
        done = max(book.updates for book in progress.books if book.stopped is None)
        states, rows = stage.advance(states, active, updates, done)
        trained = time.perf_counter()
        progress = books.after_chunk(stage, progress, rows, updates)

        scores, improved = None, list[int]()
        if books.evaluation_due(progress, active, stage.schedule):
            scores = books.of_active(stage.evaluate(states), active)
            progress, improved = books.after_evaluation(stage, progress, scores)
        progress = books.stop_at_budget(progress, stage.schedule)
        evaluated = time.perf_counter()

        save = progress.chunks % stage.schedule.save_every == 0 or not progress.active.any()
        if save:
            states = stage.reseed(states)
        steps = updates * stage.steps_per_update
        times = {
            "time/train": trained - started,
            "time/evaluate": evaluated - trained,
            "time/steps_per_second": steps / max(trained - started, 1e-9),
        }
        report = Report(
            progress,
            books.of_active([row | times for row in rows], active),
            scores,
            seconds=time.perf_counter() - started,
            evaluate_seconds=evaluated - trained,
            best=improved,
            save=save,
            states=states,
        )
        progress = observed(observer, report)
    return states, progress


def observed(observer: Observer, report: Report) -> Progress:
    """The observer hears a report and may stop lanes; the progress after that."""
    progress = books.stop(report.progress, observer.record(report))
    # who was stopped by the observer is not in the checkpoint that it has just made
    if progress != report.progress and (report.save or not progress.active.any()):
        observer.save(report.states, progress)
    return progress


def _first_evaluation(
    stage: Stage, states: PyTree, progress: Progress, observer: Observer
) -> Progress:
    """What the lanes are worth before the first update; it is no chunk and nothing is saved."""
    started = time.perf_counter()
    scores = stage.evaluate(states)
    seconds = time.perf_counter() - started
    rows: list[Row | None] = [{"time/evaluate": seconds} for _ in stage.trials]
    with_scores = tuple(
        books.converged(book, stage.converge_evaluation(book.convergence, score, 0), stage.schedule)
        for book, score in zip(progress.books, scores, strict=True)
    )
    progress = progress._replace(books=with_scores)
    report = Report(progress, rows, list(scores), seconds, seconds, [], False, states)
    return books.stop(progress, observer.record(report))
