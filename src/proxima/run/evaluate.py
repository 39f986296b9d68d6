"""Measuring without a run: a saved policy on the fixed evaluation episodes, or the parts of an update."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proxima.build import algorithm, domain_of
from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.domains.domain import DataFigures, Trainable
from proxima.files import explaining
from proxima.run.files import RunFiles, find_policy, find_trial
from proxima.run.policy import raw_domain
from proxima.run.read import load_scenario, make_run_importable
from proxima.run.results import to_json
from proxima.scenario import EnvironmentScenario, Scenario, from_mapping
from proxima.track.registry import describe_exported
from proxima.train import checkpoint
from proxima.train.devices import use_compilation_cache
from proxima.train.memory import memory_metrics

KINDS = (checkpoint.BEST, checkpoint.LAST)


@contextmanager
def _first_stage(scenario: Scenario, folder: Path) -> Iterator[Trainable]:
    """The first stage of a scenario, as a run in this folder would train it."""
    owner = domain_of(scenario)
    owner.prepare_host(scenario)
    use_compilation_cache()
    prepared = owner.prepare(scenario)
    try:
        yield prepared.stages[0].make(lambda trial: folder)
    finally:
        prepared.close()


def evaluate_reference(
    reference: str,
    episodes: int,
    film: Path | None = None,
    output_directory: str = "logs",
    trial: int | None = None,
) -> dict[str, Any]:
    """Greedy, sampled and random returns of a checkpoint, named directly or by its trial or run."""
    kind, path = _find_checkpoint(reference, output_directory, trial)
    manifest = checkpoint.load_manifest(path)
    make_run_importable(path)
    scenario = from_mapping(manifest["scenario"], str(path / "manifest.json"))
    # A checkpoint of before does not say its trial, and is of a scenario in which all trials are alike.
    scenario = domain_of(scenario).one_trial(scenario, manifest.get("trial", 0))
    if isinstance(
        scenario, EnvironmentScenario
    ):  # so that it is known whether they fit into memory
        scenario = replace(
            scenario, evaluation=replace(scenario.evaluation, final_episodes=episodes)
        )
    with _first_stage(scenario, path.parent) as trainable:
        if trainable.measure is None or trainable.record is None:
            raise _no_episodes(scenario)
        (template,) = trainable.stage.split(trainable.stage.init())
        state, _ = checkpoint.load(path, template)
        policies = trainable.measure(state, episodes)
        if film is not None:
            _film(film, scenario, trainable.record(state))
    measured = {name: to_json(policy) for name, policy in policies.items()}
    return {"checkpoint": str(path), "kind": kind, "step": manifest["step"]} | measured


def evaluate_on_data(
    reference: str, data: Path, output_directory: str = "logs", trial: int | None = None
) -> DataFigures:
    """An exported policy, named by its directory, its trial or its run, on data that the run has not seen."""
    if checkpoint.is_checkpoint(Path(usable_path(reference))):
        raise ProximaError(
            f"--data: {reference} is a checkpoint, and an exported policy is what goes over new data; "
            "name its run or trial"
        )
    directory = find_policy(reference, output_directory, trial)
    about = describe_exported(directory)
    owner = raw_domain(directory, about)
    if owner is None or owner.evaluate_data is None:
        name = about.get("scenario", reference)
        raise ProximaError(
            f"--data: {name} is not trained on a file of data, or by an older version, whose policies take "
            "none; leave it out"
        )
    use_compilation_cache()
    return owner.evaluate_data(directory, data)


def _film(path: Path, scenario: Any, recording: Any) -> None:
    with explaining(f"--film {path}"):
        drawn = domain_of(scenario).film(path, scenario.env.name, recording)
    if not drawn:
        raise ProximaError(f"--film: there is no drawing of {scenario.env.name}")


def _no_episodes(scenario: Scenario) -> ProximaError:
    return ProximaError(
        f"{scenario.name}: has no environment to play in; its figures on held-out data are in its report"
    )


def _find_checkpoint(reference: str, output_directory: str, trial: int | None) -> tuple[str, Path]:
    """The checkpoint meant by its own path, or by a trial or a run; which it is, "" where that is not known.

    Of a trial it is the one by which the run judged it and exported its policy; of a run, its first trial's.
    """
    path = Path(usable_path(reference))
    if checkpoint.is_checkpoint(path):
        if trial is not None:
            raise ProximaError(
                f"--trial {trial}: {reference} is a checkpoint already; name its run"
            )
        return path.name if path.name in KINDS else "", checkpoint.resolve(path)
    folder = find_trial(
        str(path.parent if path.name == "checkpoints" else path), output_directory, trial
    )
    make_run_importable(folder)
    files = RunFiles(folder.resolve().parent)
    if files.info.is_file() and domain_of(scenario := load_scenario(files)).curve(scenario)[0]:
        raise _no_episodes(scenario)
    manifest = checkpoint.load_manifest(folder)
    wanted = manifest["scenario"].get("evaluation", {}).get("checkpoint", checkpoint.LAST)
    return checkpoint.judged(folder, wanted)


def profile_scenario(scenario: Scenario) -> dict[str, Any]:
    """Seconds of the parts of an update and of an evaluation, throughput and memory; no run is made."""
    if not isinstance(scenario, EnvironmentScenario):
        raise ProximaError(
            f"{scenario.name}: has no environment; its runs note the time of every part of an update"
        )
    with _first_stage(scenario, Path()) as trainable:
        stage, settings = trainable.stage, scenario.algorithm
        states, began = stage.init(), time.perf_counter()
        states = stage.prepare(states)
        compiled = time.perf_counter()
        begins = algorithm(settings.name).learning_begins(settings)
        updates = max(stage.schedule.updates_per_chunk, -(-begins // stage.steps_per_update))
        active = np.ones(scenario.trials, bool)
        states, _ = stage.advance(states, active, updates, 0)
        states, rows = stage.advance(states, active, updates, updates)
        phases = trainable.profile(states, rows[:1], updates) or {}
        evaluating = time.perf_counter()
        stage.evaluate(states)
        evaluated = time.perf_counter()
    steps = stage.steps_per_update * scenario.trials
    return {
        "scenario": scenario.name,
        "algorithm": settings.name,
        "trials": scenario.trials,
        "steps_per_update": steps,
        "phases": phases,
        "evaluate": evaluated - evaluating,
        "compile": compiled - began,
        "steps_per_second": steps / phases["update"],
        "memory": memory_metrics(),
    }
