"""What a report says about a language run: what its trials came to, how surely, and what they write."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from proxima.domains.language.plots import trials_figure
from proxima.domains.language.samples_page import alarm_box, sample_parts, share
from proxima.report.chosen import median_index
from proxima.report.html import Content, Markup, join, picture, section, table, tag
from proxima.report.numbers import first_few, has_interval
from proxima.report.page import Page, Rows, RunData
from proxima.report.returns import broken_trials
from proxima.report.style import decimals, number
from proxima.report.trials import trials_table

MOST_SAMPLES = 8  # on the page of a run; a trial's own page has them all
STAGES = {"sft": "Supervised fine-tuning", "reward_model": "Reward model", "ppo": "PPO"}
NAMES = {
    "ppo/reward": "Reward of a completion",
    "ppo/judge": "Judge's opinion",
    "ppo/kl": "KL per completion (nats)",
    "ppo/eos_rate": "End by themselves",
    "ppo/length": "Tokens per completion",
    "ppo/entropy": "Entropy per token (nats)",
    "ppo/distinct_1": "Different tokens",
    "ppo/distinct_2": "Different bigrams",
}
SHARES = ("eos_rate", "distinct_1", "distinct_2", "accuracy")
CARDS = ("ppo/reward", "ppo/judge", "ppo/kl", "ppo/eos_rate", "reward_model/accuracy", "sft/loss")


def page(run: RunData) -> Page:
    """Rewards before and after, over updates and by trial, and what the median trial writes."""
    summary = run.summary
    metrics = [run.metrics(trial, "ppo") for trial in range(len(summary["trials"]))]
    sections = [section("Before and after", *_comparison(summary)), _trials(summary)]
    if any(metrics):
        sections.insert(0, section("Performance over updates", _curves(metrics, kl_budget(run))))
    return Page(
        about=[", ".join(STAGES.get(name, name) for name in summary["trials"][0]["stages"])],
        result=_sentence(summary, planned=run.scenario["ppo"] is not None),
        alarms=[*alarm_box(_by_kind(summary["alarms"])), *broken_trials(run, "update")],
        figures=_figures(summary["figures"]),
        sections=[*sections, *_samples(run)],
        commands=_commands(run),
        style=files("proxima.domains.language").joinpath("samples.css").read_text(encoding="utf-8"),
    )


def kl_budget(run: RunData) -> float | None:
    """Nats of KL per completion that the run allowed itself."""
    if run.scenario["ppo"] is None:
        return None
    return run.scenario["evaluation"]["alarms"]["kl_budget"]


def _sentence(summary: Mapping[str, Any], planned: bool) -> list[Content]:
    figures = summary["figures"]
    if "ppo/reward" not in figures:
        why = "No trial came as far as PPO" if planned else "This run has no PPO"
        return [f"{why}: its stages are summed up below."]
    parts: list[Content] = ["On held-out prompts the reward went from "]
    parts += _moved(figures["ppo/reward"])
    if "ppo/judge" in figures:
        parts += [
            " and the judge, which nothing was trained on, from ",
            *_moved(figures["ppo/judge"]),
        ]
    parts.append(f", at {_cell('ppo/kl', figures['ppo/kl']['after'])} nats of KL per completion")
    trials = len(summary["trials"])
    over = f" (interquartile means and 95 % intervals over {trials} trials)" if trials > 1 else ""
    return [*parts, f"{over}."]


def _moved(figure: Mapping[str, Any]) -> list[Content]:
    before, after = figure["before"]["iqm"], figure["after"]
    return [f"{_number(before)} to ", tag("strong", _number(after["iqm"])), _between(after)]


def _figures(figures: Mapping[str, Any]) -> list[tuple[str, Content]]:
    return [(_name(name), _card(name, figures[name])) for name in CARDS if name in figures]


def _card(name: str, change: Mapping[str, Any]) -> Markup:
    before = tag("small", f"before {_cell(name, change['before'])}")
    return join([_cell(name, change["after"]), before])


def _curves(metrics: Sequence[Rows], budget: float | None) -> Markup:
    return picture(
        lambda width: trials_figure(metrics, budget, "", width),
        "Reward, judge, KL, share of completions that end, length and variety over updates, all trials",
    )


def _samples(run: RunData) -> list[Markup]:
    """What the median trial by reward writes: neither the best nor the worst is to be expected."""
    trial = median_index(_rewards(run.summary)) or 0
    path = run.trial(trial) / "samples.json"
    if not path.is_file():
        return []
    samples = json.loads(path.read_text(encoding="utf-8"))[:MOST_SAMPLES]
    note = f"Of trial {trial}; every trial has a page of its own, samples.html."
    return [section("Samples", tag("p.note", note), *sample_parts(samples))] if samples else []


def _rewards(summary: Mapping[str, Any]) -> list[float | None]:
    """Every trial's reward at the end; None of one without PPO."""
    stages = [trial["stages"] for trial in summary["trials"]]
    return [trial["ppo"].last.get("reward") if "ppo" in trial else None for trial in stages]


def _comparison(summary: Mapping[str, Any]) -> list[Content]:
    rows = [
        [
            _name(name),
            _cell(name, change["before"]),
            _cell(name, change["after"]),
            _between(change["after"], name).strip() or "–",
        ]
        for name, change in summary["figures"].items()
    ]
    note = (
        "Held out: none of this was trained on. Before is before each stage's first update, after is at its "
        "end. Intervals are over trials; one trial has none."
    )
    return [table(["", "Before", "After", "95 % interval"], rows), tag("p.note", note)]


def _trials(summary: Mapping[str, Any]) -> Markup:
    head = ["Trial", "Seed", "Reward gained", "Judge gained", "KL", "End", "Updates", "Seconds"]
    rows = [_trial_row(result) for result in summary["trials"]]
    return section("Trials", trials_table([*head, "Alarms", "Ended by"], rows, _rewards(summary)))


def _trial_row(result: Mapping[str, Any]) -> list[Content]:
    ppo, details = result["stages"].get("ppo"), result["details"]
    gains = {} if ppo is None else details.gains
    alarms = "" if ppo is None else ", ".join(alarm.kind for alarm in details.alarms)
    seconds = result["training_seconds"]
    return [
        f"{result['trial']}",
        f"{result['seed']}",
        *(_gain(gains.get(name)) for name in ("reward", "judge")),
        _number(gains["kl"]["after"]) if "kl" in gains else "–",
        share(gains["ended"]["after"]) if "ended" in gains else "–",
        "–" if ppo is None else f"{ppo.updates}",
        f"{seconds:,.0f}",
        alarms or "none",
        f"{result['stopped']}",
    ]


def _gain(gain: Mapping[str, Any] | None) -> Content:
    """What a trial gained, and its interval over prompts."""
    if gain is None or gain["gain"] is None:
        return "–"
    sign = "+" if gain["gain"] >= 0 else ""
    small = "" if gain["low"] is None else f" [{_number(gain['low'])}, {_number(gain['high'])}]"
    return tag("td", f"{sign}{_number(gain['gain'])}", tag("small", small))


def _commands(run: RunData) -> dict[str, str]:
    run_id = run.summary["run_id"]
    return {
        f'proxima generate {run_id} --prompt "…" --before{run.options}': "let it complete a text",
        f"proxima chat {run_id}{run.options}": "talk to it",
        f"proxima model export {run_id} --to FOLDER{run.options}": "take it elsewhere",
    }


def _by_kind(alarms: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each kind of alarm once, as it first sounded, with the trials in which it did."""
    kinds: dict[str, dict[str, Any]] = {}
    for alarm in sorted(alarms, key=lambda alarm: alarm["step"]):
        first = {name: alarm[name] for name in ("kind", "text", "step")}
        kinds.setdefault(alarm["kind"], {**first, "trials": []})["trials"].append(alarm["trial"])
    for kind in kinds.values():
        trials = sorted(kind["trials"])
        kind["text"] = f"(trial{'s' * (len(trials) > 1)} {first_few(trials)}) {kind['text']}"
    return list(kinds.values())


def _name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    stage, _, figure = name.partition("/")
    return f"{STAGES.get(stage, stage)}: {figure.replace('_', ' ')}"


def _cell(name: str, aggregate: Mapping[str, Any]) -> str:
    """The middle of a figure over trials."""
    if aggregate["iqm"] is None:
        return "–"
    return share(aggregate["iqm"]) if name.endswith(SHARES) else _number(aggregate["iqm"])


def _between(aggregate: Mapping[str, Any], name: str = "") -> str:
    if not has_interval(aggregate):
        return ""
    write = share if name.endswith(SHARES) else _number
    return f" [{write(aggregate['low'])}, {write(aggregate['high'])}]"


def _number(value: float | None) -> str:
    return (
        "–" if value is None else number(value, max(2, decimals(value)) if abs(value) < 100 else 0)
    )
