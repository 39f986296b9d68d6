"""Writing a run's report: found, read, made into a page, kept beside what it is about."""

import os
import shlex
from pathlib import Path

from proxima.domains.trading.rollouts import EARNINGS, read_rollout
from proxima.domains.trading.tear_sheet import Rollouts
from proxima.report import html, plots
from proxima.report.page import RunData, report
from proxima.run.files import RunFiles, find_run, read_json, read_rows
from proxima.scenario import parse

NAME = "report.html"
REFERENCES = ("buy_and_hold", "momentum", "model", "foresight")


def report_reference(
    reference: str, out: Path | None = None, output_directory: str = "logs"
) -> Path:
    """Write the page of an experiment's latest run, or of a run, and say where it is."""
    files = find_run(reference, output_directory)
    if parse(files.scenario.read_text(), str(files.scenario)).get("domain") == "language":
        return _language_page(files, Path(reference).name, out)
    return write_report(files, out)


def _language_page(files: RunFiles, name: str, out: Path | None) -> Path:
    """Of a run its report, of a trial its samples."""
    from proxima.domains.language.finish import write_page
    from proxima.domains.language.report import write_language_report

    if name.startswith("trial_"):
        return write_page(files, int(name.removeprefix("trial_")), out)
    return write_language_report(files, out)


def write_report(files: RunFiles, out: Path | None = None) -> Path:
    """Write the page of a run, whole or not at all: report.html in its directory, or `out`."""
    page = report(read_run(files))
    path = files.root / NAME if out is None else out
    html.write_page(path, page, "report")
    return path


def read_run(files: RunFiles) -> RunData:
    """What the report is made of."""
    summary = read_json(files.summary)
    text = files.scenario.read_text()
    scenario = parse(text, str(files.scenario))
    film = files.trial(0) / "film.gif"
    output = files.experiment.parent
    at_home = output.resolve() == Path("logs").resolve()
    return RunData(
        summary=summary,
        info=read_json(files.info),
        scenario=scenario,
        scenario_text=text,
        curves=[
            plots.series(read_rows(files.trial(k) / "metrics.jsonl"), "eval/return_mean")
            for k in range(len(summary["trials"]))
        ],
        rollouts=_rollouts(files, len(summary["trials"]), scenario["data"]["periods_per_year"])
        if "trading" in summary
        else None,
        film=film.read_bytes() if film.is_file() else None,
        root=os.path.relpath(files.root),
        options="" if at_home else f" --output {shlex.quote(str(output))}",
    )


def _rollouts(files: RunFiles, trials: int, periods_per_year: float) -> Rollouts:
    """What was recorded on the test split, as far as it is there."""
    paths = {k: files.trial(k) / "rollouts" / "test.parquet" for k in range(trials)}
    others = {name: files.root / "rollouts" / f"{name}_test.parquet" for name in REFERENCES}
    return Rollouts(
        {k: read_rollout(path) for k, path in paths.items() if path.is_file()},
        {name: read_rollout(path, EARNINGS) for name, path in others.items() if path.is_file()},
        periods_per_year,
    )
