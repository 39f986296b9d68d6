"""A stage under way: restored or begun, trained, recorded once per chunk, and saved.

<trial>/[<stage>/]metrics.jsonl     one object per chunk, at its step
<trial>/[<stage>/]checkpoints/      last and best
"""

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

from pydantic import TypeAdapter, ValidationError

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.domain import Domain, Planned, Prepared, Trainable, Trained
from proxima.run import results
from proxima.run.clock import Clock, note_chunk, timed
from proxima.run.display import Callback, Display, View, callback_view
from proxima.run.files import RunFiles, append_row, keep_rows_until, read_rows, write_text
from proxima.run.results import RunInfo
from proxima.run.signals import interruptible
from proxima.scenario import Scenario, to_stored
from proxima.track.tracker import Tracker
from proxima.train import checkpoint
from proxima.train.loop import Book, Observer, Progress, Report, fresh_progress, train
from proxima.train.memory import memory_metrics
from proxima.train.stage import Row, Stage

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
    states, progress = restored(run, planned, stage, folders)
    started = time.perf_counter()
    with timed(run.clock, "compile"):
        states = stage.prepare(states)
    recorder = _Recorder(run, planned, stage, folders, progress)
    compiled = time.perf_counter() - started
    with interruptible() as interrupted:
        observer = Observer(recorder.record, recorder.save, interrupted)
        states, progress = train(stage, states, progress, observer)
        recorder.note_seconds()
        # Before the first chunk there is nothing to save: a resumed run starts anew.
        if progress.active.any() and stage.exact_anywhere and progress.chunks > 0:
            recorder.save(states, progress)
    if interrupted():  # also during the last chunk
        raise KeyboardInterrupt
    trained = Trained(
        lanes=closing_lanes(stage, states, folders),
        books=progress.books,
        trials=[run.files.trial(trial) for trial in planned.trials],
        folders=folders,
        rows=lambda lane: read_rows(folders[lane] / "metrics.jsonl"),
        say=run.display.say,
    )
    return Ended(trained, states, compiled, recorder.seconds())


def closing_lanes(stage: Stage, states: PyTree, folders: list[Path]) -> list[PyTree]:
    """The states that are judged and exported: the last ones, or each lane's best."""
    lanes = stage.split(states)
    if stage.schedule.closing == "last":
        return lanes
    for lane, folder in enumerate(folders):
        best = folder / "checkpoints" / checkpoint.BEST
        if best.exists():  # a trial that broke down at its start has none
            lanes[lane], _ = checkpoint.load(best, lanes[lane])
    return lanes


def restored(
    run: Run, planned: Planned, stage: Stage, folders: list[Path]
) -> tuple[PyTree, Progress]:
    """The states and books of the newest checkpoint that every lane has, or fresh ones."""
    fresh, progress = stage.init(), fresh_progress(len(stage.trials))
    step = checkpoint.common_step(folders)
    if step is None:
        _begin(run, folders)
        return fresh, progress
    lanes, saved_loops, layouts = [], [], []
    for folder, template in zip(folders, stage.split(fresh), strict=True):
        path = checkpoint.at_step(folder, step)
        state, manifest = checkpoint.load(path, template)
        lanes.append(state)
        saved_loops.append(loop_from_json(path, manifest["loop"]))
        layouts.append(manifest.get("layout"))
    for folder, loop in zip(folders, saved_loops, strict=True):
        keep_rows_until(folder / "metrics.jsonl", loop.book.steps)
    run.display.say(f"Resuming {_where(run, planned)} at {_position(stage, step)}.")
    if any(layout != dict(stage.layout) for layout in layouts):
        run.display.say(
            "Its trials lay on the devices in another way, so what follows may differ in the last "
            "bits from what the run would have given there."
        )
    books = tuple(loop.book for loop in saved_loops)
    return stage.join(lanes), Progress(max(loop.chunks for loop in saved_loops), books)


def _begin(run: Run, folders: list[Path]) -> None:
    """Nothing is recorded of the stage; what a start before left is dropped, and that is said."""
    metrics = [folder / "metrics.jsonl" for folder in folders]
    if any(path.exists() for path in metrics):
        run.display.say("No checkpoint yet: starting from the beginning.")
    for path in metrics:
        write_text(path, "")


def saved(run_files: RunFiles, prepared: Prepared) -> str | None:
    """How far the checkpoints go, in words; None: there is none."""
    furthest = None
    for planned in prepared.stages:
        folders = [run_files.trial(trial) / planned.name for trial in planned.trials]
        step = checkpoint.common_step(folders)
        if step is not None:
            stage = f" of {planned.name}" if planned.name else ""
            trial = f", trial {planned.trials[0]}" if planned.name and planned.trials[0] else ""
            furthest = f"{'update' if planned.name else 'step'} {step:,}{stage}{trial}"
    return furthest


def saved_scenario(files: RunFiles, trials: int) -> Mapping[str, Any] | None:
    """The scenario that the newest checkpoint was made with; None where there is none yet."""
    newest: tuple[float, Mapping[str, Any]] | None = None
    for path in files.root.glob("trial_*/**/checkpoints/last"):
        try:
            manifest = checkpoint.load_manifest(path)
        except ProximaError:  # a damaged one may have a whole one before it: loading decides
            continue
        made = (path / checkpoint.MANIFEST).stat().st_mtime
        if newest is None or made > newest[0]:
            newest = made, manifest["scenario"]
    return None if newest is None else newest[1]


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
        self._begun_at = View(planned.name, stage, _nothing(progress), 0.0, 0.0).fraction

    def seconds(self) -> float:
        """Of training so far, those before a resume included."""
        return self._before + time.perf_counter() - self._started

    def record(self, report: Report) -> Mapping[int, str]:
        """A chunk's numbers to files and tracker, its states where they are to be kept; who should stop."""
        run = self._run
        note_chunk(run.clock, report)
        with timed(run.clock, "save", {"checkpoint": report.save}):
            self._write(report)
            if report.save:
                self.save(report.states, report.progress, report.best)
            elif report.best:
                self.save(report.states, report.progress, report.best, last=False)
        for sentence in self._stage.notices():
            run.display.say(sentence)
        run.display.progress(
            View(self._planned.name, self._stage, report, self.seconds(), self._begun_at)
        )
        if report.save:
            self.note_seconds()
        reasons = self._alarmed() if report.scores is not None else {}
        view = callback_view(self._planned.name, self._planned.trials, report)
        if run.callback is not None and run.callback(view) is False:
            reasons = {lane: "callback" for lane in range(len(self._stage.trials))} | reasons
        return reasons

    def save(
        self, states: PyTree, progress: Progress, best: Sequence[int] = (), last: bool = True
    ) -> None:
        """A checkpoint of every lane to resume from, or (not `last`) of those at their best only.

        Named by the step of the whole stage, so that all lanes, stopped ones too, share the names.
        """
        lanes, scenario = self._stage.split(states), self._run.scenario
        for lane in range(len(lanes)) if last else best:
            checkpoint.save(
                self._folders[lane],
                progress.steps,
                lanes[lane],
                {
                    "scenario": to_stored(scenario),
                    "trial": self._stage.trials[lane],
                    "stage": self._planned.name,
                    "layout": dict(self._stage.layout),
                    "loop": {
                        "chunks": progress.chunks,
                        "book": book_to_json(progress.books[lane]),
                    },
                },
                keep=scenario.checkpoint.keep,
                best=lane in best,
                last=last,
            )

    def note_seconds(self) -> None:
        """The time so far and the tracker's ids into run.json."""
        run = self._run
        seconds = {**run.notes.info.training_seconds, self._key: self.seconds()}
        ids = run.tracker.ids()
        known = (
            {} if ids is None else {"mlflow_run_id": ids.parent, "mlflow_children": ids.children}
        )
        run.notes.change(training_seconds=seconds, time=dict(run.clock.seconds), **known)

    def _write(self, report: Report) -> None:
        memory = memory_metrics()  # of the process, so the same for every lane
        for lane, row in enumerate(report.rows):
            if row is None:
                continue
            book, trial = report.progress.books[lane], self._stage.trials[lane]
            score = None if report.scores is None else report.scores[lane]
            row = row | ({} if score is None else score.figures) | memory
            if "episode/count" in row:
                row["episode/total"] = float(book.episodes)
            append_row(self._folders[lane] / "metrics.jsonl", {"step": book.steps} | row)
            child = self._run.child(self._planned.name, trial)
            self._run.tracker.log_metrics(child, book.steps, row)
            if book.stopped == "nan":
                section = self._planned.name or "algorithm"
                words = _broken(trial, self._stage, book, self._folders[lane], section)
                self._run.display.say(words)

    def _alarmed(self) -> dict[int, str]:
        """Says the alarms that began at this evaluation; the lanes that should stop for them."""
        stopped = {}
        for lane, folder in enumerate(self._folders):
            rows = [row for row in read_rows(folder / "metrics.jsonl") if _is_evaluated(row)]
            for alarm in self._stage.alarms(rows):
                self._run.display.say(
                    f"Alarm after {self._stage.unit[:-1]} {alarm.step}: {alarm.text}"
                )
                if self._stage.schedule.stop_on_alarm:
                    stopped[lane] = "alarm"
        return stopped


def book_to_json(book: Book) -> dict[str, Any]:
    """A book as plain JSON."""
    return book._asdict() | {"convergence": book.convergence._asdict()}


class SavedLoop(NamedTuple):
    """What a checkpoint's manifest says of the loop."""

    chunks: int
    book: Book


def loop_from_json(path: Path, content: Mapping[str, Any]) -> SavedLoop:
    """What the manifest of the checkpoint at `path` says of the loop; an error where that is damaged."""
    try:
        loop = TypeAdapter(SavedLoop).validate_json(json.dumps(content), strict=True)
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        where = ".".join(map(str, ("loop", *first["loc"])))
        raise _damaged(path, f"{where}: {first['msg'].lower()}") from failure
    written = book_to_json(loop.book)
    missing = written.keys() - set(content["book"])
    if not missing:
        missing = written["convergence"].keys() - set(content["book"]["convergence"])
    if missing:  # a default would be another past
        raise _damaged(path, f"loop.book lacks {', '.join(sorted(missing))}")
    return loop


def _damaged(path: Path, words: str) -> ProximaError:
    return ProximaError(
        f"{path / checkpoint.MANIFEST}: is damaged: {words}; delete that checkpoint to go on from the "
        "one before it, or start a new run"
    )


def _is_evaluated(row: Row) -> bool:
    return any(name.startswith("eval/") for name in row)


def _nothing(progress: Progress) -> Report:
    return Report(progress, [], None, 0.0, 0.0, [], False, None)


def _where(run: Run, planned: Planned) -> str:
    if not planned.name:
        return run.files.run_id
    return f"trial {planned.trials[0]}, {planned.name.replace('_', ' ')},"


def _position(stage: Stage, step: int) -> str:
    return f"{stage.unit[:-1]} {step:,}"


def _broken(trial: int, stage: Stage, book: Book, folder: Path, section: str) -> str:
    """What is said of a lane that broke down; `section` is where its learning rate is set."""
    return (
        f"Trial {trial}: the loss is no longer a number after {stage.unit[:-1]} {book.nan_at_step:,}; "
        f"the trial is stopped with its last good state, saved in {folder / 'checkpoints'}. "
        f"A lower {section}.learning_rate or {section}.max_grad_norm usually helps."
    )
