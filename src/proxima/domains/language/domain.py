"""Language: supervised fine-tuning, a reward model and PPO, one after the other, of a decoder."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from proxima.core.errors import ProximaError
from proxima.domains.domain import Added, Counts, Data, Domain, Facts, Overview, Prepared
from proxima.domains.language.checks import language_faults
from proxima.domains.language.closing import closing
from proxima.domains.language.obtain import obtain
from proxima.domains.language.page import page
from proxima.domains.language.results import LanguageTrial
from proxima.domains.language.samples_page import PAGE, TABLE, report_trial
from proxima.domains.language.scenario import LanguageScenario
from proxima.domains.language.stages import POLICY, STAGES, stages_of
from proxima.run.files import RunFiles
from proxima.run.results import StageResult, TrialResult
from proxima.train.stage import Row

METRIC = "reward on held-out prompts"


def prepare(scenario: LanguageScenario) -> Prepared:
    """Texts, tokenizer and model, all checked; the stages are made one by one."""
    from proxima.domains.language.pipeline import planned_stages, prepare

    material = prepare(scenario)
    noted = {"source": material.texts.source, "sha256": material.texts.sha256}
    return Prepared(
        algorithm=stages_of(scenario)[-1].name,
        stages=planned_stages(scenario, material),
        summarize=partial(summarize, scenario),
        facts=Facts(noted, partial(check_texts, noted)),
        counts=partial(counts, scenario),
        artifacts=(PAGE, TABLE),
    )


def check_texts(now: Mapping[str, Any], noted: Mapping[str, Any]) -> None:
    """An error where the texts are not those that the run was started on."""
    if noted["sha256"] != now["sha256"]:
        raise ProximaError(
            f"{now['source']}: has changed since the run was started; put the old file back to resume, "
            "or start a new run"
        )


def counts(scenario: LanguageScenario, result: StageResult, rows: Sequence[Row]) -> Counts:
    """How much a trial has seen in its last stage, as that stage counts it."""
    return STAGES[result.stage].counts(getattr(scenario, result.stage), result, rows)


def summarize(
    scenario: LanguageScenario, trials: Sequence[TrialResult], verdicts: Sequence[Any]
) -> Added:
    """Alarms of all trials, and where the first trial's samples and model are."""
    details = [trial.details for trial in trials if isinstance(trial.details, LanguageTrial)]
    first = RunFiles(Path(scenario.output_directory) / scenario.name / "runs" / trials[0].run_id)
    model = STAGES[POLICY if scenario.ppo else "sft"].model
    paths = {"samples": str(first.trial(0) / PAGE), "model": str(first.trial(0) / model)}
    alarms = tuple(alarm for trial in details for alarm in trial.alarms)
    return Added(METRIC, alarms=alarms, paths=paths)


def overview(scenario: LanguageScenario) -> Overview:
    """A scenario in a line of the list."""
    last = stages_of(scenario)[-1]
    return Overview(last.name, "language", last.budget(getattr(scenario, last.name)), "–")


def prepare_host(scenario: LanguageScenario) -> None:
    """Ask for as many devices as the mesh has, and threads; no effect once JAX has started."""
    mesh = scenario.model.mesh
    os.environ.setdefault("NPROC", str(scenario.model.threads or os.cpu_count() or 1))
    try:
        # See train/devices.py: dispatched to a small pool, a program may wait for itself.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        jax.config.update("jax_num_cpu_devices", mesh.data * mesh.tensor)
    except RuntimeError:  # already started: the mesh takes what there is
        return


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
    curve=(POLICY, "eval/reward"),
    data=Data("Texts", obtain),
    prepare_host=prepare_host,
)
