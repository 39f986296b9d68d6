"""Writing a run's report: its directory is read, its domain says what the page says."""

import os
import shlex
from pathlib import Path

from proxima.build import domain_of
from proxima.report import html
from proxima.report.page import RunData, report
from proxima.run.files import RunFiles, find_run, read_rows, read_text
from proxima.run.read import load_scenario, read_info, read_summary
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
