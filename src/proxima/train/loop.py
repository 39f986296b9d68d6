"""The training loop: chunk, record, evaluate, converge, checkpoint, repeat.

All trials advance together; each has its own book of what happened to it. The loop drives a Program
and knows nothing of environments or devices; what it notices goes to an observer, once per chunk.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_types import Ge

from proxima.core.types import TrainState
from proxima.train.checkpoint import CheckpointConfig
from proxima.train.compiled.chunk import is_watched
from proxima.train.convergence import Convergence, ConvergenceConfig, observe
from proxima.train.evaluate import EvaluationConfig
from proxima.train.program import Evaluation, Program

CHUNKS_PER_RUN = 50  # points of a learning curve, when the scenario does not say
LARGEST_CHUNK = 50_000  # environment steps; longer ones would make a run slow to answer


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The budget, and how often the host hears from the program."""

    max_steps: Annotated[int, Ge(1)] | None = None
    """Environment steps per trial; null is bounded by max_episodes alone."""
    max_episodes: Annotated[int, Ge(1)] | None = 1000
    """Episodes per trial; null is bounded by max_steps alone."""
    updates_per_chunk: Annotated[int, Ge(1)] | None = None
    """Updates between two reports to the host; null gives about 50 reports in a run."""
    threads: Annotated[int, Ge(1)] = 1
    """CPU threads per device inside one operation; more than 1 pays for large nets only."""


class Settings(NamedTuple):
    """The sections of a scenario that the loop reads."""

    training: TrainingConfig
    evaluation: EvaluationConfig
    convergence: ConvergenceConfig
    checkpoint: CheckpointConfig


class Book(NamedTuple):
    """What the loop knows of one trial; plain numbers, saved with every checkpoint."""

    steps: int = 0
    episodes: int = 0
    evaluated_at_episode: int = 0
    best_return: float | None = None  # best mean of an evaluation
    convergence: Convergence = Convergence()
    stopped: str | None = None  # converged, budget, nan or callback; None while active
    nan_at_step: int | None = None


class Progress(NamedTuple):
    """Where a run stands: everything that a resumed run takes up again besides the TrainStates."""

    chunks: int
    books: tuple[Book, ...]

    @property
    def active(self) -> np.ndarray:
        return np.array([book.stopped is None for book in self.books])


class ChunkReport(NamedTuple):
    """What an observer hears after a chunk; metrics and evaluation by trial, None where it had stopped."""

    progress: Progress
    metrics: list[dict[str, float] | None]
    evaluation: Evaluation | None
    seconds: float
    evaluate_seconds: float  # of these
    save_best: list[int]  # trials whose evaluation was their best so far
    checkpoint_due: bool
    states: TrainState  # to be read now: the next chunk gives them up


class Observer(NamedTuple):
    """Who listens: `chunk` may stop the run by returning False; `interrupted` asks between chunks."""

    chunk: Callable[[ChunkReport], Any]
    interrupted: Callable[[], bool]


def fresh_progress(trials: int) -> Progress:
    """Nothing done yet."""
    return Progress(0, tuple(Book() for _ in range(trials)))


def train(
    program: Program, states: TrainState, progress: Progress, settings: Settings, observer: Observer
) -> tuple[TrainState, Progress]:
    """Chunks until every trial has stopped or the observer has had enough."""
    updates_per_chunk = chunk_updates(settings.training, program.steps_per_update)
    while progress.active.any() and not observer.interrupted():
        active = progress.active
        started = time.perf_counter()
        updates = next_updates(
            settings.training, progress, program.steps_per_update, updates_per_chunk
        )
        states, sums = program.chunk(states, active, updates)
        trained = time.perf_counter()
        steps = updates * program.steps_per_update
        metrics = [
            trial_metrics(sums, trial, updates) if active[trial] else None
            for trial in range(len(active))
        ]
        books = tuple(
            after_chunk(book, row, steps, settings) if row is not None else book
            for book, row in zip(progress.books, metrics, strict=True)
        )
        progress = Progress(progress.chunks + 1, books)

        evaluation: Evaluation | None = None
        improved: list[int] = []
        if evaluation_due(progress, active, settings):
            evaluation = program.evaluate(
                states.learner, "greedy", settings.evaluation.eval_episodes
            )
            progress, improved = after_evaluation(progress, active, evaluation, settings)
        progress = apply_budget(progress, settings.training)
        evaluated = time.perf_counter()
        add_times(metrics, started, trained, evaluated, steps)

        checkpoint_due = (
            progress.chunks % settings.checkpoint.frequency == 0 or not progress.active.any()
        )
        if checkpoint_due:
            states = program.reseed(states)
        report = ChunkReport(
            progress,
            metrics,
            evaluation,
            time.perf_counter() - started,
            evaluated - trained,
            improved,
            checkpoint_due,
            states,
        )
        if observer.chunk(report) is False:
            books = tuple(b._replace(stopped=b.stopped or "callback") for b in progress.books)
            return states, progress._replace(books=books)
    return states, progress


def chunk_updates(config: TrainingConfig, steps_per_update: int) -> int:
    """Updates per chunk: the scenario's, or about 50 chunks in a run."""
    if config.updates_per_chunk is not None:
        return config.updates_per_chunk
    wanted = LARGEST_CHUNK if config.max_steps is None else config.max_steps / CHUNKS_PER_RUN
    if config.max_steps is None and config.max_episodes is not None:
        wanted = 4 * steps_per_update  # episodes are counted between chunks: look often
    return max(1, round(min(wanted, LARGEST_CHUNK) / steps_per_update))


def next_updates(
    config: TrainingConfig, progress: Progress, steps_per_update: int, updates_per_chunk: int
) -> int:
    """This chunk's updates: the usual number, fewer where the step budget ends sooner."""
    if config.max_steps is None:
        return updates_per_chunk
    done = max(book.steps for book in progress.books if book.stopped is None)
    left = -(-(config.max_steps - done) // steps_per_update)
    return min(updates_per_chunk, left)


def trial_metrics(sums: dict[str, np.ndarray], trial: int, updates: int) -> dict[str, float]:
    """Means over the chunk's updates; of episodes, the mean over those that ended."""
    row = {key: float(values[trial]) for key, values in sums.items()}
    count = row.pop("episode/count")
    returns, lengths = row.pop("episode/return_sum"), row.pop("episode/length_sum")
    row = {key: value if key.startswith("time/") else value / updates for key, value in row.items()}
    row["episode/count"] = count
    if count > 0:
        row |= {"episode/return": returns / count, "episode/length": lengths / count}
    return row


def after_chunk(book: Book, row: dict[str, float], steps: int, settings: Settings) -> Book:
    """The trial's book after a chunk; a loss or gradient that is not finite stops the trial."""
    book = book._replace(
        steps=book.steps + steps, episodes=book.episodes + round(row["episode/count"])
    )
    watched = [row[key] for key in row if is_watched(key)]
    if not np.isfinite(watched).all():
        return book._replace(stopped="nan", nan_at_step=book.steps)
    if settings.convergence.source == "training" and "episode/return" in row:
        book = _converge(book, row["episode/return"], round(row["episode/count"]), settings)
    return book


def evaluation_due(progress: Progress, active: np.ndarray, settings: Settings) -> bool:
    """Whether some active trial has seen enough new episodes, or its budget is used up."""
    watched = [
        book
        for book, was_active in zip(progress.books, active, strict=True)
        if was_active and book.stopped in (None, "converged")
    ]
    return any(
        book.episodes - book.evaluated_at_episode >= settings.evaluation.eval_frequency
        or budget_used(book, settings.training)
        for book in watched
    )


def after_evaluation(
    progress: Progress, active: np.ndarray, evaluation: Evaluation, settings: Settings
) -> tuple[Progress, list[int]]:
    """The books after an evaluation, and the trials for which it was the best so far."""
    books, improved = list(progress.books), []
    for trial, book in enumerate(books):
        if not active[trial] or book.stopped == "nan":
            continue
        mean = float(evaluation.returns[trial].mean())
        book = book._replace(evaluated_at_episode=book.episodes)
        if book.best_return is None or mean > book.best_return:
            book = book._replace(best_return=mean)
            improved.append(trial)
        if settings.convergence.source == "evaluation":
            book = _converge(book, mean, evaluation.returns.shape[1], settings)
        books[trial] = book
    return progress._replace(books=tuple(books)), improved


def apply_budget(progress: Progress, config: TrainingConfig) -> Progress:
    """Trials whose budget is used up are stopped."""
    books = tuple(
        book._replace(stopped="budget")
        if book.stopped is None and budget_used(book, config)
        else book
        for book in progress.books
    )
    return progress._replace(books=books)


def budget_used(book: Book, config: TrainingConfig) -> bool:
    """Whether the trial has had its steps or its episodes."""
    return (config.max_steps is not None and book.steps >= config.max_steps) or (
        config.max_episodes is not None and book.episodes >= config.max_episodes
    )


def add_times(
    metrics: list[dict[str, float] | None], started: float, trained: float, ended: float, steps: int
) -> None:
    """The chunk's time split, the same for every trial that ran in it."""
    for row in metrics:
        if row is not None:
            row["time/train"] = trained - started
            row["time/evaluate"] = ended - trained
            row["time/steps_per_second"] = steps / (trained - started)


def _converge(book: Book, mean: float, episodes: int, settings: Settings) -> Book:
    state = observe(settings.convergence, book.convergence, mean, episodes, book.steps)
    return book._replace(
        convergence=state, stopped="converged" if state.converged else book.stopped
    )
