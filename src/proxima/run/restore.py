"""What the checkpoints of a run say: where a stage stands, how far the run came, with which settings."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from proxima.core.errors import ProximaError
from proxima.core.hyper import with_numbers_of
from proxima.core.types import PyTree
from proxima.domains.domain import Planned
from proxima.run.files import RunFiles, keep_alarms_until, keep_rows_until
from proxima.run.preview import keep_preview_until
from proxima.train import checkpoint
from proxima.train.books import Book, Progress, reopened
from proxima.train.stage import Schedule, Stage

CONVERGENCE = "convergence"  # the section of a scenario that says what counts as solved
Settings = Mapping[str, Any]  # a scenario as plain values


class SavedLoop(NamedTuple):
    """What a checkpoint's manifest says of the loop."""

    chunks: int
    book: Book


class Reached(NamedTuple):
    """How far a run has come."""

    stage: str  # "" where it is the only one
    trial: int  # the first of the stage's
    step: int

    def __str__(self) -> str:
        stage = f" of {self.stage}" if self.stage else ""
        trial = f", trial {self.trial}" if self.stage and self.trial else ""
        return f"{'update' if self.stage else 'step'} {self.step:,}{stage}{trial}"


class Restored(NamedTuple):
    """A stage as its newest checkpoint has it."""

    states: PyTree
    progress: Progress
    step: int
    same_layout: bool  # on as many devices as before; else the last bits may differ from now on


def restore(stage: Stage, folders: list[Path], settings: Settings) -> Restored | None:
    """The newest moment that every lane's checkpoints have, as it goes on with these settings.

    What was recorded and saved after it is dropped; None if there is no checkpoint.
    """
    paths = moment_of(folders, stage.schedule, settings)
    if paths is None:
        return None
    lanes, loops, layouts = [], [], []
    for path, template in zip(paths, stage.split(stage.init()), strict=True):
        state, manifest = checkpoint.load(path, template)
        lanes.append(with_numbers_of(template, state))
        loops.append(_reopened(path, manifest, stage.schedule, settings))
        layouts.append(manifest.get("layout"))
    books = []
    for folder, path, loop in zip(folders, paths, loops, strict=True):
        keep_rows_until(folder / "metrics.jsonl", loop.book.steps)
        keep_alarms_until(folder / "alarms.jsonl", loop.book.steps)
        keep_preview_until(folder, loop.book.steps)
        lost_best = checkpoint.go_back(path)
        books.append(loop.book._replace(best=None) if lost_best else loop.book)
    progress = Progress(max(loop.chunks for loop in loops), tuple(books))
    same_layout = all(layout == dict(stage.layout) for layout in layouts)
    return Restored(stage.join(lanes), progress, progress.steps, same_layout)


def moment_of(
    folders: list[Path], schedule: Schedule | None = None, settings: Settings | None = None
) -> list[Path] | None:
    """The checkpoints that a stage would go on from, a path for each lane; None: there is none.

    Without a schedule and settings, as if they were those that the checkpoints were made with.
    """

    def has_stopped(path: Path, manifest: Mapping[str, Any]) -> bool:
        if schedule is None or settings is None:
            return loop_from_json(path, manifest["loop"]).book.stopped is not None
        return _reopened(path, manifest, schedule, settings).book.stopped is not None

    return checkpoint.common_moment(folders, has_stopped)


def books_of(paths: list[Path], schedule: Schedule, settings: Settings) -> list[Book]:
    """The books in checkpoints, as they go on with these settings."""
    manifests = [checkpoint.load_manifest(path) for path in paths]
    return [
        _reopened(path, manifest, schedule, settings).book
        for path, manifest in zip(paths, manifests, strict=True)
    ]


def _reopened(
    path: Path, manifest: Mapping[str, Any], schedule: Schedule, settings: Settings
) -> SavedLoop:
    """The loop of a checkpoint as it goes on with these settings, which may be others than then."""
    loop = loop_from_json(path, manifest["loop"])
    anew = manifest["scenario"].get(CONVERGENCE) != settings.get(CONVERGENCE)
    return loop._replace(book=reopened(loop.book, schedule, anew))


def saved_trials(
    files: RunFiles,
    planned: Planned,
    schedule: Schedule | None = None,
    settings: Settings | None = None,
) -> dict[int, Path]:
    """The checkpoints that a stage's trials would go on from; a trial without one is left out."""
    saved: dict[int, Path] = {}
    for block in planned.blocks or (planned.trials,):
        folders = [files.trial(trial) / planned.name for trial in block]
        saved |= zip(block, moment_of(folders, schedule, settings) or (), strict=False)
    return saved


def furthest_step(files: RunFiles, stages: Sequence[Planned]) -> Reached | None:
    """How far the checkpoints go; None: there is none."""
    furthest = None
    for planned in stages:
        saved: Mapping[int, Path] = {}
        with suppress(ProximaError):  # damaged: whoever resumes is told so
            saved = saved_trials(files, planned)
        if saved:
            step = max(map(checkpoint.step_of, saved.values()))
            furthest = Reached(planned.name, planned.trials[0], step)
    return furthest


def saved_scenario(files: RunFiles) -> Mapping[str, Any] | None:
    """The scenario that the newest checkpoint was made with; None where there is none yet."""
    saved: dict[float, Mapping[str, Any]] = {}
    for path in files.root.glob("trial_*/**/checkpoints/last"):
        try:
            manifest = checkpoint.load_manifest(path)
        except ProximaError:  # a damaged one may have a whole one before it: loading decides
            continue
        saved[(path / checkpoint.MANIFEST).stat().st_mtime] = manifest["scenario"]
    return saved[max(saved)] if saved else None


def book_to_json(book: Book) -> dict[str, Any]:
    """A book as plain JSON."""
    return book._asdict() | {"convergence": book.convergence._asdict()}


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


def _damaged(path: Path, problem: str) -> ProximaError:
    return ProximaError(
        f"{path / checkpoint.MANIFEST}: is damaged: {problem}; delete that checkpoint to go on from the "
        "one before it, or start a new run"
    )
