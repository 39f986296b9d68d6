"""Running an experiment: every trial of a scenario, from first seed to results on disk.

prepare ─► create or find the directory ─► for each stage: [restore] train, record, judge ─► finish
"""

import dataclasses
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from proxima.build import domain_of, importable_directories
from proxima.core.functions import imports_in
from proxima.domains.domain import Planned
from proxima.run.clock import timed
from proxima.run.display import Callback, Display
from proxima.run.files import RunFiles, create_run, write_text
from proxima.run.finish import Finished, finish_run, finish_stage, is_done, read_stage
from proxima.run.gang import Member, announce, led_by
from proxima.run.record import Run, stage_names
from proxima.run.results import RunInfo, StageResult, Summary, TrialResult
from proxima.run.screen import shown_progress
from proxima.run.session import Start, open_run
from proxima.run.train import TrainBlocks, train_planned
from proxima.scenario import Scenario, dump, to_mapping


def run_multiple_experiments(
    scenario: Scenario,
    *,
    callback: Callback | None = None,
    display: Display | None = None,
    progress: bool = False,
    cluster: TrainBlocks | None = None,
    gang: Member | None = None,
    run_id: str | None = None,
) -> Summary:
    """All trials of a scenario; returns what summary.json holds. `progress` shows how far it is.

    `cluster` trains the blocks of a stage elsewhere: `with proxima.cluster.blocks.on_cluster(…) as cluster`.
    """
    # first: a scenario that cannot be built leaves no run behind
    start = make_runnable(scenario, gang)
    try:
        files = create_run(scenario.output_directory, scenario.name, scenario.trials, run_id)
        write_text(files.scenario, dump(start.scenario))
        with shown_progress(scenario, display, progress) as shown:
            info = _new_info(start, files)
            return run_stages(start, files, info, callback, shown, cluster)
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


def make_runnable(scenario: Scenario, gang: Member | None = None) -> Start:
    """The scenario's domain makes it runnable, by this process alone or with the rest of its gang."""
    from proxima.train.devices import use_compilation_cache

    began, domain = time.perf_counter(), domain_of(scenario)
    if gang is not None:
        announce(gang, scenario)
    domain.prepare_host(scenario)
    use_compilation_cache()
    prepared = domain.prepare(scenario)
    if gang is not None:
        prepared = led_by(gang, prepared)
    return Start(prepared.scenario or scenario, domain, prepared, time.perf_counter() - began)


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


def run_stages(
    start: Start,
    files: RunFiles,
    info: RunInfo,
    callback: Callback | None,
    display: Display,
    cluster: TrainBlocks | None = None,
) -> Summary:
    """Every stage trained and judged, then the run finished; what was done before is only read."""
    for sentence in imports_in(to_mapping(start.scenario)):
        display.say(sentence)
    with open_run(start, files, info, callback, display) as run:
        for note in run.prepared.notes:
            display.say(note)
        stages: dict[str, list[StageResult]] = {name: [] for name in stage_names(run.prepared)}
        verdicts: list[Any] = []
        for planned in run.prepared.stages:
            if _can_go_on(planned, stages):
                finished = _run_stage(run, planned, cluster)
                stages[planned.name] += finished.results
                verdicts.append(finished.details)
        return finish_run(run, stages, verdicts)


def _run_stage(run: Run, planned: Planned, cluster: TrainBlocks | None) -> Finished:
    """The stage trained and judged; one that was kept is only read."""
    if is_done(run, planned):
        return read_stage(run, planned)
    with timed(run.clock, "build"):
        trainable = planned.make(run.files.trial)
    try:
        ended = train_planned(run, planned, trainable, cluster)
        return finish_stage(run, planned, trainable, ended)
    finally:
        trainable.close()


def _can_go_on(planned: Planned, stages: Mapping[str, list[StageResult]]) -> bool:
    """Whether no trial of the stage has broken down in a stage before."""
    results = [result for of_stage in stages.values() for result in of_stage]
    return not any(r.stopped == "nan" and r.trial in planned.trials for r in results)
