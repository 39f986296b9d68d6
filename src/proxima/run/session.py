"""A run under way seen from outside: its tracker, its spans, its clock, and what is said if it ends early."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from proxima.core.seeds import trial_seeds
from proxima.run.clock import Clock
from proxima.run.display import Display
from proxima.run.files import RunFiles, link_latest
from proxima.run.lock import locked
from proxima.run.record import Notes
from proxima.run.results import RunInfo
from proxima.run.signals import raising
from proxima.scenario import Scenario, to_stored
from proxima.track.process import connect, connect_spans
from proxima.track.tracker import Attributes, RunIds, Status, Tracker


class Opening(NamedTuple):
    """What a session is opened with."""

    scenario: Scenario
    files: RunFiles
    notes: Notes
    display: Display
    attributes: Attributes  # of the spans
    saved: Callable[[], str | None]  # how far the checkpoints go, in words; None: there is none
    stages: Sequence[str] = ()  # each trial has a tracked run per stage; none: one for the whole


class Session(NamedTuple):
    """An open one."""

    tracker: Tracker
    clock: Clock


@contextmanager
def open_session(opening: Opening) -> Iterator[Session]:
    """While open, the run counts as running and is this process's alone; an error is noted and passed on."""
    with locked(opening.files.root), raising(), _session(opening) as session:
        yield session


@contextmanager
def _session(opening: Opening) -> Iterator[Session]:
    scenario, files, notes, display, attributes, _, stages = opening
    notes.change(status="running")
    link_latest(files, scenario.trials)
    tracker = connect(
        scenario.tracking,
        scenario.name,
        files.run_id,
        to_stored(scenario),
        trial_seeds(scenario.seed, scenario.trials),
        stages=stages,
        resume_from=_tracked_before(notes.info),
        warn=display.say,
    )
    spans = connect_spans(scenario.telemetry, files.run_id, attributes, display.say)
    status: Status = "finished"
    try:
        yield Session(tracker, Clock(dict(notes.info.time), spans))
    except BaseException as error:
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        # First of all: who asked us to stop may not wait for the tracker.
        notes.change(status=status)
        display.close()
        _say_how_to_go_on(opening, status)
        children = scenario.trials * max(1, len(stages))
        outcome = tracker.finish([status] * children, status)
        if outcome.run_id is not None:
            notes.change(mlflow_run_id=outcome.run_id, mlflow_children=outcome.child_run_ids)
        raise
    finally:
        spans.finish(status)


def _tracked_before(info: RunInfo) -> RunIds | None:
    if not info.mlflow_run_id:
        return None
    return RunIds(info.mlflow_run_id, tuple(info.mlflow_children))


def _say_how_to_go_on(opening: Opening, status: Status) -> None:
    """What is saved of a run that ends early, and the command that goes on with it."""
    saved, files = opening.saved(), opening.files
    if status == "failed" and saved is None:
        return  # a second try would fail as the first did
    output = files.experiment.parent
    elsewhere = output.resolve() != Path("logs").resolve()
    where = f" --output {shlex.quote(str(output))}" if elsewhere else ""
    what = "Stopped." if status == "interrupted" else "The run failed."
    remedy = "To go on:" if status == "interrupted" else "To go on, once the cause is mended:"
    opening.display.say(
        f"{what} Saved at {saved or 'step 0'}. {remedy}  proxima resume {files.run_id}{where}"
    )
