"""The report of a run: one page that says what came out, how sure that is, and how it was made.

The frame knows no domain. A domain gives what it has to say as a `Page`; the frame puts it in order and
adds what every run has: its trials, when it started, its versions, its commands and its settings.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from proxima.core.addresses import masked
from proxima.core.records import Record
from proxima.report.html import Content, Markup, document, fold, heading, section, table, tag

Rows = Sequence[Mapping[str, Any]]  # of metrics.jsonl: `step`, and numbers by name


class RunData(NamedTuple):
    """What a run's directory holds, as far as a report is about it."""

    summary: Any
    """The run's results; read as summary["key"]."""
    info: Record
    """run.json"""
    scenario: Mapping[str, Any]
    """The resolved scenario."""
    scenario_text: str
    metrics: Callable[[int, str], Rows]
    """The rows that a trial recorded in a stage; the stage is "" in runs of one stage."""
    directory: Path
    root: str
    """The run's directory, as a user in the working directory would write it."""
    options: str
    """What a command needs besides the run's id to find it, for example --output DIRECTORY."""

    def trial(self, index: int) -> Path:
        """The directory of one trial."""
        return self.directory / f"trial_{index}"


class Page(NamedTuple):
    """What a domain says about a run, in the order of the page."""

    about: Sequence[str]
    """Short facts under the title; the frame adds trials, start and run id."""
    result: Sequence[Content]
    """The result in a sentence."""
    alarms: Sequence[Markup]
    """Boxes that a reader must see before believing the rest."""
    figures: Sequence[tuple[str, Content]]
    """Cards: a name and its value."""
    sections: Sequence[Markup]
    commands: Mapping[str, str]
    """Commands that go on from here and what they do; the frame adds resume, report and repeat."""
    facts: Mapping[str, str] = MappingProxyType({})
    """Rows of the table of how the run was made."""
    style: str = ""
    """CSS besides the common one."""


def report(run: RunData, page: Page) -> str:
    """The page, whole: HTML that needs nothing besides itself."""
    trials, name = len(run.summary["trials"]), run.summary["scenario"]
    tried = run.scenario.get("tried", 1)
    about = [
        *page.about,
        *([f"settings chosen among {tried:,} configurations"] if tried > 1 else []),
        f"{trials} trial{'s' * (trials > 1)}",
        f"started {_time(run.info['started'])}",
        f"run {run.summary['run_id']}",
    ]
    top = heading(name, run.scenario["description"] or "", about)
    parts: list[Content] = [top, tag("p.result", *page.result), *page.alarms]
    if page.figures:
        cards = (tag("div", tag("dt", figure), tag("dd", value)) for figure, value in page.figures)
        parts.append(tag("dl.figures", *cards))
    making = section("How it was made", *_making(run, page))
    return document(f"{name} · Proxima report", *parts, *page.sections, making, style=page.style)


def _time(moment: str) -> str:
    """A moment as run.json has it, for a person."""
    return moment.replace("T", " ").replace("+00:00", " UTC")


def _making(run: RunData, page: Page) -> list[Content]:
    """How the run was made: its facts, commands that go on from it and what they do, its settings."""
    run_id = run.summary["run_id"]
    commands = {
        **page.commands,
        f"proxima resume {run_id}{run.options}": "go on, if it was stopped",
        f"proxima report {run_id}{run.options}": "write this page again",
        f"proxima experiment --config {run.root}/scenario.yaml": "repeat it",
    }
    facts = {"Run": run_id, "Files": run.root, **page.facts, **run.info["versions"]}
    if run.info["mlflow_run_id"] is not None:
        facts["MLflow run"] = run.info["mlflow_run_id"]
    for change in run.info["changes"]:
        where = f"{'update' if change.stage else 'step'} {change.step:,}"
        where += f" of {change.stage}, trial {change.trial}" if change.stage else ""
        facts[f"Changed at {where} ({_time(change.at)})"] = "; ".join(change.words())
    shown = "".join(f"# {purpose}\n{command}\n" for command, purpose in commands.items())
    return [
        table(["", ""], [[name, value] for name, value in facts.items()], "facts"),
        tag("pre", shown),
        fold("Settings (scenario.yaml)", tag("pre", masked(run.scenario_text))),
    ]
