"""Writing a run's report: its directory is found and read, its domain says what the page says."""

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proxima.report import html
from proxima.report.page import Page, RunData, report
from proxima.run.files import RunFiles, find_run, read_json, read_rows
from proxima.scenario import parse

NAME = "report.html"


def report_reference(
    reference: str, out: Path | None = None, output_directory: str = "logs"
) -> Path:
    """Write the page of an experiment's latest run, of a run, or of a trial's samples; returns its path."""
    files = find_run(reference, output_directory)
    name = Path(reference).name
    language = parse(files.scenario.read_text(), str(files.scenario)).get("domain") == "language"
    if language and name.startswith("trial_"):
        from proxima.domains.language.finish import write_page

        return write_page(files, int(name.removeprefix("trial_")), out)
    return write_report(files, out)


def write_report(files: RunFiles, out: Path | None = None) -> Path:
    """Write the page of a run, whole or not at all: report.html in its directory, or `out`."""
    run = read_run(files)
    path = files.root / NAME if out is None else out
    html.write_page(path, report(run, _page_of(run.scenario)(run)), "report")
    return path


def read_run(files: RunFiles) -> RunData:
    """What the report is made of."""
    text = files.scenario.read_text()
    output = files.experiment.parent
    at_home = output.resolve() == Path("logs").resolve()
    return RunData(
        summary=read_json(files.summary),
        info=read_json(files.info),
        scenario=parse(text, str(files.scenario)),
        scenario_text=text,
        metrics=lambda trial, stage: read_rows(files.trial(trial) / stage / "metrics.jsonl"),
        directory=files.root,
        root=os.path.relpath(files.root),
        options="" if at_home else f" --output {shlex.quote(str(output))}",
    )


def _page_of(scenario: Mapping[str, Any]) -> Callable[[RunData], Page]:
    """What the domain of a scenario says on the page."""
    if scenario.get("domain") == "language":
        from proxima.domains.language.page import page
    elif scenario["env"]["backend"] == "trading":
        from proxima.domains.trading.page import page
    elif scenario["env"]["backend"] == "jumanji":
        from proxima.domains.packing.page import page
    else:
        from proxima.domains.control.page import page
    return page
