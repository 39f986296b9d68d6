"""Running an experiment: every trial of a scenario, from first seed to results on disk.

prepare ─► create or find the directory ─► for each stage: [restore] train, record, judge ─► finish
"""

import dataclasses
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

from proxima.build import domain_of, importable_directories
from proxima.core.errors import ProximaError
from proxima.domains.domain import Domain, Planned, Prepared
from proxima.report.numbers import first_few
from proxima.run.clock import note, timed
from proxima.run.display import Callback, Display, silent
from proxima.run.files import RunFiles, create_run, find_run, write_text
from proxima.run.finish import Finished, finish_run, finish_stage, is_done, read_stage
from proxima.run.lock import locked
from proxima.run.read import load_scenario, read_info, read_summary
from proxima.run.record import Notes, Run, saved, saved_scenario, stage_names, train_planned
from proxima.run.results import RunInfo, StageResult, Summary, TrialResult
from proxima.run.screen import shown_progress
from proxima.run.session import Opening, open_session
from proxima.scenario import Overrides, Scenario, changed, differences, dump, to_stored

MOST_KEYS = 4  # that a message names
FIXED = (
    "name",
    "domain",
    "seed",
    "trials",
    "output_directory",
)  # what a run is called by and made of


class Start(NamedTuple):
    """A scenario made runnable, and how long that took."""

    scenario: Scenario
    domain: Domain
    prepared: Prepared
    seconds: float


def run_multiple_experiments(
    scenario: Scenario,
    *,
    callback: Callback | None = None,
    display: Display | None = None,
    progress: bool = False,
) -> Summary:
    """All trials of a scenario; returns what summary.json holds. `progress` shows how far it is."""
    start = _start(scenario)  # first: a scenario that cannot be built leaves no run behind
    try:
        files = create_run(scenario.output_directory, scenario.name, scenario.trials)
        write_text(files.scenario, dump(scenario))
        with shown_progress(scenario, display, progress) as shown:
            return _run(start, files, _new_info(start, files), callback, shown)
    finally:
        start.prepared.close()


def run_single_experiment(
    scenario: Scenario,
    *,
    callback: Callback | None = None,
    display: Display | None = None,
    progress: bool = False,
) -> TrialResult:
    """One trial with the scenario's seed; returns what its results.json holds."""
    one = dataclasses.replace(scenario, trials=1)
    summary = run_multiple_experiments(one, callback=callback, display=display, progress=progress)
    return summary.trials[0]


def resume_experiment(
    reference: str,
    *,
    output_directory: str = "logs",
    changes: Overrides = (),
    callback: Callback | None = None,
    display: Display | None = None,
    progress: bool = False,
) -> Summary:
    """Go on with a run from its newest checkpoint; a finished run is returned as it is.

    `changes` are settings to go on with instead of those it was started with.
    """
    files = find_run(reference, output_directory)
    if read_info(files).status == "finished":
        return _finished(files, display or silent())
    with (
        locked(files.root),  # from here on nobody else changes what is read
        shown_progress(load_scenario(files), display, progress) as shown,
    ):
        return _resume(files, changes, callback, shown)


def _finished(files: RunFiles, display: Display) -> Summary:
    display.say(f"{files.root} is finished; there is nothing to resume.")
    return read_summary(files)


def _resume(
    files: RunFiles, changes: Overrides, callback: Callback | None, display: Display
) -> Summary:
    info = read_info(files)
    if info.status == "finished":  # by another process, just now
        return _finished(files, display)
    scenario = _scenario_to_resume(files, changes, display)
    start = _start(scenario)
    try:
        _check_data(start.prepared, info, display)
        return _run(start, files, info, callback, display)
    finally:
        start.prepared.close()


def _scenario_to_resume(files: RunFiles, changes: Overrides, display: Display) -> Scenario:
    """The scenario that the run was started with, and the changes; refused where its file was edited."""
    scenario = load_scenario(files)
    saved = saved_scenario(files, scenario.trials)
    edited = [] if saved is None else differences(saved, to_stored(scenario))
    if edited:
        settings = " ".join(f"--set {key}=VALUE" for key in edited[:MOST_KEYS])
        raise ProximaError(
            f"{files.scenario}: was edited since the run was started: {first_few(edited)} differ from what "
            f"its checkpoints were made with; put the old values back, or say what you want:  "
            f"proxima resume {files.run_id} {settings}"
        )
    if not changes:
        return scenario
    wanted = changed(scenario, changes, "--set")
    keys = differences(to_stored(scenario), to_stored(wanted))
    fixed = [key for key in keys if key in FIXED]
    if fixed:
        raise ProximaError(
            f"--set: {first_few(fixed)}: cannot change within a run; start a new one"
        )
    if keys:
        write_text(files.scenario, dump(wanted))
        display.say(f"Goes on with other settings than before: {first_few(keys)}.")
    return wanted


def _start(scenario: Scenario) -> Start:
    from proxima.train.devices import use_compilation_cache

    began, owner = time.perf_counter(), domain_of(scenario)
    owner.prepare_host(scenario)
    use_compilation_cache()
    return Start(scenario, owner, owner.prepare(scenario), time.perf_counter() - began)


def _new_info(start: Start, files: RunFiles) -> RunInfo:
    scenario, facts = start.scenario, start.prepared.facts
    return RunInfo(
        run_id=files.run_id,
        name=scenario.name,
        domain=scenario.domain,
        trials=scenario.trials,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        status="running",
        versions={name: version(name) for name in ("proxima", "jax", "numpy")},
        data=None if facts is None else facts.noted,
        directories=importable_directories(),
    )


def _check_data(prepared: Prepared, info: RunInfo, display: Display) -> None:
    """An error where the data is not what the run was started on."""
    if prepared.facts is None or info.data is None:
        return
    sentence = prepared.facts.check(info.data)
    if sentence is not None:
        display.say(sentence)


def _run(
    start: Start, files: RunFiles, info: RunInfo, callback: Callback | None, display: Display
) -> Summary:
    scenario, owner, prepared, seconds = start
    notes = Notes(files.info, info)
    names = stage_names(prepared)
    opening = Opening(
        scenario=scenario,
        files=files,
        notes=notes,
        display=display,
        attributes=_attributes(start),
        saved=lambda: saved(files, prepared),
        stages=names if names != [""] else [],
    )
    with open_session(opening) as session:
        note(session.clock, "build", seconds)
        run = Run(
            scenario,
            owner,
            prepared,
            files,
            session.tracker,
            display,
            session.clock,
            notes,
            callback,
        )
        stages: dict[str, list[StageResult]] = {name: [] for name in names}
        verdicts: list[Any] = []
        for planned in prepared.stages:
            if not _can_go_on(planned, stages):
                continue
            finished = _run_stage(run, planned)
            stages[planned.name] += finished.results
            verdicts.append(finished.details)
        return finish_run(run, stages, verdicts)


def _run_stage(run: Run, planned: Planned) -> Finished:
    """The stage trained and judged; one that was kept is only read."""
    if is_done(run, planned):
        return read_stage(run, planned)
    with timed(run.clock, "build"):
        trainable = planned.make(run.files.trial)
    try:
        ended = train_planned(run, planned, trainable)
        return finish_stage(run, planned, trainable, ended)
    finally:
        trainable.close()


def _can_go_on(planned: Planned, stages: Mapping[str, list[StageResult]]) -> bool:
    """Whether no trial of the stage has broken down in a stage before."""
    broken = {each.trial for before in stages.values() for each in before if each.stopped == "nan"}
    return not broken & set(planned.trials)


def _attributes(start: Start) -> dict[str, str | int]:
    scenario = start.scenario
    return {
        "scenario": scenario.name,
        "domain": scenario.domain,
        "algorithm": start.prepared.algorithm,
        "env": start.domain.overview(scenario).environment,
        "trials": scenario.trials,
        "seed": scenario.seed,
    }


__all__ = ["ProximaError", "resume_experiment", "run_multiple_experiments", "run_single_experiment"]
