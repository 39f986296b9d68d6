"""Language: supervised fine-tuning, a reward model, and PPO or DPO, one after the other, of a decoder."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from proxima.core.errors import ProximaError
from proxima.domains.domain import (
    Added,
    Closing,
    Counts,
    Data,
    Domain,
    Facts,
    Overview,
    Prepared,
    TextModel,
    TextModels,
)
from proxima.domains.language.config import LanguageScenario
from proxima.domains.language.page import page
from proxima.domains.language.results import LanguageTrial
from proxima.domains.language.samples_page import PAGE, TABLE, report_trial
from proxima.domains.language.stages import (
    FIGURES,
    STAGES,
    language_faults,
    policy_among,
    policy_of,
    stages_of,
)
from proxima.run.files import RunFiles
from proxima.run.results import Change, StageResult, Summary, TrialResult
from proxima.train.devices import ask_for_devices, process_count
from proxima.train.stage import Row

METRIC, OPINION = "reward on held-out prompts", "judge's opinion on held-out prompts"
SMOLLM2 = Path("data/models/smollm2")


def prepare(scenario: LanguageScenario) -> Prepared:
    """Texts, tokenizer and model, all checked; the stages are made one by one."""
    from proxima.domains.language.mesh import check_gang
    from proxima.domains.language.pipeline import check_ahead, planned_stages, read_material

    if process_count() > 1:
        check_gang(scenario.model.mesh)
    material = read_material(scenario)
    check_ahead(scenario, material)
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
    left = {}
    for stage in stages_of(scenario):
        if stage is policy_of(scenario):
            left["samples"] = PAGE
        if stage.model:
            left["model"] = stage.model  # the last one's
    paths = {name: str(first.trial(0) / path) for name, path in left.items()}
    alarms = tuple(alarm for trial in details for alarm in trial.alarms)
    return Added(METRIC if scenario.has_reward else OPINION, alarms=alarms, paths=paths)


def curve(scenario: LanguageScenario) -> tuple[str, str]:
    """The stage that trains the policy, and what speaks for it there; without one the last stage."""
    stage = policy_of(scenario) or stages_of(scenario)[-1]
    return stage.name, "eval/reward" if scenario.has_reward else "eval/judge"


def overview(scenario: LanguageScenario) -> Overview:
    """A scenario in a line of the list."""
    last = stages_of(scenario)[-1]
    return Overview(last.name, "language", last.budget(getattr(scenario, last.name)), "–")


def prepare_host(scenario: LanguageScenario) -> None:
    """Ask for as many devices as the mesh has, and threads; no effect once JAX has started."""
    mesh = scenario.model.mesh
    devices = max(1, mesh.data * mesh.tensor // process_count())
    ask_for_devices(devices, scenario.model.threads or os.cpu_count() or 1)


def obtain(scenario: LanguageScenario, root: Path = Path()) -> Path:
    """Write the texts, and the model where we know where it comes from; the path of the texts.

    What is there already stays: texts and weights do not change.
    """
    from proxima.domains.language.data import lexicon_path, movie_reviews_path, write_movie_reviews

    data = scenario.data
    path = Path(data.path) if data.path is not None else movie_reviews_path(root)
    wants_judge = scenario.evaluation.judge == "vader" and not lexicon_path(root).exists()
    if wants_judge or (data.source == "movie_reviews" and not path.exists()):
        write_movie_reviews(root)
    if scenario.model.path == str(SMOLLM2) and not (root / SMOLLM2 / "config.json").exists():
        from proxima.domains.language.gguf import import_smollm2

        import_smollm2(root / SMOLLM2)
    return path


def closing(summary: Summary) -> Closing:
    """The figures before and after, alarms, and where everything is."""
    trials, stages = len(summary.trials), summary.trials[0].stages
    rows = [
        (figure.title, *_cells(summary.figures[name], figure.form))
        for name, figure in FIGURES.items()
        if name in summary.figures
    ]
    lines = [
        f"Alarm ({f'trial {alarm.trial}, ' if trials > 1 else ''}since update {alarm.step}): {alarm.text}"
        for alarm in summary.alarms
    ]
    seconds = (f"{name} {stage.training_seconds:.0f}" for name, stage in stages.items())
    lines.append(f"Training of trial 0: {', '.join(seconds)} s")
    pointers = {}
    if policy_among(stages) is not None:
        pointers = {
            "Samples, token by token": summary.paths["samples"],
            "The model": summary.paths["model"],
            "Talk to it": f"proxima chat {summary.run_id}",
        }
    return Closing(
        title=f"{summary.scenario} · {trials} trial(s)",
        columns=("", "before", "after", _interval_column(summary)),
        rows=rows,
        lines=lines,
        pointers=pointers,
    )


def load_text_model(
    reference: str, output_directory: str, trial: int | None, rows: int
) -> TextModel:
    """The model of a run or a folder, ready to write so many texts at once."""
    from proxima.domains.language.serving import load_text_model

    return load_text_model(reference, output_directory, trial, rows)


def is_model_folder(path: Path) -> bool:
    """Whether a directory is a model as Hugging Face's libraries write it."""
    return (path / "config.json").is_file()


def _interval_column(summary: Summary) -> str:
    from proxima.report.statistics import coverage

    trials = min((change.after.n for change in summary.figures.values()), default=0)
    return f"{coverage(trials)} % over trials" if trials > 1 else "over trials"


def _cells(change: Change, form: str) -> tuple[str, str, str]:
    values = (change.before.iqm, change.after.iqm, change.after.low, change.after.high)
    before, after, low, high = ("–" if value is None else form.format(value) for value in values)
    return before, after, "–" if change.after.low is None else f"{low} … {high}"


DOMAIN = Domain(
    name="language",
    scenario=LanguageScenario,
    checks=language_faults,
    prepare=prepare,
    overview=overview,
    reads=None,  # its trials are one stage after the other, each judged before the next
    closing=closing,
    page=page,
    trial_page=report_trial,
    details=(LanguageTrial, None),
    curve=curve,
    data=Data("Texts", obtain),
    text_models=TextModels(is_model_folder, load_text_model),
    prepare_host=prepare_host,
    gangs=True,
)
