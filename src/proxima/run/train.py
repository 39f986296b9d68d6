"""A stage trained to its end: its blocks restored or begun, trained here or elsewhere, and recorded.

A block is lanes that train together. Usually all lanes of a stage are one; where the scenario says
`training.trials_per_block`, blocks know nothing of each other, and a cluster may train them side by side.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proxima.core.types import PyTree
from proxima.domains.domain import Planned, Trainable, Trained
from proxima.run.clock import timed
from proxima.run.files import read_rows, write_text
from proxima.run.preview import NAME as PREVIEW
from proxima.run.record import Board, Recorder, Run
from proxima.run.restore import Restored, restore
from proxima.run.signals import interruptible
from proxima.scenario import to_stored
from proxima.train import checkpoint
from proxima.train.books import Progress, fresh_progress
from proxima.train.loop import Observer, train
from proxima.train.stage import Stage


class Block(NamedTuple):
    """Lanes that train together, and where they stand."""

    stage: Stage
    folders: list[Path]
    states: PyTree | None  # None: fresh ones, which nobody has made yet
    progress: Progress
    recorder: Recorder
    compile_seconds: float = 0.0
    training_seconds: float = 0.0


class Ended(NamedTuple):
    """A stage that has trained to its end."""

    trained: Trained
    states: Callable[[], PyTree]  # some of its lanes as the stage has them, for measuring
    compile_seconds: list[float]  # by lane, as its block has them
    training_seconds: list[float]


# Blocks of a planned stage, trained to their end; the states are those in their last checkpoints.
TrainBlocks = Callable[[Run, int, list[Block]], list[Block]]


def train_planned(
    run: Run, planned: Planned, trainable: Trainable, elsewhere: TrainBlocks | None = None
) -> Ended:
    """Train the stage from where it stands to its end; an interruption is saved and raised."""
    folders = {trial: run.folder(planned.name, trial) for trial in planned.trials}
    for folder in folders.values():
        (folder / "plots").mkdir(parents=True, exist_ok=True)
    blocks = _open_blocks(run, planned, trainable, folders)
    for block in blocks:
        for lane in np.flatnonzero(block.progress.active):  # what a finish exported is out of date
            trial = block.stage.trials[lane]
            shutil.rmtree(run.files.trial(trial) / "policy", ignore_errors=True)
    if elsewhere is None:
        blocks = [_train_here(run, block) for block in blocks]
    else:
        blocks = elsewhere(run, run.prepared.stages.index(planned), blocks)
    lanes = [lane for block in blocks for lane in _closing_lanes(block)]
    trained = Trained(
        lanes=lanes,
        books=tuple(book for block in blocks for book in block.progress.books),
        trials=[run.files.trial(trial) for trial in planned.trials],
        folders=list(folders.values()),
        rows=lambda lane: read_rows(folders[planned.trials[lane]] / "metrics.jsonl"),
        say=run.display.say,
    )
    first = blocks[0]
    return Ended(
        trained,
        lambda: first.stage.join(lanes[: len(first.stage.trials)]),
        [block.compile_seconds for block in blocks for _ in block.stage.trials],
        [block.training_seconds for block in blocks for _ in block.stage.trials],
    )


def _open_blocks(
    run: Run, planned: Planned, trainable: Trainable, folders: Mapping[int, Path]
) -> list[Block]:
    """Every block as its newest checkpoint has it; where there is none, fresh and without metrics."""
    stages = trainable.blocks or (trainable.stage,)
    settings = to_stored(run.scenario)
    own = [[folders[trial] for trial in stage.trials] for stage in stages]
    restorations = [restore(stage, of, settings) for stage, of in zip(stages, own, strict=True)]
    _say_restored(run, planned, trainable.stage, restorations)
    board = Board(planned.name, trainable.stage, stages)
    blocks = []
    for stage, of, restored in zip(stages, own, restorations, strict=True):
        if restored is None:
            for folder in of:
                write_text(folder / "metrics.jsonl", "")
                (folder / "alarms.jsonl").unlink(missing_ok=True)
                (folder / PREVIEW).unlink(missing_ok=True)
        progress = fresh_progress(len(of)) if restored is None else restored.progress
        board.put(stage.trials, progress)
        recorder = Recorder(run, planned.name, board, stage, of, progress)
        states = None if restored is None else restored.states
        blocks.append(Block(stage, of, states, progress, recorder))
    return blocks


def _say_restored(
    run: Run, planned: Planned, stage: Stage, restorations: Sequence[Restored | None]
) -> None:
    """Where a resumed stage goes on: where its furthest block stands."""
    restored = [block for block in restorations if block is not None]
    if not restored:
        folders = [run.folder(planned.name, trial) for trial in planned.trials]
        if any((folder / "metrics.jsonl").exists() for folder in folders):
            run.display.say("No checkpoint yet: starting from the beginning.")
        return
    where = run.files.run_id
    if planned.name:
        where = f"trial {planned.trials[0]}, {planned.name.replace('_', ' ')},"
    furthest = max(block.step for block in restored)
    run.display.say(f"Resuming {where} at {stage.unit[:-1]} {furthest:,}.")
    if not all(block.same_layout for block in restored):
        run.display.say(
            "Its trials lay on the devices in another way, so what follows may differ in the last "
            "bits from what the run would have given there."
        )


def _train_here(run: Run, block: Block) -> Block:
    """The block trained in this process."""
    stage, recorder, progress = block.stage, block.recorder, block.progress
    states = stage.init() if block.states is None else block.states
    started = time.perf_counter()
    with timed(run.clock, "compile"):
        states = stage.prepare(states)
    compiled = time.perf_counter() - started
    recorder.begin()
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
    return block._replace(
        states=states,
        progress=progress,
        compile_seconds=compiled,
        training_seconds=recorder.seconds(),
    )


def _closing_lanes(block: Block) -> list[PyTree]:
    """The states that are judged and exported: the last ones, or each lane's best."""
    stage = block.stage
    lanes = stage.split(block.states)
    if stage.schedule.closing == checkpoint.LAST:
        return lanes
    for lane, folder in enumerate(block.folders):
        chosen = checkpoint.judged(folder, stage.schedule.closing)
        if chosen.kind == checkpoint.BEST:
            lanes[lane], _ = checkpoint.load(chosen.path, lanes[lane])
    return lanes
