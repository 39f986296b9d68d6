"""SFT, DPO, PPO and RLOO beside each other, from the directories of their runs; nothing is typed by hand.

    for name in movie_critic movie_critic_rloo movie_critic_dpo; do
        proxima experiment --scenario $name --trials 5 --generate-data
    done
    python benchmarks/language_methods.py movie_critic movie_critic_rloo movie_critic_dpo
    python benchmarks/language_methods.py RUN… --into docs/domains/language.md

A RUN is an experiment (its latest run), a run's id or its directory. Several runs of one method are taken
together, a trial each by its seed. What trials started from stands in the first row: a policy before its
first update is the fine-tuned model. Methods are compared only on seeds that all have, and only if the
reference and the reward model of a seed are the same in all, which their first evaluations tell.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from proxima.core.errors import ProximaError
from proxima.domains.language.config import LanguageScenario
from proxima.domains.language.samples_page import PROMPTS
from proxima.domains.language.stages import COMPLETIONS, policy_of
from proxima.report.statistics import aggregate, interval_words, paired_comparison
from proxima.run.files import find_run, read_json
from proxima.run.read import load_scenario, read_summary

FIGURES = ("reward", "judge", "kl", "eos_rate", "length", "distinct_2")
PAIRED = ("reward", "judge", "kl")
START, END = "<!-- methods: made by benchmarks/language_methods.py -->", "<!-- end of methods -->"
REFERENCE = "SFT"
ALMOST = 1e-4  # how far two measurements of one reference may differ: a sum in another order

Figures = Mapping[str, float | None]
ByPrompt = Mapping[str, Sequence[float]]


class Method(NamedTuple):
    """The trials of one method, by seed: figures before its first update and at its end, also by prompt."""

    before: dict[int, Figures]
    after: dict[int, Figures]
    prompts_before: dict[int, ByPrompt]
    prompts_after: dict[int, ByPrompt]


def name_of(scenario: LanguageScenario) -> str:
    """What the field calls a scenario's way of training its policy."""
    if scenario.dpo is not None:
        return "IPO" if scenario.dpo.loss == "ipo" else "DPO"
    if scenario.ppo is None:
        raise ProximaError(f"{scenario.name}: trains no policy, so there is nothing to compare")
    return {"gae": "PPO", "group": "GRPO", "leave_one_out": "RLOO"}[scenario.ppo.advantage]


def read_methods(references: Sequence[str], output: str) -> dict[str, Method]:
    """The runs as methods by name; only seeds that all of them have."""
    methods: dict[str, Method] = {}
    for reference in references:
        files = find_run(reference, output)
        scenario = load_scenario(files)
        if not isinstance(scenario, LanguageScenario):
            raise ProximaError(f"{reference}: is no run about language")
        name, stage = name_of(scenario), policy_of(scenario)
        assert stage is not None
        method = methods.setdefault(name, Method({}, {}, {}, {}))
        for trial in read_summary(files).trials:
            if stage.name in trial.stages:
                result = trial.stages[stage.name]
                method.before[trial.seed], method.after[trial.seed] = result.first, result.last
                by_prompt = read_json(files.trial(trial.trial) / stage.name / PROMPTS)
                method.prompts_before[trial.seed] = by_prompt["before"]
                method.prompts_after[trial.seed] = by_prompt["after"]
    seeds = set.intersection(*(set(method.after) for method in methods.values()))
    if not seeds:
        raise ProximaError("these runs have no seed in common, so they cannot be compared")
    return {
        name: Method(*({seed: part[seed] for seed in sorted(seeds)} for part in method))
        for name, method in methods.items()
    }


def check_same_start(methods: Mapping[str, Method]) -> None:
    """An error where two methods did not start from the same reference, or are rewarded by another model."""
    (first, ours), *others = methods.items()
    for name, theirs in others:
        for seed, figures in ours.before.items():
            for figure in FIGURES:
                one, other = figures.get(figure), theirs.before[seed].get(figure)
                known = [value for value in (one, other) if value is not None]
                if len(known) == 1 or (known and abs(known[0] - known[1]) > ALMOST):
                    raise ProximaError(
                        f"{first} and {name} did not start alike with seed {seed} ({figure} {one} and "
                        f"{other}); train both from the same data, model, seeds and reward"
                    )


def table(methods: Mapping[str, Method]) -> str:
    """The methods in rows, the first of them what they started from; IQM [interval] over seeds."""
    check_same_start(methods)
    some = next(iter(methods.values()))
    rows = {REFERENCE: some.before} | {name: method.after for name, method in methods.items()}
    titles = [COMPLETIONS[figure].title for figure in FIGURES]
    lines = [
        f"| | {' | '.join(titles)} |",
        f"| --- |{' ---: |' * len(titles)}",
    ]
    for name, trials in rows.items():
        cells = [
            cell([trial.get(figure) for trial in trials.values()], figure) for figure in FIGURES
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *differences(methods), "", note(some)])


def differences(methods: Mapping[str, Method]) -> list[str]:
    """What each method gained over its start, and how it differs from the first; prompt by prompt."""
    (first, reference), *others = methods.items()
    lines = [
        f"- {name} − {REFERENCE}: {difference(method.prompts_after, method.prompts_before)}."
        for name, method in methods.items()
    ]
    return lines + [
        f"- {name} − {first}: {difference(method.prompts_after, reference.prompts_after)}."
        for name, method in others
    ]


def difference(one: Mapping[int, ByPrompt], other: Mapping[int, ByPrompt]) -> str:
    """Paired mean differences with their intervals, over trials or of a single one over prompts."""
    words = []
    for figure in PAIRED:
        if all(figure in trial for trial in (*one.values(), *other.values())):
            trials = [[side[seed][figure] for seed in one] for side in (one, other)]
            found = paired_comparison(*trials)
            keys = ("difference", "difference_low", "difference_high")
            middle, low, high = (f"{found[key]:+.2f}".replace("-", "−") for key in keys)
            words.append(f"{figure} {middle} [{low}, {high}]")
    return ", ".join(words)


def cell(values: Sequence[float | None], figure: str) -> str:
    """The interquartile mean and its interval, as the figure is written."""
    summary = aggregate([float("nan") if value is None else value for value in values])
    form = COMPLETIONS[figure].form.replace("+", "").replace(".3f", ".2f")
    middle, low, high = (
        "–" if value is None else form.format(value).replace("-", "−").replace("%", " %")
        for value in (summary["iqm"], summary["low"], summary["high"])
    )
    return middle if summary["low"] is None else f"{middle} [{low}, {high}]"


def note(method: Method) -> str:
    """What the numbers are over."""
    seeds, prompts = list(method.after), len(next(iter(method.prompts_after.values()))["kl"])
    words = f"{prompts} held-out prompts, the same and with the same random numbers for all rows of a seed. "
    if len(seeds) == 1:
        words += f"One trial (seed {seeds[0]}): intervals are over prompts, 95 %, about these very policies; "
        return words + "another seed would give others."
    over = f"Interquartile means and {interval_words(len(seeds))}s over {len(seeds)} trials"
    return f"{words}{over} (seeds {', '.join(map(str, seeds))}); differences are paired by seed and prompt."


def into(path: Path, text: str) -> None:
    """Put the text between its two marks in a page."""
    page = path.read_text(encoding="utf-8")
    if START not in page or END not in page:
        raise ProximaError(f"{path}: has no marks {START} and {END} to write between")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--output", default="logs", help="where runs are")
    parser.add_argument("--into", type=Path, help="a page with the two marks to write between")
    arguments = parser.parse_args()
    try:
        text = table(read_methods(arguments.runs, arguments.output))
        if arguments.into is not None:
            into(arguments.into, text)
    except ProximaError as error:
        raise SystemExit(f"Error: {error}") from None
    print(text)


if __name__ == "__main__":
    main()
