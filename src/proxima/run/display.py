"""What is shown of a run, and what a user's callback gets: views of a chunk, without a screen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from proxima.train.books import Book
from proxima.train.loop import Report
from proxima.train.stage import Schedule, Stage

Callback = Callable[[dict[str, Any]], Any]  # returning False stops what is training


class View(NamedTuple):
    """Where a stage stands after a chunk."""

    name: str  # of the stage; "" where it is the only one
    stage: Stage
    report: Report
    seconds: float  # of training so far, those before a resume included
    blocks: Sequence[Sequence[int]] = ()  # lanes that train together; empty: all do
    note: str = ""  # who trains what, where that is not this process

    @property
    def fraction(self) -> float:
        """How much of the budget is used."""
        return used_fraction(self.stage.schedule, self.report.progress.books, self.blocks)


def used_fraction(
    schedule: Schedule, books: Sequence[Book], blocks: Sequence[Sequence[int]]
) -> float:
    """How much of the budget is used, the larger of steps and episodes; the mean over blocks of lanes."""

    def used(book: Book) -> float:
        steps, episodes = schedule.max_steps, schedule.max_episodes
        return max(
            book.steps / steps if steps else 0.0, book.episodes / episodes if episodes else 0.0
        )

    def of_block(lanes: Sequence[int]) -> float:
        """What the lane that is last has used; a block that has ended needs no more of it."""
        own = [books[lane] for lane in lanes]
        going = [book for book in own if book.stopped is None]
        if len(blocks) > 1 and not going:
            return 1.0
        return min(1.0, min(map(used, going or own)))

    return float(np.mean([of_block(lanes) for lanes in blocks or [range(len(books))]]))


class Display(NamedTuple):
    """Who shows a run to a person; every function may do nothing."""

    say: Callable[[str], None]
    progress: Callable[[View], None]
    # Work that follows training: what is done, how much of it, of how much.
    working: Callable[[str, int, int], None]
    close: Callable[[], None]


def silent() -> Display:
    """A display that shows nothing."""
    return Display(
        lambda text: None, lambda view: None, lambda what, done, total: None, lambda: None
    )


def callback_view(name: str, trials: tuple[int, ...], report: Report) -> dict[str, Any]:
    """What a user's callback gets: means over the trials that ran, and each trial's own numbers."""
    rows = [row for row in report.rows if row is not None]
    metrics = _means(rows)
    metrics["avg_reward"] = metrics.get("episode/return", float("nan"))
    return {
        "stage": name,
        "trial": trials[0] if len(trials) == 1 else None,
        "episode": int(np.mean([book.episodes for book in report.progress.books])),
        "step": report.progress.steps,
        "step_metrics": metrics,
        "eval_metrics": _evaluated(report),
        "trials": report.rows,
    }


def _evaluated(report: Report) -> dict[str, float] | None:
    scores = [score for score in report.scores or [] if score is not None]
    if not scores:
        return None
    figures = _means([score.figures for score in scores])
    values = np.array([score.value for score in scores])
    within = np.array([score.figures.get("eval/return_std", 0.0) for score in scores])
    return {name.removeprefix("eval/"): value for name, value in figures.items()} | {
        "avg_reward": float(values.mean()),
        "std_reward": float(np.sqrt(np.mean(within**2) + values.var())),
    }


def _means(rows: list[Mapping[str, float]] | list[dict[str, float]]) -> dict[str, float]:
    keys = sorted(set().union(*rows)) if rows else []
    return {key: float(np.mean([row[key] for row in rows if key in row])) for key in keys}
