"""The report of a language run: what its trials came to, how surely, what they write, and how it was made."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from proxima.domains.language.plots import trials_figure
from proxima.domains.language.samples_page import alarm_box, sample_parts, share
from proxima.report.html import (
    Content,
    Markup,
    document,
    heading,
    making,
    picture,
    section,
    table,
    tag,
)
from proxima.report.metrics import has_interval
from proxima.report.style import decimals, number

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


class LanguageRunData(NamedTuple):
    """What a run's directory holds, as far as the report is about it."""

    summary: Mapping[str, Any]
    info: Mapping[str, Any]
    description: str
    scenario_text: str
    metrics: Sequence[Sequence[Mapping[str, Any]]]
    """Rows of each trial's PPO."""
    samples: Sequence[Mapping[str, Any]]
    """Rows of one trial's samples.json."""
    samples_of: int
    """That trial's number."""
    kl_budget: float | None
    root: str
    """The run's directory."""
    options: str
    """What a command needs besides the run's id to find it, for example --output DIRECTORY."""


def language_report(run: LanguageRunData) -> str:
    """The page, whole: HTML that needs nothing besides itself."""
    summary = run.summary
    parts: list[Content] = [
        _heading(run),
        tag("p.result", *_sentence(summary)),
        *alarm_box(_gathered(summary.get("alarms", []))),
        _cards(summary["figures"]),
    ]
    if any(run.metrics):
        parts.append(section("Performance over updates", _curves(run)))
    parts.append(section("Before and after", *_comparison(summary)))
    parts.append(section("Trials", _trials(summary)))
    if run.samples:
        where = f"Of trial {run.samples_of}; every trial has a page of its own, samples.html."
        shown = sample_parts(run.samples)
        parts.append(section("Samples", tag("p.note", where), *shown))
    parts.append(section("How it was made", *_making(run)))
    style = files("proxima.domains.language").joinpath("samples.css").read_text(encoding="utf-8")
    return document(f"{summary['scenario']} · Proxima report", *parts, style=style)


def _heading(run: LanguageRunData) -> Markup:
    summary = run.summary
    trials = len(summary["trials"])
    stages = ", ".join(STAGES.get(name, name) for name in summary["trials"][0]["stages"])
    about = [
        stages,
        f"{trials} trial{'s' * (trials > 1)}",
        f"started {run.info['started'].replace('T', ' ').replace('+00:00', ' UTC')}",
        f"run {summary['run_id']}",
    ]
    return heading(summary["scenario"], run.description, about)


def _sentence(summary: Mapping[str, Any]) -> list[Content]:
    figures = summary["figures"]
    if "ppo/reward" not in figures:
        return ["This run has no PPO: its stages are summed up below."]
    said: list[Content] = ["On held-out prompts the reward went from "]
    said += _moved(figures["ppo/reward"])
    if "ppo/judge" in figures:
        said += [
            " and the judge, which nothing was trained on, from ",
            *_moved(figures["ppo/judge"]),
        ]
    said.append(f", at {_cell('ppo/kl', figures['ppo/kl']['after'])} nats of KL per completion")
    trials = len(summary["trials"])
    over = f" (interquartile means and 95 % intervals over {trials} trials)" if trials > 1 else ""
    return [*said, f"{over}."]


def _moved(figure: Mapping[str, Any]) -> list[Content]:
    before, after = figure["before"]["iqm"], figure["after"]
    return [f"{_number(before)} to ", tag("strong", _number(after["iqm"])), _between(after)]


def _cards(figures: Mapping[str, Any]) -> Markup:
    known = [name for name in CARDS if name in figures]
    return tag(
        "dl.figures",
        *(
            tag(
                "div",
                tag("dt", _name(name)),
                tag(
                    "dd",
                    _cell(name, figures[name]["after"]),
                    tag("small", f"before {_cell(name, figures[name]['before'])}"),
                ),
            )
            for name in known
        ),
    )


def _curves(run: LanguageRunData) -> Markup:
    return picture(
        lambda width: trials_figure(run.metrics, run.kl_budget, "", width),
        "Reward, judge, KL, share of completions that end, length and variety over updates, all trials",
    )


def _comparison(summary: Mapping[str, Any]) -> list[Content]:
    rows = [
        [
            _name(name),
            _cell(name, each["before"]),
            _cell(name, each["after"]),
            _between(each["after"], name).strip() or "–",
        ]
        for name, each in summary["figures"].items()
    ]
    note = (
        "Held out: none of this was trained on. Before is before each stage's first update, after is at its "
        "end. Intervals are over trials; one trial has none."
    )
    return [table(["", "Before", "After", "95 % interval"], rows), tag("p.note", note)]


def _trials(summary: Mapping[str, Any]) -> Markup:
    rows = []
    for result in summary["trials"]:
        ppo = result["stages"].get("ppo", {})
        gains = ppo.get("gains", {})
        alarms = ", ".join(each["kind"] for each in ppo.get("alarms", []))
        seconds = sum(each.get("training_seconds", 0.0) for each in result["stages"].values())
        rows.append(
            [
                f"{result['trial']}",
                f"{result['seed']}",
                *(_gain(gains.get(name)) for name in ("reward", "judge")),
                _number(gains["kl"]["after"]) if "kl" in gains else "–",
                share(gains["ended"]["after"]) if "ended" in gains else "–",
                f"{ppo['updates']}" if ppo else "–",
                f"{seconds:,.0f}",
                alarms or "none",
                f"{result['stopped']}",
            ]
        )
    head = [
        "Trial",
        "Seed",
        "Reward gained",
        "Judge gained",
        "KL",
        "End",
        "Updates",
        "Seconds",
        "Alarms",
    ]
    return table([*head, "Ended by"], rows)


def _gain(gain: Mapping[str, Any] | None) -> Content:
    """What a trial gained, and its interval over prompts."""
    if gain is None or gain["gain"] is None:
        return "–"
    sign = "+" if gain["gain"] >= 0 else ""
    small = "" if gain["low"] is None else f" [{_number(gain['low'])}, {_number(gain['high'])}]"
    return tag("td", f"{sign}{_number(gain['gain'])}", tag("small", small))


def _making(run: LanguageRunData) -> list[Content]:
    run_id = run.summary["run_id"]
    commands = {
        f'proxima generate {run_id} --prompt "…" --before{run.options}': "let it complete a text",
        f"proxima chat {run_id}{run.options}": "talk to it",
        f"proxima model export {run_id} --to FOLDER{run.options}": "take it elsewhere",
        f"proxima resume {run_id}{run.options}": "go on, if it was stopped",
        f"proxima report {run_id}{run.options}": "write this page again",
        f"proxima experiment --config {run.root}/scenario.yaml": "repeat it",
    }
    return making(run_id, run.root, run.info, commands, run.scenario_text)


def _gathered(alarms: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each kind of alarm once, as it first sounded, with the trials in which it did."""
    found: dict[str, dict[str, Any]] = {}
    for alarm in sorted(alarms, key=lambda each: each["step"]):
        kept = found.setdefault(alarm["kind"], {**alarm, "trials": []})
        kept["trials"].append(alarm["trial"])
    for kept in found.values():
        trials = ", ".join(map(str, sorted(kept["trials"])))
        kept["text"] = f"(trial{'s' * (len(kept['trials']) > 1)} {trials}) {kept['text']}"
    return list(found.values())


def _name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    stage, _, figure = name.partition("/")
    return f"{STAGES.get(stage, stage)}: {figure.replace('_', ' ')}"


def _cell(name: str, found: Mapping[str, Any]) -> str:
    """The middle of a figure over trials."""
    if found["iqm"] is None:
        return "–"
    return share(found["iqm"]) if name.endswith(SHARES) else _number(found["iqm"])


def _between(found: Mapping[str, Any], name: str = "") -> str:
    if not has_interval(found):
        return ""
    write = share if name.endswith(SHARES) else _number
    return f" [{write(found['low'])}, {write(found['high'])}]"


def _number(value: float | None) -> str:
    return (
        "–" if value is None else number(value, max(2, decimals(value)) if abs(value) < 100 else 0)
    )
