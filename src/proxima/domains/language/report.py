"""Writing the report of a language run: its files read, made into one page, kept beside them."""

import os
import shlex
from pathlib import Path

from proxima.domains.language.page import LanguageRunData, language_report
from proxima.report import html
from proxima.run.files import RunFiles, read_json, read_rows
from proxima.domains.language.scenario import LanguageScenario, from_mapping, parse

NAME = "report.html"
MOST_SAMPLES = 8  # on the page of a run; a trial's own page has them all


def write_language_report(files: RunFiles, out: Path | None = None) -> Path:
    """Write the page of a run, whole or not at all: report.html in its directory, or `out`."""
    page = language_report(read_language_run(files))
    path = files.root / NAME if out is None else out
    html.write_page(path, page, "report")
    return path


def read_language_run(files: RunFiles) -> LanguageRunData:
    """What the report is made of."""
    summary = read_json(files.summary)
    text = files.scenario.read_text()
    scenario = from_mapping(parse(text, str(files.scenario)), str(files.scenario))
    assert isinstance(scenario, LanguageScenario)
    chosen = _median(summary)
    samples = files.trial(chosen) / "samples.json"
    output = files.experiment.parent
    at_home = output.resolve() == Path("logs").resolve()
    return LanguageRunData(
        summary=summary,
        info=read_json(files.info),
        description=scenario.description,
        scenario_text=text,
        metrics=[
            read_rows(files.trial(k) / "ppo" / "metrics.jsonl")
            for k in range(len(summary["trials"]))
        ],
        samples=read_json(samples)[:MOST_SAMPLES] if samples.is_file() else [],
        samples_of=chosen,
        kl_budget=scenario.evaluation.alarms.kl_budget if scenario.ppo is not None else None,
        root=os.path.relpath(files.root),
        options="" if at_home else f" --output {shlex.quote(str(output))}",
    )


def _median(summary: dict) -> int:
    """The trial in the middle by its reward: neither the best nor the worst is what one should expect."""
    rewards = {
        result["trial"]: result["stages"]["ppo"]["last"]["reward"]
        for result in summary["trials"]
        if "ppo" in result["stages"]
    }
    ranked = sorted(rewards, key=lambda trial: rewards[trial] or 0.0)
    return ranked[(len(ranked) - 1) // 2] if ranked else 0
