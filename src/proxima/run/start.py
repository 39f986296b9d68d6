"""Running an experiment: every trial of a scenario, from first seed to results on disk.

create or find the run's directory → build → [restore] → train, recording once per chunk → finish
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

from proxima.build import Built, build, settings
from proxima.core.errors import ProximaError
from proxima.core.seeds import trial_seeds
from proxima.run.clock import note, note_chunk, timed
from proxima.run.data import check_data, data_facts
from proxima.run.files import (
    RunFiles,
    create_run,
    find_run,
    read_info,
    read_json,
    write_json,
    write_text,
)
from proxima.run.finish import finish_run
from proxima.run.lock import locked
from proxima.run.profile import phases_of
from proxima.run.recording import (
    Callback,
    Display,
    Run,
    callback_view,
    record,
    restore,
    save_states,
    silent,
)
from proxima.run.session import Opening, note_tracked, open_session
from proxima.run.signals import interruptible
from proxima.scenario import AnyScenario, LanguageScenario, Scenario, dump, from_mapping, parse
from proxima.track.telemetry import Attributes
from proxima.train import checkpoint
from proxima.train.loop import ChunkReport, Observer, fresh_progress, train


class Start(NamedTuple):
    """A scenario made runnable, how long that took, and what run.json says of a run that goes on."""

    scenario: Scenario
    built: Built
    build_seconds: float
    resumed: Mapping[str, Any] | None


def run_multiple_experiments(
    scenario: AnyScenario, *, callback: Callback | None = None, display: Display | None = None
) -> dict[str, Any]:
    """All trials of a scenario; returns what summary.json holds."""
    if isinstance(scenario, LanguageScenario):
        from proxima.run.language import run_stages

        return run_stages(scenario, None, callback, display or silent())
    start = _start(scenario)  # first: a scenario that cannot be built leaves no run behind
    files = create_run(scenario.output_directory, scenario.name, scenario.trials)
    write_text(files.scenario, dump(scenario))
    return _run(start, files, callback, display or silent())


def run_single_experiment(
    scenario: AnyScenario, *, callback: Callback | None = None, display: Display | None = None
) -> dict[str, Any]:
    """One trial with the scenario's seed; returns what its results.json holds."""
    from dataclasses import replace

    summary = run_multiple_experiments(
        replace(scenario, trials=1), callback=callback, display=display
    )
    return summary["trials"][0]


def resume_experiment(
    reference: str,
    *,
    output_directory: str = "logs",
    callback: Callback | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """Go on with a run from its newest checkpoint; a finished run is returned as it is."""
    files = find_run(reference, output_directory)
    if read_info(files)["status"] == "finished":
        return _finished(files, display or silent())
    with locked(files.root):  # from here on nobody else changes what is read
        return _resume(files, callback, display or silent())


def _finished(files: RunFiles, display: Display) -> dict[str, Any]:
    display.say(f"{files.root} is finished; there is nothing to resume.")
    return read_json(files.summary)


def _resume(files: RunFiles, callback: Callback | None, display: Display) -> dict[str, Any]:
    info = read_info(files)
    if info["status"] == "finished":  # by another process, just now
        return _finished(files, display)
    scenario = load_scenario(files)
    if isinstance(scenario, LanguageScenario):
        from proxima.run.language import run_stages

        return run_stages(scenario, files, callback, display)
    start = _start(scenario, info)
    told = check_data(info.get("data"), start.built.market)  # older versions noted nothing
    if told is not None:
        display.say(told)
    return _run(start, files, callback, display)


def load_scenario(files: RunFiles) -> AnyScenario:
    """The scenario a run was started with."""
    source = str(files.scenario)
    return from_mapping(parse(files.scenario.read_text(), source), source)


def _start(scenario: Scenario, resumed: Mapping[str, Any] | None = None) -> Start:
    from proxima.train.devices import prepare_host, use_compilation_cache

    began = time.perf_counter()
    prepare_host(scenario.trials, scenario.training.threads)
    use_compilation_cache()
    return Start(scenario, build(scenario), time.perf_counter() - began, resumed)


def _run(
    start: Start, files: RunFiles, callback: Callback | None, display: Display
) -> dict[str, Any]:
    scenario, built, build_seconds, resumed = start
    info = dict(resumed or _new_info(scenario, built, files))
    opening = Opening(
        scenario, files, info, display, _attributes(scenario), lambda: _saved(files, scenario)
    )
    try:
        with open_session(opening) as session:
            note(session.clock, "build", build_seconds)
            run = Run(scenario, files, built, session.tracker, display, session.clock)
            return _train_and_finish(run, info, resumed is not None, callback)
    finally:
        built.program.close()


def _attributes(scenario: Scenario) -> Attributes:
    return {
        "scenario": scenario.name,
        "algorithm": scenario.algorithm.name,
        "env": scenario.env.name,
        "trials": scenario.trials,
        "seed": scenario.seed,
    }


def _saved(files: RunFiles, scenario: Scenario) -> str | None:
    step = checkpoint.common_step([files.trial(k) for k in range(scenario.trials)])
    return None if step is None else f"step {step:,}"


def _new_info(scenario: Scenario, built: Built, files: RunFiles) -> dict[str, Any]:
    return {
        "run_id": files.run_id,
        "name": scenario.name,
        "trials": scenario.trials,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("proxima", "jax", "numpy")},
        "data": data_facts(built.market),
        "mlflow_run_id": None,
        "mlflow_children": [],
        "training_seconds": 0.0,
    }


def _train_and_finish(
    run: Run, info: dict[str, Any], resuming: bool, callback: Callback | None
) -> dict[str, Any]:
    """Train to the end or to an interruption, and write down what came of it."""
    program = run.built.program
    seeds = trial_seeds(run.scenario.seed, run.scenario.trials)
    states = program.init(seeds)
    progress = fresh_progress(len(seeds))
    if resuming:
        states, progress = restore(run, states, progress)
    compiling = time.perf_counter()
    with timed(run.clock, "compile"):
        states = program.prepare(states, run.scenario.evaluation.eval_episodes)
    started, before = time.perf_counter(), info["training_seconds"]

    def training_seconds() -> float:
        return before + time.perf_counter() - started

    def on_chunk(report: ChunkReport) -> Any:
        note_chunk(run.clock, report)
        with timed(run.clock, "save", {"checkpoint": report.checkpoint_due}):
            record(run, report)
        for told in program.notices():
            run.display.say(told)
        run.display.chunk(report, training_seconds())
        if report.checkpoint_due:
            _note_progress(run, info, training_seconds())
        return callback(callback_view(report)) if callback else None

    with interruptible() as interrupted:
        observer = Observer(on_chunk, interrupted)
        states, progress = train(program, states, progress, settings(run.scenario), observer)
        stopped_early = progress.active.any()
    _note_progress(run, info, training_seconds())
    if stopped_early:
        if program.exact_anywhere:
            save_states(run, states, progress)
        raise KeyboardInterrupt
    if any(book.stopped == "callback" for book in progress.books):
        save_states(run, states, progress)
    if interrupted():  # during the last chunk
        raise KeyboardInterrupt
    times: dict[str, Any] = {
        "compile_seconds": started - compiling,
        "training_seconds": training_seconds(),
    }
    times["phases"] = phases_of(run, states, progress)
    summary = finish_run(run, states, progress, info, times)
    run.display.close()
    return summary


def _note_progress(run: Run, info: dict[str, Any], seconds: float) -> None:
    note_tracked(info, run.tracker)
    info |= {"training_seconds": seconds, "time": dict(run.clock.seconds)}
    write_json(run.files.info, info)


__all__ = ["ProximaError", "resume_experiment", "run_multiple_experiments", "run_single_experiment"]
