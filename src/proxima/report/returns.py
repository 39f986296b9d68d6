"""The parts of a page about episode returns: what they came to, how they were learnt, every trial.

They know no domain: any run whose results hold greedy, sampled and random returns can use them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proxima.core.records import Record
from proxima.report import comparison
from proxima.report.curves import Curve, band
from proxima.report.html import Content, Markup, alarm, fold, image, picture, section, tag
from proxima.report.numbers import MOST_ITEMS, figure, has_interval, interval
from proxima.report.page import RunData
from proxima.report.plots import series
from proxima.report.trials import trials_table


def about(run: RunData) -> list[str]:
    """The algorithm and its environment, and how long it trained."""
    summary, env = run.summary, run.scenario["env"]
    return [
        f"{summary['algorithm'].upper()} on {env['name']} ({env['backend']})",
        f"{summary['environment_steps']:,} environment steps",
    ]


def result(run: RunData, rules: Mapping[str, float] | None = None) -> list[Content]:
    """What the trained policy earns, beside the random policy and fixed rules, by their names."""
    summary, aggregate = run.summary, run.summary["aggregate"]
    trials = len(summary["trials"])
    over = ""
    if has_interval(aggregate):
        over = f" {interval(aggregate)} (interquartile mean and 95 % interval over {trials} trials)"
    others = {"the random policy": summary["baselines"]["random"]["iqm"], **(rules or {})}
    beside = ", ".join(f"{name} {figure(value)}" for name, value in others.items())
    sentence: list[Content] = [
        "After training the greedy policy earns ",
        tag("strong", figure(aggregate["iqm"])),
        f"{over} an episode; {beside}.",
    ]
    if summary["target_reward"] is not None:
        sentence.append(
            f" The target is {figure(summary['target_reward'])}: {summary['converged']} of {trials} "
            f"trial{'s' * (trials > 1)} reached it."
        )
    return sentence


def broken_trials(run: RunData, unit: str = "step") -> list[Markup]:
    """A box that names the trials whose loss stopped being a number; nothing where there are none."""
    failed = [trial for trial in run.summary["trials"] if trial["stopped"] == "nan"]
    if not failed:
        return []
    items = [f"trial {trial['trial']}, after {unit} {trial['nan_at_step']:,}" for trial in failed]
    if len(items) > MOST_ITEMS:
        more = len(items) - MOST_ITEMS + 1
        items[MOST_ITEMS - 1 :] = [f"{more} more of the {len(run.summary['trials'])} trials"]
    lead = "Their loss stopped being a number; they are left out of the intervals:"
    return [alarm("Trials that broke down", lead, items)]


def learning_section(run: RunData, note: str = "") -> Markup:
    """The learning curves of all trials; the note says what they were evaluated on."""
    curves, target = learning_curves(run), run.summary["target_reward"]
    over_trials = band(curves)
    drawn = picture(
        lambda width: comparison.learning_figure(curves, "", target, width, over_trials),
        "Greedy mean episode return over environment steps, all trials",
    )
    notes = [note] if note else []
    if run.scenario["evaluation"]["checkpoint"] == "best":
        notes.append("Judged below is the best checkpoint of each trial by this evaluation.")
    return section("Learning", drawn, *([tag("p.note", " ".join(notes))] if notes else []))


def learning_curves(run: RunData) -> list[Curve]:
    """Evaluation steps and mean returns of each trial."""
    trials = range(len(run.summary["trials"]))
    return [series(run.metrics(trial, ""), "eval/return_mean") for trial in trials]


def trials_section(run: RunData, *more: Content) -> Markup:
    """The table of trials, their returns, a film if there is one, and what a domain adds."""
    results = run.summary["trials"]
    rows = comparison.trial_rows(results)
    names = list(rows[0])
    columns = [comparison.column_cells([row[name] for row in rows]) for name in names]
    listed = trials_table(
        [name.capitalize() for name in names],
        list(zip(*columns, strict=True)),
        [row["return"] for row in rows],
    )
    drawn = picture(lambda width: _returns(results, width), "Episode returns of every trial")
    return section("Trials", listed, drawn, *more, *_film(run))


def still(run: RunData, name: str, words: str) -> list[Content]:
    """A picture that the first trial with one drew of its episode; nothing where none did."""
    for trial in range(len(run.summary["trials"])):
        path = run.trial(trial) / "plots" / name
        if path.is_file():
            return [image(path.read_bytes(), "png", words)]
    return []


def facts(run: RunData) -> dict[str, str]:
    """How long training took."""
    return {"Training": f"{run.summary['trials'][0]['training_seconds']:,.1f} s"}


def commands(run: RunData) -> dict[str, str]:
    """What can be done with trained policies."""
    return {f"proxima evaluate {run.summary['run_id']}{run.options}": "measure its policies again"}


def _returns(results: Sequence[Record], width: float) -> Any:
    return comparison.returns_figure(
        [f"trial {trial['trial']}" for trial in results],
        [trial["evaluation"]["returns"] for trial in results],
        results[0]["random"]["returns"],
        "",
        width,
    )


def _film(run: RunData) -> list[Content]:
    """The film of the first trial that has one."""
    for trial in range(len(run.summary["trials"])):
        path = run.trial(trial) / "film.gif"
        if path.is_file():
            shown = image(path.read_bytes(), "gif", "Film of one episode")
            return [fold(f"One episode of trial {trial}", shown)]
    return []
