"""Comparing runs: intervals side by side, paired differences, one plot."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.report import comparison, plots, trials
from proxima.run.files import RunFiles, find_run, read_rows
from proxima.run.read import load_scenario, read_summary


def compare_references(
    references: list[str], plot: Path, output_directory: str = "logs"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the comparison and the paired differences between neighbours; draws the plot."""
    directories = [find_run(reference, output_directory) for reference in references]
    runs = [_load_run(files) for files in directories]
    if len(runs) > 1 and len({run.name for run in runs}) < len(runs):
        runs = [
            run._replace(name=f"{run.name} {files.run_id}")
            for run, files in zip(runs, directories, strict=True)
        ]
    try:
        comparison.compare_runs(plot, runs)
    except OSError as error:
        raise ProximaError(f"--plot {plot}: cannot write there ({error.strerror})") from error
    improvements = [_improvement(first, second) for first, second in pairwise(runs)]
    return trials.comparison_rows(runs), improvements


def _load_run(files: RunFiles) -> comparison.Run:
    summary = read_summary(files)
    if summary.aggregate is None:
        raise ProximaError(
            f"{files.root}: no stage of it was evaluated in episodes: nothing to compare"
        )
    stage, metric = domain_of(load_scenario(files)).curve
    curves = [
        plots.series(read_rows(files.trial(trial.trial) / stage / "metrics.jsonl"), metric)
        for trial in summary.trials
    ]
    return comparison.Run(summary.scenario, curves, summary.trials)


def _improvement(first: comparison.Run, second: comparison.Run) -> dict[str, Any]:
    try:
        found = trials.improvement(first, second)
    except ProximaError as error:
        return {"first": first.name, "second": second.name, "text": str(error)}
    text = (
        f"{first.name} − {second.name}: {found['difference']:+.1f}"
        f" [{found['difference_low']:+.1f}, {found['difference_high']:+.1f}] per episode;"
        f" better on {found['probability']:.0%} of paired episodes"
    )
    return found | {"text": text}
