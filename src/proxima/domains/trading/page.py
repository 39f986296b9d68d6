"""What a report says about a trading run: the result beside the baselines, then the tear sheet."""

from proxima.domains.trading.rollouts import EARNINGS, read_rollout
from proxima.domains.trading.tear_sheet import (
    Rollouts,
    key_figures,
    median_trial,
    sentence,
    tear_sheet,
    trial_table,
)
from proxima.report import returns
from proxima.report.html import Markup, alarm, section
from proxima.report.page import Page, RunData

REFERENCES = ("buy_and_hold", "momentum", "model", "foresight")


def page(run: RunData) -> Page:
    """The result beside the baselines, learning, the tear sheet of the median trial, every trial."""
    rollouts = read_rollouts(run)
    median = median_trial(run.summary, rollouts)
    return Page(
        about=returns.about(run),
        result=sentence(run.summary),
        alarms=[*_leaks(run), *returns.broken_trials(run)],
        figures=key_figures(run.summary),
        sections=[
            returns.learning_section(run, "Evaluated on the validation split."),
            tear_sheet(run.summary, rollouts),
            section("Trials", trial_table(run.summary, median)),
        ],
        commands=returns.commands(run),
        facts=returns.facts(run),
    )


def read_rollouts(run: RunData) -> Rollouts:
    """What was recorded on the test split, as far as the files exist."""
    trials = range(len(run.summary["trials"]))
    paths = {trial: run.trial(trial) / "rollouts" / "test.parquet" for trial in trials}
    others = {name: run.directory / "rollouts" / f"{name}_test.parquet" for name in REFERENCES}
    return Rollouts(
        {trial: read_rollout(path) for trial, path in paths.items() if path.is_file()},
        {name: read_rollout(path, EARNINGS) for name, path in others.items() if path.is_file()},
        run.scenario["data"]["periods_per_year"],
    )


def _leaks(run: RunData) -> list[Markup]:
    """Boxes about results that rest on knowing the future, or look as if they did."""
    boxes = []
    if run.scenario["data"]["leaky"]:
        lead = "This scenario shows what a leak looks like; nobody could trade like this:"
        items = ["some of its features are not known when it decides (data.leaky)"]
        boxes.append(alarm("The agent sees the future", lead, items))
    if run.summary["details"]["alarms"]:
        lead = "Results like these come from leaks far more often than from skill:"
        boxes.append(alarm("Too good to be true?", lead, run.summary["details"]["alarms"]))
    return boxes
