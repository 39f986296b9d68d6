"""A stage under way: restored or begun, trained, recorded once per chunk, and saved.

<trial>/[<stage>/]metrics.jsonl     one object per chunk, at its step
<trial>/[<stage>/]checkpoints/      last and best
"""

import dataclasses
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from proxima.core.types import PyTree
from proxima.domains.domain import Domain, Planned, Prepared, Trainable, Trained
from proxima.run import results
from proxima.run.clock import Clock, note_chunk, timed
from proxima.run.display import Callback, Display, View, callback_view
from proxima.run.files import RunFiles, append_row, read_rows, write_text
from proxima.run.restore import book_to_json, restore
from proxima.run.results import RunInfo
from proxima.run.signals import interruptible
from proxima.scenario import Scenario, to_stored
from proxima.track.tracker import Tracker
from proxima.train import checkpoint
from proxima.train.books import Progress, fresh_progress
from proxima.train.loop import Observer, Report, train
from proxima.train.memory import memory_metrics
from proxima.train.stage import Stage

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

    def folder(self, stage: str, trial: int) -> Path:
        """Where a stage of a trial has its files."""
        return self.files.trial(trial) / stage

    def child(self, stage: str, trial: int) -> int:
        """The number of the tracked run of a stage of a trial."""
        names = stage_names(self.prepared)
        return trial * len(names) + names.index(stage)


class Ended(NamedTuple):
    """A stage that has trained to its end."""

    trained: Trained
    states: PyTree  # as the stage left them, for measuring
    compile_seconds: float
    training_seconds: float


def stage_names(prepared: Prepared) -> list[str]:
    """The stages of a trial, in their order."""
    return list(dict.fromkeys(planned.name for planned in prepared.stages))


def train_planned(run: Run, planned: Planned, trainable: Trainable) -> Ended:
    """Train the stage from where it stands to its end; an interruption is saved and raised."""
    stage = trainable.stage
    folders = [run.folder(planned.name, trial) for trial in planned.trials]
    for folder in folders:
        (folder / "plots").mkdir(parents=True, exist_ok=True)
    states, progress = _restored_or_fresh(run, planned, stage, folders)
    started = time.perf_counter()
    with timed(run.clock, "compile"):
        states = stage.prepare(states)
    recorder = _Recorder(run, planned, stage, folders, progress)
    for lane in np.flatnonzero(progress.active):  # what a finish exported before is out of date
        shutil.rmtree(run.files.trial(planned.trials[lane]) / "policy", ignore_errors=True)
    compiled = time.perf_counter() - started
    # A chunk on the host may take minutes, and is done again by whoever resumes: nobody waits for its end.
    with interruptible(at_once=not stage.exact_anywhere) as interrupted:
        observer = Observer(recorder.record, recorder.save, interrupted)
        states, progress = train(stage, states, progress, observer)
        recorder.note_seconds()
        # Before the first chunk there is nothing to save: a resumed run starts anew.
        if progress.active.any() and stage.exact_anywhere and progress.chunks > 0:
            recorder.save(states, progress)
    if interrupted():  # also during the last chunk
        raise KeyboardInterrupt
    trained = Trained(
        lanes=_closing_lanes(stage, states, folders),
        books=progress.books,
        trials=[run.files.trial(trial) for trial in planned.trials],
        folders=folders,
        rows=lambda lane: read_rows(folders[lane] / "metrics.jsonl"),
        say=run.display.say,
    )
    return Ended(trained, states, compiled, recorder.seconds())


def _restored_or_fresh(
    run: Run, planned: Planned, stage: Stage, folders: list[Path]
) -> tuple[PyTree, Progress]:
    """The states and books of the newest checkpoint; where there is none, fresh ones and no metrics."""
    restored = restore(stage, folders, to_stored(run.scenario))
    if restored is None:
        metrics = [folder / "metrics.jsonl" for folder in folders]
        if any(path.exists() for path in metrics):
            run.display.say("No checkpoint yet: starting from the beginning.")
        for path in metrics:
            write_text(path, "")
        return stage.init(), fresh_progress(len(stage.trials))
    where = run.files.run_id
    if planned.name:
        where = f"trial {planned.trials[0]}, {planned.name.replace('_', ' ')},"
    run.display.say(f"Resuming {where} at {stage.unit[:-1]} {restored.step:,}.")
    if not restored.same_layout:
        run.display.say(
            "Its trials lay on the devices in another way, so what follows may differ in the last "
            "bits from what the run would have given there."
        )
    return restored.states, restored.progress


def _closing_lanes(stage: Stage, states: PyTree, folders: list[Path]) -> list[PyTree]:
    """The states that are judged and exported: the last ones, or each lane's best."""
    lanes = stage.split(states)
    if stage.schedule.closing == checkpoint.LAST:
        return lanes
    for lane, folder in enumerate(folders):
        chosen = checkpoint.judged(folder, stage.schedule.closing)
        if chosen.kind == checkpoint.BEST:
            lanes[lane], _ = checkpoint.load(chosen.path, lanes[lane])
    return lanes


@final
class _Recorder:
    """Writes down what happens to a stage: metrics, checkpoints, seconds, alarms."""

    def __init__(
        self, run: Run, planned: Planned, stage: Stage, folders: list[Path], progress: Progress
    ):
        self._run, self._planned, self._stage, self._folders = run, planned, stage, folders
        self._key = f"{planned.name} {planned.trials[0]}".strip()
        self._before = run.notes.info.training_seconds.get(self._key, 0.0)
        self._started = time.perf_counter()
        # lanes that have stopped and are saved so
        is_restored = progress.chunks > 0
        stopped = np.flatnonzero(~progress.active) if is_restored else ()
        self._settled = {int(lane) for lane in stopped}

    def seconds(self) -> float:
        """Of training so far, those before a resume included."""
        return self._before + time.perf_counter() - self._started

    def record(self, report: Report) -> Mapping[int, str]:
        """A chunk's numbers to files and tracker, its states where they are to be kept; who should stop."""
        run, planned, stage = self._run, self._planned, self._stage
        note_chunk(run.clock, report)
        with timed(run.clock, "save", {"checkpoint": report.save}):
            self._write(report)
            if report.save or report.best:
                self.save(report.states, report.progress, report.best, last=report.save)
        for sentence in stage.notices():
            run.display.say(sentence)
        run.display.progress(View(planned.name, stage, report, self.seconds()))
        if report.save:
            self.note_seconds()
        reasons = self._alarmed() if report.scores is not None else {}
        view = callback_view(planned.name, planned.trials, report)
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
                "stage": self._planned.name,
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
        changes: dict[str, Any] = {"training_seconds": seconds, "time": dict(run.clock.seconds)}
        ids = run.tracker.ids()
        if ids is not None:
            changes |= {"mlflow_run_id": ids.parent, "mlflow_children": ids.children}
        run.notes.change(**changes)

    def _write(self, report: Report) -> None:
        run, memory = self._run, memory_metrics()  # of the process, so the same for every lane
        for lane, row in enumerate(report.rows):
            if row is None:
                continue
            book, trial = report.progress.books[lane], self._stage.trials[lane]
            score = None if report.scores is None else report.scores[lane]
            row = row | ({} if score is None else score.figures) | memory
            if "episode/count" in row:
                row["episode/total"] = float(book.episodes)
            append_row(self._folders[lane] / "metrics.jsonl", {"step": book.steps} | row)
            run.tracker.log_metrics(run.child(self._planned.name, trial), book.steps, row)
            if book.stopped == "nan":
                section = self._planned.name or "algorithm"
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
                if stage.schedule.stop_on_alarm:
                    stopped[lane] = "alarm"
        return stopped
