"""What is made of finished runs: the page of one, and the comparison of several."""

import os
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.files import explaining
from proxima.report import comparison, html, plots, trials
from proxima.report.page import RunData, report
from proxima.run.files import RunFiles, find_run, read_rows, read_text
from proxima.run.read import load_scenario, read_info, read_summary
from proxima.run.results import TrialResult
from proxima.scenario import to_mapping

NAME = "report.html"


def report_reference(
    reference: str, out: Path | None = None, output_directory: str = "logs"
) -> Path:
    """Write the page of an experiment's latest run, of a run, or of a trial that has one of its own."""
    files, name = find_run(reference, output_directory), Path(reference).name
    scenario = load_scenario(files)
    of_trial = domain_of(scenario).trial_page
    if of_trial is not None and name.startswith("trial_"):
        return of_trial(scenario, files.root / name, out)
    return write_report(files, out)


def write_report(files: RunFiles, out: Path | None = None) -> Path:
    """Write the page of a run, whole or not at all: report.html in its directory, or `out`."""
    run, path = read_run(files), out or files.root / NAME
    page = domain_of(load_scenario(files)).page(run)
    html.write_page(path, report(run, page), "report")
    return path


def read_run(files: RunFiles) -> RunData:
    """What the report is made of."""
    output = files.experiment.parent
    at_home = output.resolve() == Path("logs").resolve()
    return RunData(
        summary=read_summary(files),
        info=read_info(files),
        scenario=to_mapping(load_scenario(files)),
        scenario_text=read_text(files.scenario),
        metrics=lambda trial, stage: read_rows(files.trial(trial) / stage / "metrics.jsonl"),
        directory=files.root,
        root=os.path.relpath(files.root),
        options="" if at_home else f" --output {shlex.quote(str(output))}",
    )


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
    with explaining(f"--plot {plot}"):
        comparison.compare_runs(plot, runs)
    improvements = [_improvement(first, second) for first, second in pairwise(runs)]
    return trials.comparison_rows(runs), improvements


def _load_run(files: RunFiles) -> comparison.RunCurves:
    summary = read_summary(files)
    if summary.aggregate is None:
        raise ProximaError(
            f"{files.root}: no stage of it was evaluated in episodes: nothing to compare"
        )
    curves = read_curves(files, domain_of(load_scenario(files)).curve, summary.trials)
    return comparison.RunCurves(summary.scenario, curves, summary.trials)


def read_curves(
    files: RunFiles, curve: tuple[str, str], results: Sequence[TrialResult]
) -> list[comparison.Curve]:
    """The learning curve of every trial: a metric of a stage, as its domain names them."""
    stage, metric = curve
    paths = [files.trial(trial.trial) / stage / "metrics.jsonl" for trial in results]
    return [plots.series(read_rows(path), metric) for path in paths]


def _improvement(first: comparison.RunCurves, second: comparison.RunCurves) -> dict[str, Any]:
    try:
        difference = trials.improvement(first, second)
    except ProximaError as error:
        return {"first": first.name, "second": second.name, "text": str(error)}
    return difference | {"text": trials.difference_words(difference)}
