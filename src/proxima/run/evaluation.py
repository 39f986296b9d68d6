"""Looking at runs again: evaluating a saved policy, and comparing runs."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from proxima.build import build
from proxima.core.errors import ProximaError
from proxima.report import comparison, plots
from proxima.run.files import RunFiles, find_run, read_json, read_rows
from proxima.run.finish import CLOSING_POLICIES, make_film
from proxima.run.start import load_scenario
from proxima.scenario import Scenario, from_mapping, with_environment
from proxima.train import checkpoint
from proxima.train.devices import prepare_host, use_compilation_cache
from proxima.train.evaluate import describe
from proxima.train.program import Recording

# What to do with runs of language models.
LANGUAGE = (
    "its figures on held-out prompts are in its report, and `proxima generate` samples from it"
)


def evaluate_reference(
    reference: str, episodes: int, film: Path | None = None, output_directory: str = "logs"
) -> dict[str, Any]:
    """Greedy, sampled and random returns of a checkpoint, named directly or by its run."""
    path = find_checkpoint(reference, output_directory)
    manifest = checkpoint.load_manifest(path)
    scenario = with_environment(
        from_mapping(manifest["scenario"], str(path / "manifest.json")), LANGUAGE
    )
    prepare_host(1, scenario.training.threads)
    use_compilation_cache()
    built = build(replace(scenario, trials=1))
    seed = scenario.seed + manifest["trial"]
    (template,) = checkpoint.split_trials(built.program.init([seed]))
    state, _ = checkpoint.load(path, template)
    learners = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], state.learner)
    result: dict[str, Any] = {"checkpoint": str(path), "step": manifest["step"]}
    for name, policy in CLOSING_POLICIES.items():
        result[name] = describe(built.program.examine(learners, policy, episodes), 0)
    if film is not None:
        _film(film, scenario, built.program.record(state.learner))
    built.program.close()
    return result


def _film(path: Path, scenario: Scenario, recording: Recording) -> None:
    try:
        drawn = make_film(path, scenario.env.name, recording)
    except OSError as error:
        raise ProximaError(f"--film {path}: cannot write there ({error.strerror})") from error
    if not drawn:
        raise ProximaError(f"--film: there is no drawing of {scenario.env.name}")


def find_checkpoint(reference: str, output_directory: str) -> Path:
    """The checkpoint meant by a checkpoint's or trial's path, or by a run.

    Of a run it is its first trial's, the one that the run itself was judged by.
    """
    path = Path(reference).expanduser()
    inside = (path / "manifest.json", path / "checkpoints" / "last", path / "last")
    if any(each.exists() for each in inside):
        return checkpoint.resolve(path)
    files = find_run(reference, output_directory)
    scenario = with_environment(load_scenario(files), LANGUAGE)
    chosen = files.trial(0) / "checkpoints" / scenario.evaluation.checkpoint
    return checkpoint.resolve(chosen if chosen.exists() else files.trial(0))


def compare_references(
    references: list[str], plot: Path, output_directory: str = "logs"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the comparison and the paired differences between neighbours; draws the plot."""
    runs = [_load_run(find_run(reference, output_directory)) for reference in references]
    if len(runs) > 1 and len({run.name for run in runs}) < len(runs):
        ids = [read_json(find_run(r, output_directory).info)["run_id"] for r in references]
        runs = [
            run._replace(name=f"{run.name} {each}") for run, each in zip(runs, ids, strict=True)
        ]
    try:
        comparison.compare_runs(plot, runs)
    except OSError as error:
        raise ProximaError(f"--plot {plot}: cannot write there ({error.strerror})") from error
    improvements = [_improvement(first, second) for first, second in pairwise(runs)]
    return comparison.comparison_rows(runs), improvements


def _load_run(files: RunFiles) -> comparison.Run:
    summary = read_json(files.summary)
    if summary.get("domain") == "language":
        if "aggregate" not in summary:
            raise ProximaError(f"{files.root}: has no ppo stage, so there is no reward to compare")
        where, key = "ppo/metrics.jsonl", "eval/reward"
    else:
        where, key = "metrics.jsonl", "eval/return_mean"
    curves = [
        plots.series(read_rows(files.trial(k) / where), key) for k in range(len(summary["trials"]))
    ]
    return comparison.Run(summary["scenario"], curves, summary["trials"])


def _improvement(first: comparison.Run, second: comparison.Run) -> dict[str, Any]:
    try:
        found = comparison.improvement(first, second)
    except ProximaError as error:
        return {"first": first.name, "second": second.name, "text": str(error)}
    text = (
        f"{first.name} − {second.name}: {found['difference']:+.1f}"
        f" [{found['difference_low']:+.1f}, {found['difference_high']:+.1f}] per episode;"
        f" better on {found['probability']:.0%} of paired episodes"
    )
    return found | {"text": text}
