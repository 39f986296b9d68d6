"""A run under way, and what is written down of it once per chunk.

<trial>/[<stage>/]metrics.jsonl     one object per chunk, at its step
<trial>/[<stage>/]alarms.jsonl      one object per alarm, when it begins
<trial>/[<stage>/]preview.json      what is to be seen of the newest evaluation, where there is something
<trial>/[<stage>/]checkpoints/      last and best
progress.json                       where the run stands
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from proxima.core.types import PyTree
from proxima.domains.domain import Domain, Prepared
from proxima.run import results
from proxima.run.clock import Clock, note_chunk, timed
from proxima.run.display import Callback, Display, View, callback_view, used_fraction
from proxima.run.files import RunFiles, append_row, read_rows
from proxima.run.preview import write_preview
from proxima.run.restore import book_to_json
from proxima.run.results import RunInfo
from proxima.run.standing import Standing, StandingFile, best_of, best_of_stages
from proxima.scenario import Scenario, to_stored
from proxima.track.tracker import Tracker
from proxima.train import checkpoint
from proxima.train.books import Book, Progress
from proxima.train.loop import Report
from proxima.train.memory import memory_metrics
from proxima.train.stage import Row, Score, Stage

STAGE = "stage.json"  # what a stage of a trial came to


@final
class Notes:
    """What run.json says of a run; every change is written at once."""

    def __init__(self, path: Path, info: RunInfo):
        self._path, self.info = path, info

    def change(self, **changes: Any) -> None:
        """Note the changes."""
        self.info = dataclasses.replace(self.info, **changes)
        results.write(self._path, self.info)


class Run(NamedTuple):
    """A run under way: what is fixed about it."""

    scenario: Scenario
    domain: Domain
    prepared: Prepared
    files: RunFiles
    tracker: Tracker
    display: Display
    clock: Clock
    notes: Notes
    callback: Callback | None
    standing: StandingFile

    def folder(self, stage: str, trial: int) -> Path:
        """Where a stage of a trial has its files."""
        return self.files.trial(trial) / stage

    def child(self, stage: str, trial: int) -> int:
        """The number of the tracked run of a stage of a trial."""
        names = stage_names(self.prepared)
        return trial * len(names) + names.index(stage)


def stage_names(prepared: Prepared) -> list[str]:
    """The stages of a trial, in their order."""
    return list(dict.fromkeys(planned.name for planned in prepared.stages))


@final
class Board:
    """Where all lanes of a stage stand, of which each block reports its own."""

    def __init__(self, name: str, stage: Stage, blocks: Sequence[Stage]):
        self._name, self._stage = name, stage
        self._groups = [self._lanes(block.trials) for block in blocks]
        self._rows: list[Row | None] = [None] * len(stage.trials)
        self._scores: list[Score | None] = [None] * len(stage.trials)
        self._progress = Progress(0, (Book(),) * len(stage.trials))
        self.note = ""  # who trains what, where that is not this process

    def put(self, trials: Sequence[int], progress: Progress) -> None:
        """A block stands here."""
        books = list(self._progress.books)
        for lane, book in zip(self._lanes(trials), progress.books, strict=True):
            books[lane] = book
        self._progress = Progress(max(self._progress.chunks, progress.chunks), tuple(books))

    def view(self, trials: Sequence[int], report: Report, seconds: float) -> View:
        """All lanes as they stand after a block's report; what is not in it stays as it was last seen."""
        self.put(trials, report.progress)
        scores = report.scores or [None] * len(trials)
        for lane, row, score in zip(self._lanes(trials), report.rows, scores, strict=True):
            self._rows[lane], self._scores[lane] = row, score
        together = report._replace(
            progress=self._progress, rows=list(self._rows), scores=list(self._scores)
        )
        return View(self._name, self._stage, together, seconds, self._groups, self.note)

    def standing(self, run: Run, seconds: float) -> Standing:
        """All lanes as they stand, for onlookers; the best is over the stage's other trials too."""
        planned, stage = run.prepared.stages, self._stage
        names = [(plan.name, tuple(plan.trials)) for plan in planned]
        number = names.index((self._name, tuple(stage.trials)))
        same = [trials for name, trials in names if name == self._name]
        others = [trial for trials in same for trial in trials if trial not in stage.trials]
        ended = best_of_stages(run.folder(self._name, trial) / STAGE for trial in others)
        books, (figure, sign) = self._progress.books, stage.best_by
        return Standing(
            stage=self._name,
            number=number + 1,
            stages=len(planned),
            unit=stage.unit,
            steps=self._progress.steps,
            fraction=used_fraction(stage.schedule, books, self._groups),
            seconds=seconds,
            figure=figure,
            best=best_of([*ended, *(book.best for book in books)], sign),
            note=self.note,
        )

    def _lanes(self, trials: Sequence[int]) -> list[int]:
        return [self._stage.trials.index(trial) for trial in trials]


@final
class Recorder:
    """Writes down what happens to a block: metrics, checkpoints, seconds, alarms."""

    def __init__(
        self, run: Run, name: str, board: Board, stage: Stage, folders: list[Path], done: Progress
    ):
        self._run, self._name, self.board = run, name, board
        self._stage, self._folders = stage, folders
        self._key = f"{name} {stage.trials[0]}".strip()
        self._before = run.notes.info.training_seconds.get(self._key, 0.0)
        self._started: float | None = None  # before the block begins
        self._is_here = True
        # lanes that have stopped and are saved so
        is_restored = done.chunks > 0
        stopped = np.flatnonzero(~done.active) if is_restored else ()
        self._settled = {int(lane) for lane in stopped}

    def seconds(self) -> float:
        """Of training so far, those before a resume included."""
        since = 0.0 if self._started is None else time.perf_counter() - self._started
        return self._before + since

    def train_elsewhere(self, stage: Stage) -> None:
        """Chunks are heard of from another process whose seconds are not ours; `stage` knows its states."""
        self._stage, self._is_here = stage, False

    def begin(self) -> None:
        """From now on the block trains."""
        self._started = time.perf_counter()
        self._note_standing(at_once=True)  # a resumed run stands where its checkpoint does

    def record(self, report: Report) -> Mapping[int, str]:
        """A chunk's numbers to files and tracker, its states where they are to be kept; who should stop."""
        run, stage = self._run, self._stage
        if self._is_here:
            note_chunk(run.clock, report)
        with timed(run.clock, "save", {"checkpoint": report.save}):
            self._write(report)
            if report.save or report.best:
                self.save(report.states, report.progress, report.best, last=report.save)
        for sentence in stage.notices():
            run.display.say(sentence)
        run.display.progress(self.board.view(stage.trials, report, self.seconds()))
        self.note_seconds() if report.save else self._note_standing(at_once=False)
        reasons = self._alarmed() if report.scores is not None else {}
        view = callback_view(self._name, stage.trials, report)
        if run.callback is not None and run.callback(view) is False:
            reasons = {lane: "callback" for lane in range(len(stage.trials))} | reasons
        return reasons

    def save(
        self, states: PyTree, progress: Progress, best: Sequence[int] = (), last: bool = True
    ) -> None:
        """A checkpoint of every lane to resume from, or (not `last`) of those at their best only.

        Each is named by its lane's own step; one that has stopped is saved once more and then no longer.
        """
        lanes, scenario = self._stage.split(states), self._run.scenario
        due = [lane for lane in range(len(lanes)) if lane not in self._settled]
        for lane in due if last else best:
            book = progress.books[lane]
            manifest = {
                "scenario": to_stored(scenario),
                "trial": self._stage.trials[lane],
                "stage": self._name,
                "layout": dict(self._stage.layout),
                "loop": {"chunks": progress.chunks, "book": book_to_json(book)},
            }
            checkpoint.save(
                self._folders[lane],
                book.steps,
                lanes[lane],
                manifest,
                keep=scenario.checkpoint.keep,
                best=lane in best,
                last=last,
            )
            if last and book.stopped is not None:
                self._settled.add(lane)

    def note_seconds(self) -> None:
        """The time so far and the tracker's ids into run.json."""
        run = self._run
        seconds = {**run.notes.info.training_seconds, self._key: self.seconds()}
        changes: dict[str, Any] = {
            "training_seconds": seconds,
            "time": dict(run.clock.seconds),
            "standing": self.board.note,
        }
        ids = run.tracker.ids()
        if ids is not None:
            changes |= {"mlflow_run_id": ids.parent, "mlflow_children": ids.children}
        run.notes.change(**changes)
        self._note_standing(at_once=True)

    def note_trainers(self, note: str) -> None:
        """Who trains what from now on, where that is not this process."""
        self.board.note = note
        self._note_standing(at_once=False)

    def _note_standing(self, at_once: bool) -> None:
        run = self._run
        run.standing.write(lambda: self.board.standing(run, self.seconds()), at_once)

    def _write(self, report: Report) -> None:
        run, memory = self._run, memory_metrics()  # of the process, so the same for every lane
        for lane, row in enumerate(report.rows):
            if row is None:
                continue
            book, trial = report.progress.books[lane], self._stage.trials[lane]
            score = None if report.scores is None else report.scores[lane]
            # a row that comes from another process brings that one's memory
            row = memory | row | ({} if score is None else score.figures)
            if "episode/count" in row:
                row["episode/total"] = float(book.episodes)
            append_row(self._folders[lane] / "metrics.jsonl", {"step": book.steps} | row)
            if score is not None and score.preview is not None:
                write_preview(self._folders[lane], book.steps, score.preview)
            run.tracker.log_metrics(run.child(self._name, trial), book.steps, row)
            if book.stopped == "nan":
                section = self._name or "algorithm"
                run.display.say(
                    f"Trial {trial}: the loss is no longer a number after {self._stage.unit[:-1]} "
                    f"{book.nan_at_step:,}; the trial is stopped with its last good state, saved in "
                    f"{self._folders[lane] / 'checkpoints'}. A lower {section}.learning_rate or "
                    f"{section}.max_grad_norm usually helps."
                )

    def _alarmed(self) -> dict[int, str]:
        """Says the alarms that began at this evaluation; the lanes that should stop for them."""
        stage, stopped = self._stage, {}
        for lane, folder in enumerate(self._folders):
            rows = read_rows(folder / "metrics.jsonl")
            evaluated = [row for row in rows if any(name.startswith("eval/") for name in row)]
            for alarm in stage.alarms(evaluated):
                self._run.display.say(f"Alarm after {stage.unit[:-1]} {alarm.step}: {alarm.text}")
                noted = {"step": alarm.step, "trial": stage.trials[lane], "text": alarm.text}
                append_row(folder / "alarms.jsonl", noted)
                if stage.schedule.stop_on_alarm:
                    stopped[lane] = "alarm"
        return stopped
