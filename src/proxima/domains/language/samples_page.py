"""The page of samples: what the policy writes now, what it wrote before, and what each token was about.

One file that needs nothing from outside and has no script: the colours' switch is two radio buttons
and a rule of style, so that it works where scripts are turned off, as in MLflow's viewer. Texts come
from models and people and are escaped, all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.records import Record
from proxima.domains.language.config import LanguageScenario
from proxima.domains.language.plots import performance_figure
from proxima.domains.language.results import Gain, LanguageTrial
from proxima.domains.language.stages import COMPLETIONS, LanguageStage, policy_of
from proxima.report import html, tokens
from proxima.report.html import Content, Markup, section, table, tag
from proxima.report.numbers import NOTHING
from proxima.report.statistics import paired_comparison
from proxima.report.style import number
from proxima.run import results
from proxima.run.files import read_json, read_rows
from proxima.run.results import StageResult

PAGE, TABLE, PROMPTS = "samples.html", "samples.json", "prompts.json"
FIGURES = {**COMPLETIONS, "ended": COMPLETIONS["eos_rate"]}
BLANKS = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})  # to be seen


class SamplesData(NamedTuple):
    """What the page is made of, as a trial's files hold it."""

    title: str
    about: Sequence[str]  # short facts under the title: run, trial, updates, prompts
    samples: Sequence[Mapping[str, Any]]  # rows of samples.json: prompt, before, after
    metrics: Sequence[Mapping[str, Any]]  # rows of the stage's metrics.jsonl
    # Per held-out prompt before the first update: reward, judge, kl, length, ended; and after the last.
    before: Mapping[str, Sequence[float]]
    after: Mapping[str, Sequence[float]]
    alarms: Sequence[Record]  # each with kind, text and step
    kl_budget: float | None
    trained_by: str = "PPO"


def report_trial(scenario: LanguageScenario, trial: Path, out: Path | None) -> Path:
    """The page of a trial anew, from its files alone."""
    stage = policy_of(scenario)
    if stage is None:
        raise ProximaError(f"{trial}: its scenario trains no policy, so there are no samples")
    path = trial / stage.name / "stage.json"
    if not path.exists():
        raise ProximaError(
            f"{trial}: its {stage.title} has not ended, so there are no samples to show yet"
        )
    outcome = results.read(path, StageResult, (LanguageTrial, None)).outcome
    return write_trial_page(scenario, stage, trial, outcome.details.alarms, out)


def write_trial_page(
    scenario: LanguageScenario,
    stage: LanguageStage,
    trial: Path,
    alarms: Sequence[Record],
    out: Path | None = None,
) -> Path:
    """Write the page of a trial whose policy was judged, whole or not at all."""
    rows = read_rows(trial / stage.name / "metrics.jsonl")
    by_prompt = read_json(trial / stage.name / PROMPTS)
    page = samples_page(
        SamplesData(
            title=f"{scenario.name}: before and after",
            trained_by=stage.title,
            about=(
                trial.parent.name,
                trial.name.replace("_", " "),
                f"{rows[-1]['step']} updates",
                f"{len(by_prompt['after']['kl'])} held-out prompts",
            ),
            samples=read_json(trial / TABLE),
            metrics=rows,
            before=by_prompt["before"],
            after=by_prompt["after"],
            alarms=alarms,
            kl_budget=scenario.evaluation.alarms.kl_budget,
        )
    )
    path = trial / PAGE if out is None else out
    html.write_page(path, page, "samples")
    return path


def samples_page(data: SamplesData) -> str:
    """The page: HTML that needs nothing besides itself."""
    changes = gains(data.before, data.after)
    parts: list[Content] = [
        html.heading(data.title, "", data.about),
        tag("p.result", *_sentence(changes)),
        *alarm_box(data.alarms),
    ]
    if data.metrics:
        began = {alarm["kind"]: alarm["step"] for alarm in data.alarms}
        drawn = html.picture(
            lambda width: performance_figure(data.metrics, began, data.kl_budget, "", width),
            "Reward, judge, KL, share of completions that end, length and variety over updates",
        )
        parts.append(section("Performance over updates", drawn))
    if changes:
        parts.append(section("Before and after", *_comparison(changes)))
    if data.samples:
        parts.append(section("Samples", *sample_parts(data.samples, data.trained_by)))
    return html.document(f"{data.title} · samples", *parts, style=style())


def style() -> str:
    """The rules of style for samples."""
    own = files("proxima.domains.language").joinpath("samples.css").read_text(encoding="utf-8")
    return tokens.style() + own


def gains(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> dict[str, Gain]:
    """By figure: its mean before and after, and the difference with its 95 % interval over prompts.

    Prompt is paired with prompt. The interval is about these two policies on such prompts; what a new
    training would give only several trials can say.
    """
    changes = {}
    for name in before:
        if name not in after or len(before[name]) != len(after[name]) or not len(before[name]):
            continue
        paired: Mapping[str, Any] = paired_comparison([after[name]], [before[name]])
        changes[name] = Gain(
            before=float(np.mean(before[name])),
            after=float(np.mean(after[name])),
            gain=paired["difference"],
            low=paired["difference_low"],
            high=paired["difference_high"],
        )
    return changes


def _sentence(changes: Mapping[str, Record]) -> list[Content]:
    names = [name for name in ("reward", "judge") if name in changes]
    if not names:
        return ["This run has not been evaluated yet."]
    parts: list[Content] = [f"On held-out prompts the {names[0]} went from "]
    parts += _moved(changes[names[0]])
    if names[1:]:
        parts += [", the judge, which the policy was not trained on, from "]
        parts += _moved(changes["judge"])
    if "kl" in changes:
        parts.append(f", {number(changes['kl']['after'])} nats of KL from where it began")
    parts.append(".")
    if "ended" in changes:
        now, then = share(changes["ended"]["after"]), share(changes["ended"]["before"])
        parts.append(f" {now} of its completions end by themselves, {then} did before.")
    return parts


def _moved(change: Record) -> list[Content]:
    gain, between = _difference(change, number)
    interval = "" if between == NOTHING else f", 95 % interval {between}"
    after = tag("strong", number(change["after"]))
    return [f"{number(change['before'])} to ", after, f" ({gain}{interval})"]


def alarm_box(alarms: Sequence[Record]) -> list[Markup]:
    """What a reader must know before believing the rest; nothing where no alarm sounded."""
    if not alarms:
        return []
    items = [f"Since update {alarm['step']}: {alarm['text']}" for alarm in alarms]
    return [html.alarm("Alarms", "Read the samples before you believe the reward:", items)]


def _comparison(changes: Mapping[str, Record]) -> list[Content]:
    rows = []
    for name, change in changes.items():
        write = share if FIGURES[name].is_share else number
        values = (write(change["before"]), write(change["after"]), *_difference(change, write))
        rows.append([FIGURES[name].title, *values])
    head = ["Mean over prompts", "Before", "After", "Difference", "95 % interval"]
    note = (
        "The same prompts and the same random numbers before and after. Intervals are over prompts: "
        "they say how surely this policy changed, not what another seed would give."
    )
    return [table(head, rows), tag("p.note", note)]


def sample_parts(samples: Sequence[Mapping[str, Any]], trained_by: str) -> list[Content]:
    """The samples with the switch of their colours above them; `trained_by` is the policy's stage."""
    deepest = tokens.deepest_of([token for row in samples for token in row["after"]["tokens"]])
    rows = (_sample(index, row, deepest) for index, row in enumerate(samples))
    lead = (
        f"Before: what the reference, the model that {trained_by} started from, wrote with the same random "
        "numbers. Each token's figures are in its tooltip and in the table below it."
    )
    return [tag("p.note", lead), *([_switch(deepest)] if deepest else []), *rows]


def _switch(deepest: Mapping[str, float]) -> Markup:
    """The choice of colours and what they mean."""
    ends = {name: tokens.legend(name, size) for name, size in deepest.items()}
    legend = tag(
        "span.legend",
        *(tag(f"span.by-{name}", less) for name, (less, _) in ends.items()),
        tag("span.ramp", attributes={"aria-hidden": "true"}),
        *(tag(f"span.by-{name}", more) for name, (_, more) in ends.items()),
    )
    choices = []
    for index, name in enumerate(deepest):
        radio = {"type": "radio", "name": "colour", "id": name, "autocomplete": "off"}
        radio |= {} if index else {"checked": "checked"}
        choices.append(tag("label", tag("input", attributes=radio), tokens.SCALES[name].title))
    return tag("div.switch", tag("span", "Colour of tokens:"), *choices, legend)


def _sample(index: int, row: Mapping[str, Any], deepest: Mapping[str, float]) -> Markup:
    before, after = row["before"], row["after"]
    given = tag("span.given", row["prompt"])
    cells = []
    for token in after["tokens"]:
        text = token["action"].translate(BLANKS)
        cells.append([text, *(tokens.rounded(token.get(name)) for name in tokens.COLUMNS)])
    ended = tag("span.end", "end")
    said = tokens.spoken(after["tokens"], after["ended"])
    drawn = [piece for token in said for piece in _token(token, deepest)]
    return tag(
        "article.sample",
        tag("h3", f"Sample {index + 1}"),
        tag(
            "dl",
            tag("dt", "Before"),
            tag("dd.text", given, before["text"], *([ended] if before["ended"] else [])),
            tag("dd.scores", *_scores(before)),
            tag("dt", "After"),
            tag("dd.text", given, *drawn, *([ended] if after["ended"] else [])),
            tag("dd.scores", *_scores(after)),
        ),
        html.fold("Numbers of its tokens", table(["Token", *tokens.COLUMNS.values()], cells)),
    )


def _token(token: Mapping[str, Any], deepest: Mapping[str, float]) -> list[Content]:
    """A token with its colours."""
    blanks, word, words, colours = tokens.painted(token, deepest)
    style = "; ".join(f"--{name}: {colour}" for name, colour in colours.items())
    return [blanks, tag("span.token", word, attributes={"title": words, "style": style})]


def _scores(completion: Mapping[str, Any]) -> list[Content]:
    shown: list[Content] = []
    for name, value in tokens.scores_of(completion):
        shown += [" · ", f"{name} ", tag("b", value)]
    return shown[1:]


def _difference(change: Record, write: Callable[[float], str]) -> tuple[str, str]:
    """How far a figure moved, and the interval of that."""
    names = ("gain", "low", "high") if change["low"] is not None else ("gain",)
    values = [change[name] for name in names]
    gain, *ends = [write(value) if value < 0 else f"+{write(value)}" for value in values]
    return gain, " … ".join(ends) or NOTHING


def share(value: float | None) -> str:
    """A share in per cent."""
    return NOTHING if value is None else f"{100 * value:.0f}\u00a0%".replace("-", "−")
