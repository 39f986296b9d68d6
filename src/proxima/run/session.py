"""A run under way seen from outside: lock, tracker, spans and clock, and what is said if it ends early."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from proxima.core.seeds import trial_seeds
from proxima.domains.domain import Domain, Prepared
from proxima.run.clock import Clock, note
from proxima.run.display import Callback, Display
from proxima.run.files import RunFiles, link_latest
from proxima.run.lock import locked
from proxima.run.record import Notes, Run, stage_names
from proxima.run.restore import furthest_step
from proxima.run.results import RunInfo
from proxima.run.signals import raising
from proxima.run.standing import StandingFile
from proxima.scenario import Scenario, to_stored
from proxima.track.process import connect, connect_spans
from proxima.track.tracker import RunIds, Status


class Start(NamedTuple):
    """A scenario made runnable, and how long that took."""

    scenario: Scenario
    domain: Domain
    prepared: Prepared
    seconds: float


@contextmanager
def open_run(
    start: Start, files: RunFiles, info: RunInfo, callback: Callback | None, display: Display
) -> Iterator[Run]:
    """While open, the run counts as running and is this process's alone; an error is noted and passed on."""
    scenario, domain, prepared, seconds = start
    stages = [name for name in stage_names(prepared) if name]
    with locked(files.root), raising():
        notes = Notes(files.info, info)
        notes.change(status="running")
        link_latest(files, scenario.trials)
        tracker = connect(
            scenario.tracking,
            scenario.name,
            files.run_id,
            to_stored(scenario),
            trial_seeds(scenario.seed, scenario.trials),
            description=scenario.description,
            stages=stages,
            resume_from=_tracked_before(info),
            warn=display.say,
        )
        spans = connect_spans(scenario.telemetry, files.run_id, _attributes(start), display.say)
        clock = Clock(dict(info.time), spans)
        note(clock, "build", seconds)
        status: Status = "finished"
        try:
            shared = tracker, display, clock, notes, callback, StandingFile(files.root)
            yield Run(scenario, domain, prepared, files, *shared)
        except BaseException as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            # First of all: who asked us to stop may not wait for the tracker.
            notes.change(status=status)
            display.close()
            _say_how_to_go_on(start, files, display, status)
            outcome = tracker.finish([status] * (scenario.trials * max(1, len(stages))), status)
            if outcome.run_id is not None:
                notes.change(mlflow_run_id=outcome.run_id, mlflow_children=outcome.child_run_ids)
            raise
        finally:
            spans.finish(status)


def _tracked_before(info: RunInfo) -> RunIds | None:
    if not info.mlflow_run_id:
        return None
    return RunIds(info.mlflow_run_id, tuple(info.mlflow_children))


def _attributes(start: Start) -> dict[str, str | int]:
    """What spans say of the run."""
    scenario = start.scenario
    return {
        "scenario": scenario.name,
        "domain": scenario.domain,
        "algorithm": start.prepared.algorithm,
        "env": start.domain.overview(scenario).environment,
        "trials": scenario.trials,
        "seed": scenario.seed,
    }


def _say_how_to_go_on(start: Start, files: RunFiles, display: Display, status: Status) -> None:
    """What is saved of a run that ends early, and the command that goes on with it."""
    saved = furthest_step(files, start.prepared.stages)
    if status == "failed" and saved is None:
        return  # a second try would fail as the first did
    output = files.experiment.parent
    elsewhere = output.resolve() != Path("logs").resolve()
    where = f" --output {shlex.quote(str(output))}" if elsewhere else ""
    what = "Stopped." if status == "interrupted" else "The run failed."
    remedy = "To go on:" if status == "interrupted" else "To go on, once the cause is mended:"
    display.say(
        f"{what} Saved at {saved or 'step 0'}. {remedy}  proxima resume {files.run_id}{where}"
    )
