"""What a run under way writes down: metrics once per chunk, checkpoints, and taking them up again."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from proxima.build import Built
from proxima.core.types import TrainState
from proxima.run.clock import Clock
from proxima.run.files import RunFiles, append_row, keep_rows_until
from proxima.scenario import Scenario, to_stored
from proxima.track.tracker import Tracker
from proxima.train import checkpoint
from proxima.train.compiled.chunk import Layout
from proxima.train.convergence import Convergence
from proxima.train.loop import Book, ChunkReport, Progress
from proxima.train.memory import memory_metrics

Callback = Callable[[dict[str, Any]], Any]


class StageView(NamedTuple):
    """Where a stage of a language run stands."""

    trial: int
    stage: str
    updates: int  # in its budget
    done: int
    metrics: Mapping[str, float]


class Display(NamedTuple):
    """Who shows a run to a person; every function may do nothing."""

    say: Callable[[str], None]
    chunk: Callable[[ChunkReport, float], None]  # the report, and seconds of training so far
    close: Callable[[], None]
    # a stage, and seconds per update
    stage: Callable[[StageView, float], None] = lambda view, seconds: None


def silent() -> Display:
    """A display that shows nothing."""
    return Display(lambda text: None, lambda report, seconds: None, lambda: None)


class Run(NamedTuple):
    """A run under way: what is fixed about it."""

    scenario: Scenario
    files: RunFiles
    built: Built
    tracker: Tracker
    display: Display
    clock: Clock


def record(run: Run, report: ChunkReport) -> None:
    """A chunk's numbers to the local files and the tracker, and its states where they are to be kept."""
    memory = memory_metrics()  # of the process, so the same for every trial
    for trial, row in enumerate(report.metrics):
        if row is None:
            continue
        book = report.progress.books[trial]
        if report.evaluation is not None:
            returns = report.evaluation.returns[trial]
            row |= {
                "eval/return_mean": float(returns.mean()),
                "eval/return_std": float(returns.std()),
                "eval/length_mean": float(report.evaluation.lengths[trial].mean()),
            }
        row |= {"episode/total": float(book.episodes)} | memory
        append_row(run.files.trial(trial) / "metrics.jsonl", {"step": book.steps} | row)
        run.tracker.log_metrics(trial, book.steps, row)
        if book.stopped == "nan":
            run.display.say(
                f"Trial {trial}: the loss is no longer a number after step {book.nan_at_step:,}; "
                "the trial is stopped with its last good state, saved in "
                f"{run.files.trial(trial) / 'checkpoints'}. "
                "A lower algorithm.learning_rate or algorithm.max_grad_norm usually helps."
            )
    if report.checkpoint_due:
        save_states(run, report.states, report.progress, best=report.save_best)
    elif report.save_best:
        save_states(run, report.states, report.progress, best=report.save_best, last=False)


def save_states(
    run: Run,
    states: TrainState,
    progress: Progress,
    best: list[int] | None = None,
    last: bool = True,
) -> None:
    """A checkpoint of every trial to resume from, or (not `last`) of those at their best only.

    Named by the step of the whole run, so that all trials, stopped ones too, share the names.
    """
    best = best or []
    lanes = checkpoint.split_trials(states)
    step = max(book.steps for book in progress.books)
    for trial in range(len(lanes)) if last else best:
        checkpoint.save(
            run.files.trial(trial),
            step,
            lanes[trial],
            {
                "scenario": to_stored(run.scenario),
                "trial": trial,
                "layout": run.built.layout._asdict(),
                "loop": {
                    "chunks": progress.chunks,
                    "book": book_to_json(progress.books[trial]),
                },
            },
            keep=run.scenario.checkpoint.keep,
            best=trial in best,
            last=last,
        )


def restore(run: Run, fresh: TrainState, progress: Progress) -> tuple[TrainState, Progress]:
    """The states and books of the newest checkpoint that every trial has."""
    directories = [run.files.trial(k) for k in range(run.scenario.trials)]
    step = checkpoint.common_step(directories)
    if step is None:
        run.display.say("No checkpoint yet: starting from the beginning.")
        for directory in directories:
            keep_rows_until(directory / "metrics.jsonl", 0)
        return fresh, progress
    lanes, books, chunks = [], [], 0
    for directory, template in zip(directories, checkpoint.split_trials(fresh), strict=True):
        state, manifest = checkpoint.load(checkpoint.at_step(directory, step), template)
        lanes.append(state)
        books.append(book_from_json(manifest["loop"]["book"]))
        chunks = max(chunks, manifest["loop"]["chunks"])
        keep_rows_until(directory / "metrics.jsonl", books[-1].steps)
    run.display.say(f"Resuming {run.files.run_id} at step {step:,}.")
    if Layout(**manifest["layout"]) != run.built.layout:
        run.display.say(
            "Its trials lay on the devices in another way, so what follows may differ in the last "
            "bits from what the run would have given there."
        )
    return run.built.program.place(checkpoint.stack_trials(lanes)), Progress(chunks, tuple(books))


def book_to_json(book: Book) -> dict[str, Any]:
    """A book as plain JSON."""
    return book._asdict() | {"convergence": book.convergence._asdict()}


def book_from_json(content: Mapping[str, Any]) -> Book:
    """The inverse of `book_to_json`."""
    convergence = dict(content["convergence"])
    convergence["groups"] = tuple((mean, count) for mean, count in convergence["groups"])
    return Book(**(dict(content) | {"convergence": Convergence(**convergence)}))


def callback_view(report: ChunkReport) -> dict[str, Any]:
    """What a user's callback gets: means over the trials that ran, and each trial's own numbers."""
    rows = [row for row in report.metrics if row is not None]
    books = report.progress.books
    step_metrics = {
        key: float(np.mean([row[key] for row in rows if key in row]))
        for key in sorted(set().union(*rows))
    }
    step_metrics["avg_reward"] = step_metrics.get("episode/return", float("nan"))
    view = {
        "episode": int(np.mean([book.episodes for book in books])),
        "step": max(book.steps for book in books),
        "step_metrics": step_metrics,
        "eval_metrics": None,
        "trials": report.metrics,
    }
    if report.evaluation is not None:
        returns = report.evaluation.returns
        view["eval_metrics"] = {
            "avg_reward": float(returns.mean()),
            "std_reward": float(returns.std()),
            "returns": returns,
        }
    return view
