"""What is made of finished runs: the page of one, and the comparison of several."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.files import explaining
from proxima.report import comparison, html, plots, trials
from proxima.report.numbers import first_few
from proxima.report.page import RunData, report
from proxima.run.files import RunFiles, find_run, read_rows, read_text
from proxima.run.read import load_scenario, read_info, read_summary
from proxima.run.results import Summary, TrialResult
from proxima.scenario import differences, to_mapping

NAME = "report.html"
SAVED = "trial_*/**/checkpoints/step_*"
MOST_DIFFERENCES = 4  # that a sentence names


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
    return RunData(
        summary=_read_finished(files),
        info=read_info(files),
        scenario=to_mapping(load_scenario(files)),
        scenario_text=read_text(files.scenario),
        metrics=lambda trial, stage: read_rows(files.trial(trial) / stage / "metrics.jsonl"),
        directory=files.root,
        root=os.path.relpath(files.root),
        options=_output_option(files),
    )


class Compared(NamedTuple):
    """A run of a comparison, and what its closing episodes depend on."""

    run: comparison.RunCurves
    evaluated_on: Mapping[str, Any]


def compare_references(
    references: list[str], plot: Path, output_directory: str = "logs"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the comparison and the paired differences between neighbours; draws the plot."""
    directories = [find_run(reference, output_directory) for reference in references]
    loaded = [_load_run(files) for files in directories]
    if len({run.name for run, _ in loaded}) < len(loaded):
        loaded = [
            Compared(run._replace(name=f"{run.name} {files.run_id}"), ground)
            for (run, ground), files in zip(loaded, directories, strict=True)
        ]
    runs = [run for run, _ in loaded]
    with explaining(f"--plot {plot}"):
        comparison.compare_runs(plot, runs)
    improvements = [_improvement(first, second) for first, second in pairwise(loaded)]
    return trials.comparison_rows(runs), improvements


def _load_run(files: RunFiles) -> Compared:
    summary, scenario = _read_finished(files), load_scenario(files)
    if summary.aggregate is None:
        raise ProximaError(
            f"{files.root}: no stage of it was evaluated in episodes: nothing to compare"
        )
    domain = domain_of(scenario)
    curves = read_curves(files, domain.curve(scenario), summary.trials)
    ground = domain.evaluated_on(to_mapping(scenario), read_info(files).data)
    return Compared(comparison.RunCurves(summary.scenario, curves, summary.trials), ground)


def _read_finished(files: RunFiles) -> Summary:
    """A run's summary; of one that has none yet, an error that says how to go on with it."""
    if files.summary.exists() or read_info(files).status == "finished":
        return read_summary(files)
    names = [path.name.removeprefix("step_") for path in files.root.glob(SAVED)]
    saved = [int(name) for name in names if name.isdecimal()]
    budget = (to_mapping(load_scenario(files)).get("training") or {}).get("max_steps")
    reached = f"at step {max(saved):,}" if saved else "before its first checkpoint"
    reached += f" of {budget:,}" if saved and budget else ""
    is_open = read_info(files).status in ("running", "finishing")
    state = "is running, or was killed" if is_open else "stopped"
    command = f"proxima resume {files.run_id}{_output_option(files)}"
    when = " once no process is at work on it" if is_open else ""
    raise ProximaError(f"{files.root}: this run {state} {reached}; `{command}` goes on{when}")


def _output_option(files: RunFiles) -> str:
    """What a command needs besides a run's id to find it."""
    output = files.experiment.parent
    at_home = output.resolve() == Path("logs").resolve()
    return "" if at_home else f" --output {shlex.quote(str(output))}"


def read_curves(
    files: RunFiles, curve: tuple[str, str], results: Sequence[TrialResult]
) -> list[comparison.Curve]:
    """The learning curve of every trial: a metric of a stage, as its domain names them."""
    stage, metric = curve
    paths = [files.trial(trial.trial) / stage / "metrics.jsonl" for trial in results]
    return [plots.series(read_rows(path), metric) for path in paths]


def _improvement(first: Compared, second: Compared) -> dict[str, Any]:
    """How much better a run is than the next, paired; where that says nothing, why."""
    one, other = first.evaluated_on, second.evaluated_on
    names = {"first": first.run.name, "second": second.run.name}
    keys = differences(one, other)
    if keys:
        values = [f"{key} {_value(one, key)} and {_value(other, key)}" for key in keys]
        text = (
            f"{first.run.name} and {second.run.name} are not paired, for they were not evaluated on the "
            f"same episodes: {first_few(values, MOST_DIFFERENCES)}; compare their intervals only"
        )
        return names | {"differences": keys, "text": text}
    try:
        difference = trials.improvement(first.run, second.run)
    except ProximaError as error:
        return names | {"text": str(error)}
    return difference | {"text": trials.difference_words(difference)}


def _value(ground: Mapping[str, Any], key: str) -> str:
    """The value of a dotted key."""
    value: Any = ground
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return json.dumps(value)
