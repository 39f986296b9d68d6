"""What a report says about a language run: what its trials came to, how surely, and what they write."""

from collections.abc import Mapping, Sequence

from proxima.core.records import Record
from proxima.domains.language.plots import trials_figure
from proxima.domains.language.samples_page import TABLE, alarm_box, sample_parts, share, style
from proxima.domains.language.stages import FIGURES, STAGES, LanguageStage, policy_among
from proxima.report.chosen import median_index
from proxima.report.html import Content, Markup, join, picture, section, table, tag
from proxima.report.numbers import NOTHING, Write, first_few, has_interval, interval
from proxima.report.page import Page, RunData
from proxima.report.returns import broken_trials
from proxima.report.statistics import interval_words
from proxima.report.style import decimals, number
from proxima.report.trials import trials_table
from proxima.run.files import read_json

MOST_SAMPLES = 8  # on the page of a run; a trial's own page has them all
CARDS = [f"{stage.name}/{card}" for stage in reversed(STAGES.values()) for card in stage.cards]


def page(run: RunData) -> Page:
    """Rewards before and after, over updates and by trial, and what the median trial writes."""
    summary = run.summary
    trials, figures = summary["trials"], summary["figures"]
    policy = policy_among({name for name, section in run.scenario.items() if section is not None})
    metrics = [run.metrics(trial, policy.name) for trial in range(len(trials)) if policy]
    performance = []
    if any(metrics):
        budget = run.scenario["evaluation"]["alarms"]["kl_budget"]
        drawn = picture(
            lambda width: trials_figure(metrics, budget, "", width),
            "Reward, judge, KL, share of completions that end, length and variety over updates, "
            "all trials",
        )
        performance = [section("Performance over updates", drawn)]
    return Page(
        about=[", ".join(STAGES[name].title for name in trials[0]["stages"])],
        result=_sentence(summary, policy),
        alarms=[*alarm_box(_by_kind(summary["alarms"])), *broken_trials(run, "update")],
        figures=[(_name(name), _card(name, figures[name])) for name in CARDS if name in figures],
        sections=[
            *performance,
            section("Before and after", *_comparison(figures)),
            _trials(trials, policy),
            *_samples(run, policy),
        ],
        commands=_commands(run),
        style=style(),
    )


def _sentence(summary: Record, policy: LanguageStage | None) -> list[Content]:
    if policy is None:
        return ["This run trains no policy: its stages are summed up below."]
    figures = {name: summary["figures"].get(f"{policy.name}/{name}") for name in policy.figures}
    named = [name for name in ("reward", "judge") if figures[name] is not None]
    if not named:
        return [f"No trial came as far as {policy.title}: its stages are summed up below."]
    first = figures[named[0]]
    parts: list[Content] = [f"On held-out prompts the {named[0]} went from ", *_moved(first)]
    if named[1:]:
        parts += [" and the judge, which nothing was trained on, from ", *_moved(figures["judge"])]
    parts.append(f", at {_number(figures['kl']['after']['iqm'])} nats of KL per completion")
    trials = len(summary["trials"])
    words = interval_words(first["after"]["n"])
    over = f" (interquartile means and {words}s over {trials} trials)" if trials > 1 else ""
    return [*parts, f"{over}."]


def _moved(change: Record) -> list[Content]:
    before, after = change["before"]["iqm"], change["after"]
    return [f"{_number(before)} to ", tag("strong", _number(after["iqm"])), _between(after)]


def _card(name: str, change: Record) -> Markup:
    before, after = (_written(name)(change[when]["iqm"]) for when in ("before", "after"))
    return join([after, tag("small", f"before {before}")])


def _samples(run: RunData, policy: LanguageStage | None) -> list[Markup]:
    """What the median trial by reward writes: neither the best nor the worst is to be expected."""
    trial = median_index(_worths(run.summary["trials"], policy)) or 0
    path = run.trial(trial) / TABLE
    if policy is None or not path.is_file():
        return []
    samples = read_json(path)[:MOST_SAMPLES]
    note = f"Of trial {trial}; every trial has a page of its own, samples.html."
    parts = sample_parts(samples, policy.title)
    return [section("Samples", tag("p.note", note), *parts)] if samples else []


def _worths(trials: Sequence[Record], policy: LanguageStage | None) -> list[float | None]:
    """Every trial's reward at the end, or its judge's opinion; None of one without a policy."""
    stages = [_policy_of(trial, policy) for trial in trials]
    figures = [{} if stage is None else stage["last"] for stage in stages]
    return [own.get("reward", own.get("judge")) for own in figures]


def _policy_of(trial: Record, policy: LanguageStage | None) -> Record | None:
    """What a trial came to in the stage that trains its policy."""
    stage: Record | None = None if policy is None else trial["stages"].get(policy.name)
    return stage


def _comparison(figures: Mapping[str, Record]) -> list[Content]:
    rows = [
        [
            _name(name),
            *(_written(name)(change[when]["iqm"]) for when in ("before", "after")),
            _between(change["after"], name).strip() or NOTHING,
        ]
        for name, change in figures.items()
    ]
    note = (
        "Held out: none of this was trained on. Before is before each stage's first update, after is at its "
        "end. Intervals are over trials; one trial has none."
    )
    trials = min((change["after"]["n"] for change in figures.values()), default=0)
    words = interval_words(trials) if trials > 1 else "Interval"
    return [table(["", "Before", "After", words], rows), tag("p.note", note)]


def _trials(trials: Sequence[Record], policy: LanguageStage | None) -> Markup:
    head = ["Trial", "Seed", "Reward gained", "Judge gained", "KL", "End", "Updates", "Seconds"]
    rows = [_trial_row(trial, policy) for trial in trials]
    worths = _worths(trials, policy)
    return section("Trials", trials_table([*head, "Alarms", "Ended by"], rows, worths))


def _trial_row(trial: Record, policy: LanguageStage | None) -> list[Content]:
    stage, details = _policy_of(trial, policy), trial["details"]
    gains, alarms = ({}, ()) if stage is None else (details.gains, details.alarms)
    return [
        f"{trial['trial']}",
        f"{trial['seed']}",
        *(_gain(gains.get(name)) for name in ("reward", "judge")),
        _number(gains["kl"]["after"]) if "kl" in gains else NOTHING,
        share(gains["ended"]["after"]) if "ended" in gains else NOTHING,
        NOTHING if stage is None else f"{stage['updates']}",
        f"{trial['training_seconds']:,.0f}",
        ", ".join(alarm.kind for alarm in alarms) or "none",
        f"{trial['stopped']}",
    ]


def _gain(gain: Record | None) -> Content:
    """What a trial gained, and its interval over prompts."""
    if gain is None or gain["gain"] is None:
        return NOTHING
    sign = "+" if gain["gain"] >= 0 else ""
    small = f" {interval(gain, _number)}" if has_interval(gain) else ""
    return tag("td", f"{sign}{_number(gain['gain'])}", tag("small", small))


def _commands(run: RunData) -> dict[str, str]:
    run_id = run.summary["run_id"]
    return {
        f'proxima generate {run_id} --prompt "…" --before{run.options}': "let it complete a text",
        f"proxima chat {run_id}{run.options}": "talk to it",
        f"proxima model export {run_id} --to FOLDER{run.options}": "take it elsewhere",
    }


def _by_kind(alarms: Sequence[Record]) -> list[Record]:
    """Each kind of alarm once, as it first sounded, with the trials in which it did."""
    kinds: dict[str, list[Record]] = {}
    for alarm in sorted(alarms, key=lambda alarm: alarm["step"]):
        kinds.setdefault(alarm["kind"], []).append(alarm)
    boxes: list[Record] = []
    for first, *others in kinds.values():
        trials = sorted(alarm["trial"] for alarm in (first, *others))
        text = f"(trial{'s' * (len(trials) > 1)} {first_few(trials)}) {first['text']}"
        boxes.append({"kind": first["kind"], "text": text, "step": first["step"]})
    return boxes


def _name(name: str) -> str:
    """What a person calls a figure of a stage."""
    if name in FIGURES:
        return FIGURES[name].title
    stage, _, figure = name.partition("/")
    return f"{STAGES[stage].title}: {figure.replace('_', ' ')}"


def _between(aggregate: Record, name: str = "") -> str:
    return f" {interval(aggregate, _written(name))}" if has_interval(aggregate) else ""


def _written(name: str) -> Write:
    """How values of a figure are written."""
    return share if name in FIGURES and FIGURES[name].is_share else _number


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return number(value, max(2, decimals(value)) if abs(value) < 100 else 0)
