"""What the checkpoints of a run say: where a stage stands, how far the run came, with which settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.domain import Planned
from proxima.run.files import RunFiles, keep_rows_until
from proxima.train import checkpoint
from proxima.train.books import Book, Progress
from proxima.train.stage import Stage


class SavedLoop(NamedTuple):
    """What a checkpoint's manifest says of the loop."""

    chunks: int
    book: Book


class Restored(NamedTuple):
    """A stage as its newest checkpoint has it."""

    states: PyTree
    progress: Progress
    step: int
    same_layout: bool  # on as many devices as before; else the last bits may differ from now on


def restore(stage: Stage, folders: list[Path]) -> Restored | None:
    """The newest checkpoint that every lane has, metrics of later steps dropped; None if there is none."""
    step = checkpoint.common_step(folders)
    if step is None:
        return None
    lanes, loops, layouts = [], [], []
    for folder, template in zip(folders, stage.split(stage.init()), strict=True):
        path = checkpoint.at_step(folder, step)
        state, manifest = checkpoint.load(path, template)
        lanes.append(state)
        loops.append(loop_from_json(path, manifest["loop"]))
        layouts.append(manifest.get("layout"))
    for folder, loop in zip(folders, loops, strict=True):
        keep_rows_until(folder / "metrics.jsonl", loop.book.steps)
    progress = Progress(max(loop.chunks for loop in loops), tuple(loop.book for loop in loops))
    same_layout = all(layout == dict(stage.layout) for layout in layouts)
    return Restored(stage.join(lanes), progress, step, same_layout)


def furthest_step(files: RunFiles, stages: Sequence[Planned]) -> str | None:
    """How far the checkpoints go, in words; None: there is none."""
    furthest = None
    for planned in stages:
        step = checkpoint.common_step(
            [files.trial(trial) / planned.name for trial in planned.trials]
        )
        if step is not None:
            stage = f" of {planned.name}" if planned.name else ""
            trial = f", trial {planned.trials[0]}" if planned.name and planned.trials[0] else ""
            furthest = f"{'update' if planned.name else 'step'} {step:,}{stage}{trial}"
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
