"""A page about episode returns, and its parts: what they came to, how they were learnt, every trial.

They know no domain: any run whose results hold greedy, sampled and random returns can use them.
"""

from collections.abc import Mapping
from types import MappingProxyType

from proxima.report import comparison
from proxima.report.html import Content, Markup, alarm, fold, image, picture, section, tag
from proxima.report.levels import levels_sections
from proxima.report.numbers import MOST_ITEMS, Write, figure, has_interval, interval, with_interval
from proxima.report.page import Page, RunData
from proxima.report.plots import series
from proxima.report.statistics import band, interval_words
from proxima.report.trials import column_cells, episode_returns, trial_rows, trials_table


def page(run: RunData, scores: Mapping[str, tuple[str, Write]] = MappingProxyType({})) -> Page:
    """A run's returns beside fixed rules, its scores on cards, how they were learnt, and every trial.

    scores: those with a card, by their names in the results; what they are called, how they are written.
    """
    reached = run.summary["scores"]
    return Page(
        about=about(run),
        result=_result(run),
        alarms=broken_trials(run),
        figures=[
            (words, with_interval(reached[name], write))
            for name, (words, write) in scores.items()
            if name in reached and reached[name]["iqm"] is not None
        ],
        sections=[learning_section(run), *levels_sections(run), _trials_section(run)],
        commands=commands(run),
        facts=facts(run),
    )


def about(run: RunData) -> list[str]:
    """The algorithm and its environment, and how long it trained."""
    summary, env = run.summary, run.scenario["env"]
    return [
        f"{summary['algorithm'].upper()} on {env['name']} ({env['backend']})",
        f"{summary['environment_steps']:,} environment steps",
    ]


def _result(run: RunData) -> list[Content]:
    """What the trained policy earns, beside the random policy and fixed rules."""
    summary, aggregate, baselines = run.summary, run.summary["aggregate"], run.summary["baselines"]
    trials = len(summary["trials"])
    if aggregate is None:
        return ["No trial ended with a usable policy."]
    over = ""
    if has_interval(aggregate):
        words = interval_words(aggregate["n"])
        over = f" {interval(aggregate)} (interquartile mean and {words} over {trials} trials)"
    beside = f"the random policy {figure(baselines['random']['iqm'])}"
    for name in summary["references"]:
        beside += f", the rule {name.replace('_', ' ')} {figure(baselines[name]['iqm'])}"
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
    trials, target = range(len(run.summary["trials"])), run.summary["target_reward"]
    curves = [series(run.metrics(trial, ""), "eval/return_mean") for trial in trials]
    over_trials = band(curves)
    drawn = picture(
        lambda width: comparison.learning_figure(curves, "", target, width, over_trials),
        "Greedy mean episode return over environment steps, all trials",
    )
    notes = [note] if note else []
    if run.scenario["evaluation"]["checkpoint"] == "best":
        notes.append("Judged below is the best checkpoint of each trial by this evaluation.")
    return section("Learning", drawn, *([tag("p.note", " ".join(notes))] if notes else []))


def _trials_section(run: RunData) -> Markup:
    """The table of trials, their returns, and the end of an episode and its film where they were drawn."""
    results = run.summary["trials"]
    rows = trial_rows(results)
    columns = {name: column_cells([row[name] for row in rows]) for name in rows[0]}
    cells = list(zip(*columns.values(), strict=True))
    scores = [row["return"] for row in rows]
    listed = trials_table([name.capitalize() for name in columns], cells, scores)
    labels = [f"trial {trial['trial']}" for trial in results]
    returns = episode_returns(results)
    random = next(filter(len, episode_returns(results, "random")), None)
    drawn = picture(
        lambda width: comparison.returns_figure(labels, returns, random, width=width),
        "Episode returns of every trial",
    )
    still = [
        image(content, "png", "How one episode of the trained policy ended")
        for _, content in _first_file(run, "plots/episode.png")
    ]
    film = [
        fold(f"One episode of trial {trial}", image(content, "gif", "Film of one episode"))
        for trial, content in _first_file(run, "film.gif")
    ]
    return section("Trials", listed, drawn, *still, *film)


def facts(run: RunData) -> dict[str, str]:
    """How long training took."""
    return {"Training": f"{run.summary['trials'][0]['training_seconds']:,.1f} s"}


def commands(run: RunData) -> dict[str, str]:
    """What can be done with trained policies."""
    return {f"proxima evaluate {run.summary['run_id']}{run.options}": "measure its policies again"}


def _first_file(run: RunData, name: str) -> list[tuple[int, bytes]]:
    """The first trial whose directory has this file, and the file's content; nothing if none has."""
    paths = [run.trial(trial) / name for trial in range(len(run.summary["trials"]))]
    existing = [(trial, path) for trial, path in enumerate(paths) if path.is_file()]
    return [(trial, path.read_bytes()) for trial, path in existing[:1]]
