"""Comparing runs: intervals side by side, paired differences, one plot."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.report import comparison, plots
from proxima.run.files import RunFiles, find_run, read_rows
from proxima.run.read import load_scenario, read_summary
from proxima.run.results import TrialResult


def compare_references(
    references: list[str], plot: Path, output_directory: str = "logs"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the comparison and the paired differences between neighbours; draws the plot."""
    directories = [find_run(reference, output_directory) for reference in references]
    runs = [_load_run(files) for files in directories]
    if len({run.name for run in runs}) < len(runs):
        runs = [
            run._replace(name=f"{run.name} {files.run_id}")
            for run, files in zip(runs, directories, strict=True)
        ]
    try:
        comparison.compare_runs(plot, runs)
    except OSError as error:
        raise ProximaError(f"--plot {plot}: cannot write there ({error.strerror})") from error
    improvements = [_improvement(first, second) for first, second in pairwise(runs)]
    return comparison.comparison_rows(runs), improvements


def _load_run(files: RunFiles) -> comparison.Run:
    summary = read_summary(files)
    if summary.aggregate is None:
        raise ProximaError(
            f"{files.root}: no stage of it was evaluated in episodes: nothing to compare"
        )
    curves = read_curves(files, domain_of(load_scenario(files)).curve, summary.trials)
    return comparison.Run(summary.scenario, curves, summary.trials)


def read_curves(
    files: RunFiles, curve: tuple[str, str], trials: Sequence[TrialResult]
) -> list[comparison.Curve]:
    """The learning curve of every trial: a metric of a stage, as its domain names them."""
    stage, metric = curve
    paths = [files.trial(trial.trial) / stage / "metrics.jsonl" for trial in trials]
    return [plots.series(read_rows(path), metric) for path in paths]


def _improvement(first: comparison.Run, second: comparison.Run) -> dict[str, Any]:
    try:
        difference = comparison.improvement(first, second)
    except ProximaError as error:
        return {"first": first.name, "second": second.name, "text": str(error)}
    text = (
        "{first} − {second}: {difference:+.1f} [{difference_low:+.1f}, {difference_high:+.1f}] per "
        "episode; better on {probability:.0%} of paired episodes"
    )
    return difference | {"text": text.format(**difference)}
