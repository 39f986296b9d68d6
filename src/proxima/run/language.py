"""Running a language scenario: every trial's stages one after the other, each saved, tracked and resumable.

    sft            trial_k/reference/            what the stages after it start from, a Hugging Face folder
    reward_model   trial_k/reward_model/model/   a reward model that any run can use
    ppo            trial_k/model/                the policy, a Hugging Face folder; with LoRA adapter/ too
                   trial_k/samples.html          before and after, token by token

What a stage made is read from disk also by the run that made it, so that one which is resumed goes on
from the same bits.
"""

import time
from typing import Any

from proxima.core.seeds import trial_seeds
from proxima.domains.language.finish import finish_ppo, finish_run, finish_trial
from proxima.domains.language.parts import (
    Material,
    check_texts,
    first_model,
    new_info,
    ppo_parts,
    prepare,
    prepare_host,
    reference_of,
    reward_stage_of,
    save_reference,
    save_reward,
    sft_of,
)
from proxima.domains.language.scenario import stages_of
from proxima.run.clock import note, timed
from proxima.run.files import RunFiles, create_run, read_json, write_text
from proxima.run.recording import Callback, Display
from proxima.run.session import Opening, open_session
from proxima.run.signals import interruptible
from proxima.run.stage import LanguageRun, Place, drive, finish_stage, is_done
from proxima.scenario import LanguageScenario, dump
from proxima.train import checkpoint


def run_stages(
    scenario: LanguageScenario, files: RunFiles | None, callback: Callback | None, display: Display
) -> dict[str, Any]:
    """All trials of a language scenario, from the start or (with `files`) from where a run stands."""
    from proxima.train.devices import use_compilation_cache

    began = time.perf_counter()
    prepare_host(scenario)
    use_compilation_cache()
    material = prepare(scenario)  # first: a scenario that cannot be run leaves no run behind
    if files is None:
        files = create_run(scenario.output_directory, scenario.name, scenario.trials)
        write_text(files.scenario, dump(scenario))
        info = new_info(scenario, material.texts, files.run_id)
    else:
        info = read_json(files.info)
        check_texts(info["data"], material.texts)
    opening = Opening(
        scenario=scenario,
        files=files,
        info=info,
        display=display,
        attributes={"scenario": scenario.name, "domain": "language", "seed": scenario.seed},
        saved=lambda: _saved(files, scenario),
        stages=stages_of(scenario),
    )
    with open_session(opening) as session:
        note(session.clock, "build", time.perf_counter() - began)
        with interruptible() as interrupted:
            run = LanguageRun(
                *(scenario, files, session.tracker, display, session.clock),
                *(info, interrupted, callback),
            )
            results = [
                _run_trial(run, material, trial, seed)
                for trial, seed in enumerate(trial_seeds(scenario.seed, scenario.trials))
            ]
        if interrupted():  # while the last stage was finishing
            raise KeyboardInterrupt
        return finish_run(run, results)


def _run_trial(run: LanguageRun, material: Material, trial: int, seed: int) -> dict[str, Any]:
    """The stages of one trial; those that have ended are not run again."""
    done = {}
    for name in stages_of(run.scenario):
        place = Place(run, trial, name)
        if not is_done(place):
            STAGES[name](place, material, seed)
        done[name] = read_json(place.results)
    return finish_trial(run, trial, seed, done)


def _run_sft(place: Place, material: Material, seed: int) -> None:
    scenario = place.run.scenario
    with timed(place.run.clock, "build"):
        base = first_model(scenario, material, seed)
        stage = sft_of(scenario, material, base, seed)
    state = drive(place, stage)
    with timed(place.run.clock, "finish"):
        save_reference(place.directory.parent, material, base, state)
        finish_stage(place, {})


def _run_reward_model(place: Place, material: Material, seed: int) -> None:
    scenario = place.run.scenario
    with timed(place.run.clock, "build"):
        base = reference_of(scenario, material, place.directory.parent, seed)
        stage = reward_stage_of(scenario, material, base, seed)
    state = drive(place, stage)
    with timed(place.run.clock, "finish"):
        model = save_reward(place.directory, scenario, material, base, state.part, seed)
        finish_stage(place, {"calibration": {"mean": float(model.mean), "std": float(model.std)}})


def _run_ppo(place: Place, material: Material, seed: int) -> None:
    scenario = place.run.scenario
    with timed(place.run.clock, "build"):
        base = reference_of(scenario, material, place.directory.parent, seed)
        parts = ppo_parts(scenario, material, base, place.directory.parent, seed)
    state = drive(place, parts.stage, lambda rows: _look(place, rows))
    with timed(place.run.clock, "finish"):
        finish_ppo(place, material, parts, state)


STAGES = {"sft": _run_sft, "reward_model": _run_reward_model, "ppo": _run_ppo}


def _look(place: Place, rows: list[dict[str, Any]]) -> str | None:
    """Says the alarms that began at the last evaluation; words to end the stage where one should."""
    from proxima.domains.language.alarms import converged, new_alarms

    config = place.run.scenario.evaluation
    history = [row for row in rows if "eval/reward" in row]
    found = new_alarms(history, config.alarms)
    for alarm in found:
        place.run.display.say(f"Alarm after update {alarm.step}: {alarm.text}")
    if found and config.stop_on_alarm:
        return "alarm"
    return "converged" if config.stop_when_converged and converged(history, config) else None


def _saved(files: RunFiles, scenario: LanguageScenario) -> str | None:
    """How far the checkpoints go."""
    found = None
    for trial in range(scenario.trials):
        for stage in stages_of(scenario):
            directory = files.trial(trial) / stage
            step = checkpoint.common_step([directory]) if directory.exists() else None
            if step is not None:
                found = f"update {step:,} of {stage}" + (
                    f", trial {trial}" if scenario.trials > 1 else ""
                )
    return found
