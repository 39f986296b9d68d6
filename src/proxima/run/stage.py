"""One stage of one trial under way: restored or begun, recorded once per update, saved, and summed up.

<trial>/<stage>/metrics.jsonl, checkpoints/, plots/    while it runs
<trial>/<stage>/results.json                           once it has ended; a stage that has one is done
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proxima.core.stage import Stage
from proxima.core.types import PyTree
from proxima.domains.language.scenario import stages_of
from proxima.run.clock import Clock, note
from proxima.run.files import (
    RunFiles,
    append_row,
    keep_rows_until,
    read_json,
    read_rows,
    write_json,
)
from proxima.run.recording import Callback, Display, StageView
from proxima.run.session import note_tracked
from proxima.scenario import LanguageScenario, to_stored
from proxima.track.tracker import Tracker
from proxima.train import checkpoint
from proxima.train.memory import memory_metrics
from proxima.train.stages import StageObserver, StageReport, on_devices, train_stage

ENDED = "ended.json"


class LanguageRun(NamedTuple):
    """A run of a language scenario under way: what is fixed about it."""

    scenario: LanguageScenario
    files: RunFiles
    tracker: Tracker
    display: Display
    clock: Clock
    info: dict[str, Any]
    interrupted: Callable[[], bool]
    callback: Callback | None


class Place(NamedTuple):
    """A stage of a trial: where its files are and which tracked run is its."""

    run: LanguageRun
    trial: int
    stage: str

    @property
    def directory(self) -> Path:
        return self.run.files.trial(self.trial) / self.stage

    @property
    def metrics(self) -> Path:
        return self.directory / "metrics.jsonl"

    @property
    def results(self) -> Path:
        return self.directory / "results.json"

    @property
    def child(self) -> int:
        """The number of its tracked run."""
        stages = stages_of(self.run.scenario)
        return self.trial * len(stages) + stages.index(self.stage)


# What a stage asks for after an evaluation: words that end it, or None. Its rows so far are given to it.
Look = Callable[[list[dict[str, Any]]], str | None]


def is_done(place: Place) -> bool:
    """Whether the stage has ended."""
    return place.results.exists()


def drive(place: Place, stage: Stage, look: Look = lambda rows: None) -> PyTree:
    """Train the stage from where it stands to its end; its last state."""
    run = place.run
    (place.directory / "plots").mkdir(parents=True, exist_ok=True)
    state, done = _begun(place, stage)
    if (place.directory / ENDED).exists():  # killed after its last update, before it was summed up
        return state
    started, first = time.perf_counter(), done

    def report(now: StageReport) -> str | None:
        began = time.perf_counter()
        _record(place, now)
        note(run.clock, "save", time.perf_counter() - began)
        view = StageView(place.trial, place.stage, stage.updates, now.updates, now.metrics)
        seconds = time.perf_counter() - started
        run.display.stage(view, seconds / max(now.updates - first, 1))
        asked = look(read_rows(place.metrics)) if now.evaluated else None
        if run.callback is not None and run.callback(_callback_view(view)) is False:
            return "callback"
        return asked

    observer = StageObserver(report, run.interrupted)
    state, done, ended = train_stage(
        stage, state, done, run.scenario.checkpoint.frequency, observer
    )
    if ended is None:
        _save(place, done, state)
        raise KeyboardInterrupt
    _note_times(place)
    write_json(place.directory / ENDED, {"stage": place.stage, "updates": done, "stopped": ended})
    return state


def finish_stage(place: Place, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Write down what came of the stage; from then on it is done."""
    rows = read_rows(place.metrics)
    evaluated = [row for row in rows if any(key.startswith("eval/") for key in row)]
    seconds = sum(row.get("time/train", 0.0) for row in rows)
    results = {
        **read_json(place.directory / ENDED),
        "training_seconds": seconds,
        "evaluate_seconds": sum(row.get("time/evaluate", 0.0) for row in rows),
        "first": _figures(evaluated[0]),
        "last": _figures(evaluated[-1]),
        **outcome,
    }
    write_json(place.results, results)
    tracker = place.run.tracker
    tracker.log_artifacts(place.child, place.results, None)
    tracker.log_artifacts(place.child, place.directory / "plots", "plots")
    return results


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    """The held-out figures of a row, without their area."""
    return {
        key.removeprefix("eval/"): value for key, value in row.items() if key.startswith("eval/")
    }


def _begun(place: Place, stage: Stage) -> tuple[PyTree, int]:
    """The newest saved state and its number of updates, or a fresh one."""
    fresh = stage.init()
    step = checkpoint.common_step([place.directory])
    keep_rows_until(place.metrics, -1 if step is None else step)
    if step is None:
        return fresh, 0
    state, _ = checkpoint.load(checkpoint.at_step(place.directory, step), fresh)
    place.run.display.say(
        f"Resuming trial {place.trial}, {place.stage}, after update {step:,} of {stage.updates:,}."
    )
    return on_devices(state), step


def _record(place: Place, now: StageReport) -> None:
    """An update's numbers to the files and the tracker, and its state where that is to be kept."""
    if now.metrics:
        row = now.metrics | memory_metrics()
        append_row(place.metrics, {"step": now.updates} | row)
        place.run.tracker.log_metrics(place.child, now.updates, row)
    for part in ("train", "evaluate"):
        note(place.run.clock, part, now.metrics.get(f"time/{part}", 0.0))
    if now.save:
        _save(place, now.updates, now.state)


def _save(place: Place, updates: int, state: PyTree) -> None:
    scenario = place.run.scenario
    manifest = {
        "scenario": to_stored(scenario),
        "trial": place.trial,
        "stage": place.stage,
        "loop": {"updates": updates},
    }
    keep = scenario.checkpoint.keep
    checkpoint.save(place.directory, updates, state, manifest, keep=keep, best=False)
    _note_times(place)


def _note_times(place: Place) -> None:
    run = place.run
    note_tracked(run.info, run.tracker)
    run.info["time"] = dict(run.clock.seconds)
    write_json(run.files.info, run.info)


def _callback_view(view: StageView) -> dict[str, Any]:
    return {
        "trial": view.trial,
        "stage": view.stage,
        "step": view.done,
        "step_metrics": view.metrics,
        "eval_metrics": _figures(view.metrics) or None,
    }
