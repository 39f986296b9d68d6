"""The report of a run: one page that says what came out, how sure that is, and how it was made."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proxima.domains.trading.tear_sheet import (
    Rollouts,
    key_figures,
    median_trial,
    sentence,
    tear_sheet,
    trial_table,
)
from proxima.report import comparison
from proxima.report.curves import Curve
from proxima.report.html import (
    Content,
    Markup,
    document,
    film,
    fold,
    heading,
    making,
    picture,
    section,
    table,
    tag,
)
from proxima.report.metrics import figure, has_interval, interval
from proxima.report.style import WIDTH


class RunData(NamedTuple):
    """What a run's directory holds, as far as the report is about it."""

    summary: Mapping[str, Any]
    info: Mapping[str, Any]
    scenario: Mapping[str, Any]
    scenario_text: str
    curves: Sequence[Curve]
    """Evaluation steps and mean returns of each trial."""
    rollouts: Rollouts | None
    """Of trading runs."""
    film: bytes | None
    root: str
    """The run's directory."""
    options: str
    """What a command needs besides the run's id to find it, for example --output DIRECTORY."""


def report(run: RunData) -> str:
    """The page, whole: HTML that needs nothing besides itself."""
    trading = run.rollouts
    parts: list[Content] = [_heading(run), tag("p.result", *_result(run)), *_alarms(run)]
    if trading is not None:
        parts.append(_cards(key_figures(run.summary)))
    parts.append(section("Learning", *_learning(run)))
    if trading is not None:
        parts.append(tear_sheet(run.summary, trading))
        chosen = median_trial(run.summary, trading)
        parts.append(section("Trials", trial_table(run.summary, chosen)))
    else:
        parts.append(section("Trials", *_trials(run)))
    parts.append(section("How it was made", *_making(run)))
    return document(f"{run.summary['scenario']} · Proxima report", *parts)


def _heading(run: RunData) -> Markup:
    summary, env = run.summary, run.scenario["env"]
    trials = len(summary["trials"])
    about = [
        f"{summary['algorithm'].upper()} on {env['name']} ({env['backend']})",
        f"{trials} trial{'s' * (trials > 1)}",
        f"{summary['environment_steps']:,} environment steps",
        f"started {run.info['started'].replace('T', ' ').replace('+00:00', ' UTC')}",
        f"run {summary['run_id']}",
    ]
    return heading(summary["scenario"], run.scenario["description"] or "", about)


def _result(run: RunData) -> list[Content]:
    if run.rollouts is not None:
        return sentence(run.summary)
    summary, found = run.summary, run.summary["aggregate"]
    trials = len(summary["trials"])
    over = ""
    if has_interval(found):
        over = f" {interval('return', found)} (interquartile mean and 95 % interval over {trials} trials)"
    said: list[Content] = [
        "After training the greedy policy earns ",
        tag("strong", figure(found["iqm"])),
        f"{over} an episode; the random policy ",
        f"{figure(summary['baselines']['random']['iqm'])}.",
    ]
    if summary["target_reward"] is not None:
        said.append(
            f" The target is {figure(summary['target_reward'])}: {summary['converged']} of {trials} "
            f"trial{'s' * (trials > 1)} reached it."
        )
    return said


def _alarms(run: RunData) -> list[Content]:
    """What a reader must know before believing the rest."""
    boxes: list[Content] = []
    if run.rollouts is not None and run.scenario["data"]["leaky"]:
        lead = "This scenario shows what a leak looks like; nobody could trade like this:"
        items = ["some of its features are not known when it decides (data.leaky)"]
        boxes.append(_alarm("The agent sees the future", lead, items))
    too_good = run.summary["trading"]["alarms"] if run.rollouts is not None else []
    if too_good:
        lead = "Results like these come from leaks far more often than from skill:"
        boxes.append(_alarm("Too good to be true?", lead, too_good))
    failed = [result for result in run.summary["trials"] if result["stopped"] == "nan"]
    if failed:
        lead = "Their loss stopped being a number; they are left out of the intervals:"
        broken = [f"trial {each['trial']}, after step {each['nan_at_step']:,}" for each in failed]
        boxes.append(_alarm("Trials that broke down", lead, broken))
    return boxes


def _alarm(title: str, lead: str, items: Sequence[str]) -> Markup:
    listed = tag("ul", *(tag("li", item) for item in items))
    return tag("section.alarm", tag("h2", title), tag("p", lead), listed)


def _cards(cards: Sequence[tuple[str, Content]]) -> Markup:
    return tag("dl.figures", *(tag("div", tag("dt", name), tag("dd", it)) for name, it in cards))


def _learning(run: RunData) -> list[Content]:
    target = run.summary["target_reward"]
    drawn = picture(
        lambda width: comparison.learning_figure(run.curves, "", target, width),
        "Greedy mean episode return over environment steps, all trials",
    )
    notes = []
    if run.rollouts is not None:
        notes.append("Evaluated on the validation split.")
    if run.scenario["evaluation"].get("checkpoint") == "best":  # older runs had no choice
        notes.append("Judged below is the best checkpoint of each trial by this evaluation.")
    return [drawn, tag("p.note", " ".join(notes))] if notes else [drawn]


def _trials(run: RunData) -> list[Content]:
    results = run.summary["trials"]
    rows = comparison.trial_rows(results)
    names = list(rows[0])
    columns = [comparison.column_cells([row[name] for row in rows]) for name in names]
    drawn = picture(lambda width: _returns(results, width), "Episode returns of every trial")
    head = [name.capitalize() for name in names]
    shown: list[Content] = [table(head, list(zip(*columns, strict=True))), drawn]
    if run.film is not None:
        shown.append(fold("One episode of trial 0", film(run.film, "Film of one episode")))
    return shown


def _returns(results: Sequence[Mapping[str, Any]], width: float) -> Any:
    word = "trial " if len(results) <= 8 * width / WIDTH else ""
    return comparison.returns_figure(
        [f"{word}{result['trial']}" for result in results],
        [result["evaluation"]["returns"] for result in results],
        results[0]["random"]["returns"],
        "",
        width,
    )


def _making(run: RunData) -> list[Content]:
    run_id = run.summary["run_id"]
    commands = {
        f"proxima evaluate {run_id}{run.options}": "measure its policies again",
        f"proxima resume {run_id}{run.options}": "go on, if it was stopped",
        f"proxima report {run_id}{run.options}": "write this page again",
        f"proxima experiment --config {run.root}/scenario.yaml": "repeat it",
    }
    training = {"Training": f"{run.summary['trials'][0]['training_seconds']:,.1f} s"}
    return making(run_id, run.root, run.info, commands, run.scenario_text, training)
