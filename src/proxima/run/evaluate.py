"""Looking at a saved policy again: greedy, sampled and random on the fixed evaluation episodes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.run.files import find_run
from proxima.run.read import load_scenario, make_run_importable
from proxima.run.results import to_json
from proxima.scenario import Scenario, from_mapping
from proxima.train import checkpoint
from proxima.train.devices import use_compilation_cache


def evaluate_reference(
    reference: str, episodes: int, film: Path | None = None, output_directory: str = "logs"
) -> dict[str, Any]:
    """Greedy, sampled and random returns of a checkpoint, named directly or by its run."""
    path = find_checkpoint(reference, output_directory)
    manifest = checkpoint.load_manifest(path)
    make_run_importable(path)
    scenario = from_mapping(manifest["scenario"], str(path / "manifest.json"))
    scenario, owner = replace(scenario, trials=1), domain_of(scenario)
    owner.prepare_host(scenario)
    use_compilation_cache()
    prepared = owner.prepare(scenario)
    try:
        trainable = prepared.stages[0].make(lambda trial: path.parent)
        if trainable.measure is None or trainable.record is None:
            raise ProximaError(_no_episodes(scenario))
        (template,) = trainable.stage.split(trainable.stage.init())
        state, _ = checkpoint.load(path, template)
        policies = trainable.measure(state, episodes)
        if film is not None:
            _film(film, scenario, trainable.record(state))
    finally:
        prepared.close()
    measured = {name: to_json(each) for name, each in policies.items()}
    return {"checkpoint": str(path), "step": manifest["step"]} | measured


def _film(path: Path, scenario: Any, recording: Any) -> None:
    try:
        drawn = domain_of(scenario).film(path, scenario.env.name, recording)
    except OSError as error:
        raise ProximaError(f"--film {path}: cannot write there ({error.strerror})") from error
    if not drawn:
        raise ProximaError(f"--film: there is no drawing of {scenario.env.name}")


def _no_episodes(scenario: Scenario) -> str:
    return f"{scenario.name}: has no environment to play in; its figures on held-out data are in its report"


def find_checkpoint(reference: str, output_directory: str) -> Path:
    """The checkpoint meant by a checkpoint's or trial's path, or by a run.

    Of a run it is its first trial's, the one that the run itself was judged by.
    """
    path = Path(reference)
    inside = (path / "manifest.json", path / "checkpoints" / "last", path / "last")
    if any(each.exists() for each in inside):
        return checkpoint.resolve(path)
    files = find_run(reference, output_directory)
    scenario: Any = load_scenario(files)
    if domain_of(scenario).curve[0]:
        raise ProximaError(_no_episodes(scenario))
    chosen = files.trial(0) / "checkpoints" / scenario.evaluation.checkpoint
    return checkpoint.resolve(chosen if chosen.exists() else files.trial(0))
