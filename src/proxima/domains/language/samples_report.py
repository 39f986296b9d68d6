"""Writing the page of a trial's samples from its files: before and after, token by token."""

from collections.abc import Sequence
from pathlib import Path

from proxima.core.errors import ProximaError
from proxima.domains.language.results import LanguageTrial
from proxima.domains.language.samples_page import SamplesData, write_samples_page
from proxima.domains.language.scenario import LanguageScenario
from proxima.run import results
from proxima.run.files import read_json, read_rows
from proxima.run.results import Alarm, StageResult

PAGE, TABLE, PROMPTS, MODEL = "samples.html", "samples.json", "prompts.json", "model"


def write_trial_page(
    scenario: LanguageScenario, trial: Path, alarms: Sequence[Alarm], out: Path | None = None
) -> Path:
    """The page of a trial whose PPO was judged."""
    rows, by_prompt = read_rows(trial / "ppo" / "metrics.jsonl"), read_json(trial / "ppo" / PROMPTS)
    path = trial / PAGE if out is None else out
    write_samples_page(
        path,
        SamplesData(
            title=f"{scenario.name}: before and after",
            about=(
                trial.parent.name,
                trial.name.replace("_", " "),
                f"{rows[-1]['step']} updates",
                f"{len(by_prompt['after']['reward'])} held-out prompts",
            ),
            samples=read_json(trial / TABLE),
            metrics=rows,
            before=by_prompt["before"],
            after=by_prompt["after"],
            alarms=alarms,
            kl_budget=scenario.evaluation.alarms.kl_budget,
        ),
    )
    return path


def report_trial(scenario: LanguageScenario, trial: Path, out: Path | None) -> Path:
    """The page of a trial anew, from its files alone."""
    path = trial / "ppo" / "stage.json"
    if not path.exists():
        raise ProximaError(f"{trial}: its PPO has not ended, so there are no samples to show yet")
    outcome = results.read(path, StageResult, (LanguageTrial, None)).outcome
    return write_trial_page(scenario, trial, outcome.details.alarms, out)
