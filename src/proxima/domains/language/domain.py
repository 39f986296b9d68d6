"""Language: supervised fine-tuning, a reward model and PPO, one after the other, of a decoder."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proxima.core.errors import ProximaError
from proxima.domains.domain import (
    Added,
    Counts,
    Data,
    Domain,
    Facts,
    Overview,
    Prepared,
)
from proxima.domains.language.checks import language_faults
from proxima.domains.language.closing import closing
from proxima.domains.language.obtain import obtain
from proxima.domains.language.page import page
from proxima.domains.language.results import LanguageTrial
from proxima.domains.language.samples_report import report_trial
from proxima.domains.language.scenario import LanguageScenario, stages_of
from proxima.run.files import RunFiles
from proxima.run.results import StageResult, TrialResult
from proxima.train.stage import Row

METRIC = "reward on held-out prompts"


def prepare(scenario: LanguageScenario) -> Prepared:
    """Texts, tokenizer and model, all checked; the stages are made one by one."""
    from proxima.domains.language.parts import prepare
    from proxima.domains.language.stages import planned_stages

    material = prepare(scenario)
    noted = {"source": material.texts.source, "sha256": material.texts.sha256}
    return Prepared(
        algorithm=stages_of(scenario)[-1],
        stages=planned_stages(scenario, material),
        summarize=partial(summarize, scenario),
        facts=Facts(noted, partial(check_texts, noted)),
        counts=partial(counts, scenario),
        artifacts=("samples.html", "samples.json"),
    )


def check_texts(now: Mapping[str, Any], noted: Mapping[str, Any]) -> None:
    """An error where the texts are not those that the run was started on."""
    if noted["sha256"] != now["sha256"]:
        raise ProximaError(
            f"{now['source']}: has changed since the run was started; put the old file back to resume, "
            "or start a new run"
        )


def counts(scenario: LanguageScenario, stage: StageResult, rows: Sequence[Row]) -> Counts:
    """Of PPO what every algorithm's trials have: a token is a step, a completion an episode."""
    if scenario.ppo is None or stage.stage != "ppo":
        return Counts(stage.steps, 0)
    size = scenario.ppo.batch_size
    tokens = round(size * sum(row.get("train/length", 0.0) for row in rows))
    return Counts(tokens, stage.updates * size)


def summarize(
    scenario: LanguageScenario, trials: Sequence[TrialResult], verdicts: Sequence[Any]
) -> Added:
    """Alarms of all trials, and where the first trial's samples and model are."""
    alarms = tuple(
        alarm
        for trial in trials
        if isinstance(trial.details, LanguageTrial)
        for alarm in trial.details.alarms
    )
    first = RunFiles(Path(scenario.output_directory) / scenario.name / "runs" / trials[0].run_id)
    model = "model" if scenario.ppo else "reference"
    paths = {
        "samples": str(first.trial(0) / "samples.html"),
        "model": str(first.trial(0) / model),
    }
    return Added(METRIC, alarms=alarms, paths=paths)


def overview(scenario: LanguageScenario) -> Overview:
    """A scenario in a line of the list."""
    updates = f"{scenario.ppo.updates} updates" if scenario.ppo else "–"
    return Overview(stages_of(scenario)[-1], "language", updates, "–")


def prepare_host(scenario: LanguageScenario) -> None:
    """Ask for as many devices as the mesh has."""
    from proxima.domains.language.parts import prepare_host

    prepare_host(scenario)


DOMAIN = Domain(
    name="language",
    scenario=LanguageScenario,
    checks=language_faults,
    prepare=prepare,
    overview=overview,
    closing=closing,
    page=page,
    trial_page=report_trial,
    details=(LanguageTrial, None),
    curve=("ppo", "eval/reward"),
    data=Data("Texts", obtain),
    prepare_host=prepare_host,
)
