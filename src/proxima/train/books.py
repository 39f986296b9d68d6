"""The books of a stage: what the loop knows of each lane, and what a chunk or an evaluation adds to it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from proxima.train.convergence import Convergence
from proxima.train.stage import Row, Schedule, Score, Stage, is_watched

T = TypeVar("T")


class Book(NamedTuple):
    """What the loop knows of one lane; plain numbers, saved with every checkpoint."""

    steps: int = 0
    updates: int = 0
    episodes: int = 0
    evaluated_at: int = 0  # the count of `Schedule.evaluate_by` at the last evaluation
    best: float | None = None  # the best value of an evaluation
    convergence: Convergence = Convergence()
    stopped: str | None = None  # converged, budget, nan, alarm or callback; None while active
    nan_at_step: int | None = None


class Progress(NamedTuple):
    """Where a stage stands: everything that a resumed run takes up again besides the states."""

    chunks: int
    books: tuple[Book, ...]

    @property
    def active(self) -> np.ndarray:
        return np.array([book.stopped is None for book in self.books])

    @property
    def steps(self) -> int:
        """The steps of the lane that is furthest."""
        return max(book.steps for book in self.books)


def fresh_progress(lanes: int) -> Progress:
    """Nothing done yet."""
    return Progress(0, tuple(Book() for _ in range(lanes)))


def next_updates(stage: Stage, progress: Progress) -> int:
    """This chunk's updates: the usual number, fewer where the step budget ends sooner."""
    schedule = stage.schedule
    if schedule.max_steps is None:
        return schedule.updates_per_chunk
    done = max(book.steps for book in progress.books if book.stopped is None)
    left = -(-(schedule.max_steps - done) // stage.steps_per_update)
    return min(schedule.updates_per_chunk, left)


def after_chunk(stage: Stage, progress: Progress, rows: list[Row], updates: int) -> Progress:
    """The books after a chunk; a loss or gradient that is not finite stops its lane."""

    def after(book: Book, row: Row) -> Book:
        if book.stopped is not None:
            return book
        book = book._replace(
            steps=book.steps + updates * stage.steps_per_update,
            updates=book.updates + updates,
            episodes=book.episodes + round(row.get("episode/count", 0.0)),
        )
        if not np.isfinite([row[key] for key in row if is_watched(key)]).all():
            return book._replace(stopped="nan", nan_at_step=book.steps)
        memory = stage.converge_training(book.convergence, row, book.steps)
        return converged(book, memory, stage.schedule)

    return Progress(progress.chunks + 1, tuple(map(after, progress.books, rows)))


def evaluation_due(progress: Progress, active: np.ndarray, schedule: Schedule) -> bool:
    """Whether some lane that ran has done enough since its last evaluation, or is at its end."""
    return any(
        _counted(book, schedule) - book.evaluated_at >= schedule.evaluate_every
        or budget_used(book, schedule)
        for book in of_active(progress.books, active)
        if book is not None and book.stopped in (None, "converged")
    )


def after_evaluation(
    stage: Stage, progress: Progress, scores: list[Score | None]
) -> tuple[Progress, list[int]]:
    """The books after an evaluation, and the lanes for which it was the best so far."""
    books, improved = list(progress.books), []
    for lane, (book, score) in enumerate(zip(books, scores, strict=True)):
        if score is None or book.stopped == "nan":
            continue
        book = book._replace(evaluated_at=_counted(book, stage.schedule))
        if book.best is None or score.value > book.best:
            book = book._replace(best=score.value)
            improved.append(lane)
        memory = stage.converge_evaluation(book.convergence, score, book.steps)
        books[lane] = converged(book, memory, stage.schedule)
    return progress._replace(books=tuple(books)), improved


def stop_at_budget(progress: Progress, schedule: Schedule) -> Progress:
    """The lanes that have used their budget are stopped."""
    used = [lane for lane, book in enumerate(progress.books) if budget_used(book, schedule)]
    return stop(progress, dict.fromkeys(used, "budget"))


def reopened(book: Book, schedule: Schedule, converges_anew: bool) -> Book:
    """A saved book as it goes on by this schedule, which may not be the one that it was saved by.

    A lane that had used its budget goes on where there is more now; `converges_anew`: what counts as
    solved is another thing now, so one that had converged goes on too.
    """
    if converges_anew:
        memory = book.convergence._replace(reached_at_step=None, waited=0, converged=False)
        stopped = None if book.stopped == "converged" else book.stopped
        book = book._replace(convergence=memory, stopped=stopped)
    if book.stopped in (None, "budget"):
        book = book._replace(stopped="budget" if budget_used(book, schedule) else None)
    return book


def budget_used(book: Book, schedule: Schedule) -> bool:
    """Whether the lane has had its steps or its episodes."""
    return (schedule.max_steps is not None and book.steps >= schedule.max_steps) or (
        schedule.max_episodes is not None and book.episodes >= schedule.max_episodes
    )


def _counted(book: Book, schedule: Schedule) -> int:
    return book.episodes if schedule.evaluate_by == "episodes" else book.steps


def converged(book: Book, memory: Convergence, schedule: Schedule) -> Book:
    """The book with a new memory of convergence, which may stop the lane."""
    stops = memory.converged and schedule.stop_when_converged
    return book._replace(convergence=memory, stopped="converged" if stops else book.stopped)


def stop(progress: Progress, reasons: Mapping[int, str]) -> Progress:
    """The lanes named are stopped for these reasons, unless they have stopped for another before."""
    books = tuple(
        book._replace(stopped=book.stopped or reasons.get(lane))
        for lane, book in enumerate(progress.books)
    )
    return progress._replace(books=books)


def of_active(values: Sequence[T], active: np.ndarray) -> list[T | None]:
    """The values of the lanes that are active, None for the others."""
    return [value if is_active else None for value, is_active in zip(values, active, strict=True)]
