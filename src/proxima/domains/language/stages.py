"""The stages of a language scenario, trial by trial, and what each leaves for those after it.

    sft            trial_k/reference/            what the stages after it start from, a Hugging Face folder
    reward_model   trial_k/reward_model/model/   a reward model that any run can use
    ppo            trial_k/model/                the policy, a Hugging Face folder; with LoRA adapter/ too
                   trial_k/samples.html          before and after, token by token

What a stage made is read from disk also by the run that made it, so that one which is resumed goes on
from the same bits.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from proxima.domains.domain import Planned, Trainable, Trained, Verdict
from proxima.domains.language import alarms, plots
from proxima.domains.language.evaluate import Measured
from proxima.domains.language.hf import save_model
from proxima.domains.language.model import Part, merged_decoder
from proxima.domains.language.part_files import save_adapters
from proxima.domains.language.parts import (
    REFERENCE_FOLDER,
    Material,
    PPOParts,
    first_model,
    ppo_parts,
    reference_of,
    reward_stage_of,
    save_reference,
    save_reward,
    sft_of,
)
from proxima.domains.language.results import Gain, LanguageTrial
from proxima.domains.language.samples_page import gains
from proxima.domains.language.samples_report import MODEL, PROMPTS, TABLE, write_trial_page
from proxima.domains.language.scenario import LanguageScenario, stages_of
from proxima.domains.language.training import NOTHING_ENDS_IT, Ending, Measure, Training, stage_of
from proxima.run.files import write_json
from proxima.run.results import Alarm, Episodes, Outcome, described

ADAPTER = "adapter"
MEASURES = {
    "sft": Measure(
        "eval/loss", -1.0, {"loss/sft": "loss", "eval/perplexity": "held-out perplexity"}
    ),
    "reward_model": Measure(
        "eval/accuracy", 1.0, {"loss/reward_model": "loss", "eval/accuracy": "held-out accuracy"}
    ),
    "ppo": Measure(
        "eval/reward",
        1.0,
        {
            "train/score": "reward",
            "train/kl": "KL",
            "train/eos_rate": "EOS",
            "eval/reward": "held-out reward",
            "eval/judge": "judge",
        },
    ),
}
Directory = Callable[[int], Path]  # of a trial


def planned_stages(scenario: LanguageScenario, material: Material) -> list[Planned]:
    """Every trial's stages one after the other."""
    makers = {"sft": make_sft, "reward_model": make_reward_model, "ppo": make_ppo}
    return [
        Planned(name, (trial,), partial(makers[name], scenario, material, trial), kept=True)
        for trial in range(scenario.trials)
        for name in stages_of(scenario)
    ]


def make_sft(
    scenario: LanguageScenario, material: Material, trial: int, directory: Directory
) -> Trainable:
    """Supervised fine-tuning; leaves the reference."""
    base = first_model(scenario, material, scenario.seed + trial)
    training = sft_of(scenario, material, base, scenario.seed + trial)

    def judge(trained: Trained) -> Verdict:
        save_reference(trained.trials[0], material, base, trained.lanes[0])
        return Verdict([Outcome()])

    return _trainable(scenario, training, trial, "sft", judge)


def make_reward_model(
    scenario: LanguageScenario, material: Material, trial: int, directory: Directory
) -> Trainable:
    """The reward model; leaves it calibrated."""
    seed = scenario.seed + trial
    base = reference_of(scenario, material, directory(trial), seed)
    training = reward_stage_of(scenario, material, base, seed)

    def judge(trained: Trained) -> Verdict:
        part = trained.lanes[0].part
        model = save_reward(trained.folders[0], scenario, material, base, part, seed)
        calibration = {"mean": float(model.mean), "std": float(model.std)}
        return Verdict([Outcome(details=LanguageTrial(calibration=calibration))])

    return _trainable(scenario, training, trial, "reward_model", judge)


def make_ppo(
    scenario: LanguageScenario, material: Material, trial: int, directory: Directory
) -> Trainable:
    """PPO; leaves the policy, and what it does with held-out prompts."""
    seed, config = scenario.seed + trial, scenario.evaluation
    base = reference_of(scenario, material, directory(trial), seed)
    parts = ppo_parts(scenario, material, base, directory(trial), seed)
    ending = Ending(
        patience=config.patience,
        stop_when_converged=config.stop_when_converged,
        stop_on_alarm=config.stop_on_alarm,
        alarms=lambda history: alarms.new_alarms(history, config.alarms),
    )
    judge = partial(judge_ppo, scenario, parts, trial)
    trainable = _trainable(scenario, parts.training, trial, "ppo", judge, ending)
    return trainable._replace(
        export=partial(export_policy, scenario, material, parts),
        draw=partial(draw_ppo, scenario, trial),
    )


def _trainable(
    scenario: LanguageScenario,
    training: Training,
    trial: int,
    name: str,
    judge: Callable[[Trained], Verdict],
    ending: Ending = NOTHING_ENDS_IT,
) -> Trainable:
    stage = stage_of(
        training,
        trial,
        MEASURES[name],
        scenario.checkpoint,
        scenario.evaluation.checkpoint,
        ending,
    )
    return Trainable(stage, judge, draw=partial(draw_stage, scenario, name))


def judge_ppo(scenario: LanguageScenario, parts: PPOParts, trial: int, trained: Trained) -> Verdict:
    """The policy on the held-out prompts beside the reference; samples are written."""
    (state,), evaluator = trained.lanes, parts.evaluator
    before, after = evaluator.reference(), evaluator.measure(state.policy)
    write_json(
        trained.trials[0] / TABLE, evaluator.samples(state.policy, parts.learnt(state), after)
    )
    by_prompt = {"before": before.by_prompt(), "after": after.by_prompt()}
    write_json(trained.folders[0] / PROMPTS, by_prompt)
    history = [row for row in trained.rows(0) if "eval/reward" in row]
    sounded = alarms.alarms(history, scenario.evaluation.alarms)
    details = LanguageTrial(
        gains={name: Gain(**gain) for name, gain in gains(*by_prompt.values()).items()},
        alarms=tuple(Alarm(**alarm._asdict(), trial=trial) for alarm in sounded),
    )
    reference = _described(before)
    outcome = Outcome(
        evaluation=_described(after),
        reference=reference,
        baselines={"reference": reference.return_mean},
        details=details,
    )
    return Verdict([outcome])


def _described(measured: Measured) -> Episodes:
    """Rewards of the held-out prompts as results hold episodes; a token is a step."""
    return described(measured.reward, measured.length)


def export_policy(
    scenario: LanguageScenario, material: Material, parts: PPOParts, trained: Trained
) -> None:
    """The policy as a Hugging Face folder, and with LoRA its adapter alone."""
    trial, policy = trained.trials[0], trained.lanes[0].policy
    save_model(merged_decoder(parts.base, policy), trial / MODEL, material.folder)
    material.tokenizer.save(trial / MODEL)
    _export_adapter(scenario, material, policy, trial)


def _export_adapter(
    scenario: LanguageScenario, material: Material, policy: Part, trial: Path
) -> None:
    if scenario.lora is None or policy.adapters is None:
        return
    tuned = scenario.sft is not None
    base = trial / REFERENCE_FOLDER if tuned or material.folder is None else material.folder
    save_adapters(policy.adapters, scenario.lora, trial / ADAPTER, base)


def draw_stage(
    scenario: LanguageScenario, name: str, trained: Trained, lane: int, outcome: Outcome
) -> None:
    """All that the stage recorded."""
    picture = trained.folders[lane] / "plots" / f"{name}.png"
    trained.paint(
        plots.stage, picture, trained.rows(lane), f"{scenario.name}, {name.replace('_', ' ')}"
    )


def draw_ppo(
    scenario: LanguageScenario, trial: int, trained: Trained, lane: int, outcome: Outcome
) -> None:
    """Performance with its alarms, and the page of samples."""
    draw_stage(scenario, "ppo", trained, lane, outcome)
    details: Any = outcome.details
    trained.paint(
        plots.performance,
        trained.folders[lane] / "plots" / "performance.png",
        trained.rows(lane),
        {alarm.kind: alarm.step for alarm in details.alarms},
        scenario.evaluation.alarms.kl_budget,
    )
    write_trial_page(scenario, trained.trials[lane], details.alarms)
