"""What the stages that train a policy share, however they do it: reward, Evaluator, alarms, files, pictures.

training ─► measured on held-out prompts as it goes on, alarms raised ─► compared with the reference,
samples written ─► trial_k/model/, with LoRA adapter/ too ─► performance.png, samples.html
"""

from collections.abc import Callable, Sequence
from functools import partial

from proxima.core.types import PyTree
from proxima.domains.domain import Trainable, Trained, Verdict
from proxima.domains.language import alarms, plots
from proxima.domains.language.evaluate import Evaluator, evaluation_prompts
from proxima.domains.language.generate import Generator, check_prompts
from proxima.domains.language.hf import check_vocabulary
from proxima.domains.language.hub import locate
from proxima.domains.language.judge import judge
from proxima.domains.language.mesh import lay_out
from proxima.domains.language.model import Part
from proxima.domains.language.part_files import save_adapters
from proxima.domains.language.pipeline import Training, Trial, save_policy, trainable
from proxima.domains.language.results import LanguageTrial
from proxima.domains.language.reward_model import RewardModel, load_reward_model
from proxima.domains.language.reward_stage import saved_reward_model
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.samples import Experience, Samples
from proxima.domains.language.samples_page import PROMPTS, TABLE, gains, write_trial_page
from proxima.domains.language.stages import ADAPTER, SFT, LanguageStage
from proxima.domains.language.tokenizer import Ids, Tokenizer
from proxima.nets.transformer import Decoder
from proxima.run.files import write_json
from proxima.run.results import Alarm, Outcome, described
from proxima.train.convergence import Convergence
from proxima.train.stage import Score

Learnt = Callable[[Samples], Experience]  # what an update would make of samples


def policy_trainable(
    trial: Trial,
    stage: LanguageStage,
    training: Training,
    evaluator: Evaluator,
    part_of: Callable[[PyTree], Part],
    learnt: Callable[[PyTree], Learnt | None] = lambda state: None,
) -> Trainable:
    """A training of the policy as a stage of its trial: watched, judged, exported and drawn.

    `part_of` gives the policy of a state; `learnt`, of one that values tokens, how it does.
    """
    measuring, base = trial.scenario.evaluation, evaluator.generator.base
    assert stage.remedies is not None
    watch = partial(alarms.new_alarms, config=measuring.alarms, advice=stage.remedies)

    def judged(trained: Trained) -> Verdict:
        (state,) = trained.lanes
        return Verdict(
            [outcome_of(trial, stage, evaluator, trained, part_of(state), learnt(state))]
        )

    def converge(memory: Convergence, score: Score, step: int) -> Convergence:
        return alarms.observe_patience(memory, score.value, step, measuring.patience)

    def draw(trained: Trained, lane: int, outcome: Outcome) -> None:
        made.draw(trained, lane, outcome)
        draw_policy(trial, stage, trained, outcome)

    made = trainable(trial, stage, training._replace(preview=evaluator.preview), judged)
    watched = made.stage._replace(
        converge_evaluation=converge,
        alarms=watch,
    )
    export = partial(export_policy, trial, stage, base, part_of)
    return made._replace(stage=watched, export=export, draw=draw)


def evaluator_of(
    trial: Trial, base: Decoder, reward: RewardComputer | None, held_out: Sequence[Ids]
) -> Evaluator:
    """The Evaluator of a trial's policy: the same prompts and random numbers whatever trains it."""
    scenario, tokenizer = trial.scenario, trial.material.tokenizer
    policy, measuring = scenario.policy, scenario.evaluation
    assert policy is not None
    generator = Generator(base, tokenizer, policy.new_tokens, policy.temperature)
    given = (reward, judge(measuring.judge), measuring, held_out, tokenizer, scenario.seed)
    return Evaluator(generator, *given)


def check_ahead(trial: Trial) -> None:
    """A policy needs prompts that fit, held-out ones among them, its judge, and its reward.

    A reward model from elsewhere is read whole: its files may be damaged.
    """
    scenario = trial.scenario
    assert scenario.policy is not None
    new_tokens = scenario.policy.new_tokens
    prompts, held_out = trial.prompts(new_tokens)
    evaluation_prompts(scenario.evaluation, held_out)
    judge(scenario.evaluation.judge)
    if scenario.reward.kind == "function":
        RewardComputer(scenario.reward, tokenizer=trial.material.tokenizer)
    elif scenario.reward.path is not None:
        model, theirs = reward_from_elsewhere(trial, scenario.reward.path)
        if theirs is None:  # it reads the policy's ids
            check_prompts([*prompts, *held_out], model.base, new_tokens)


def reward_from_elsewhere(trial: Trial, path: str) -> tuple[RewardModel, Tokenizer | None]:
    """A saved reward model, and its tokenizer where that is not the policy's."""
    folder = locate(path)
    model, tokenizer = load_reward_model(folder, trial.scenario.model.dtype)
    check_vocabulary(model.base, tokenizer.size, folder)
    same = tokenizer.serialized() == trial.material.tokenizer.serialized()
    return model, None if same else tokenizer


def reward_of(trial: Trial, base: Decoder) -> RewardComputer | None:
    """What completions are worth: to a function, to the stage's reward model, or to one from elsewhere.

    None where the scenario has no reward.
    """
    config, model_config = trial.scenario.reward, trial.scenario.model
    tokenizer, theirs = trial.material.tokenizer, None
    if not trial.scenario.has_reward:
        return None
    if config.kind == "function":
        return RewardComputer(config, tokenizer=tokenizer)
    if config.path is None:
        model = saved_reward_model(trial, base)
    else:
        model, theirs = reward_from_elsewhere(trial, config.path)
    mesh = model_config.mesh
    model = model._replace(base=lay_out(model.base, mesh), part=lay_out(model.part, mesh))
    return RewardComputer(config, model, tokenizer=tokenizer, model_tokenizer=theirs)


def outcome_of(
    trial: Trial,
    stage: LanguageStage,
    evaluator: Evaluator,
    trained: Trained,
    policy: Part,
    learnt: Learnt | None,
) -> Outcome:
    """The policy on the held-out prompts beside the reference; samples are written."""
    before, after = evaluator.reference(), evaluator.measure(policy)
    write_json(trained.trials[0] / TABLE, evaluator.samples(policy, learnt, after))
    by_prompt = {"before": before.by_prompt(), "after": after.by_prompt()}
    write_json(trained.folders[0] / PROMPTS, by_prompt)
    history = [row for row in trained.rows(0) if "eval/kl" in row]
    assert stage.remedies is not None
    sounded = alarms.alarms(history, trial.scenario.evaluation.alarms, stage.remedies)
    # rewards as results hold episodes: a token is a step
    reference, now = (described(seen.worth, seen.length) for seen in (before, after))
    return Outcome(
        evaluation=now,
        reference=reference,
        baselines={"reference": reference.return_mean},
        details=LanguageTrial(
            gains=gains(*by_prompt.values()),
            alarms=tuple(Alarm(**alarm._asdict(), trial=trial.number) for alarm in sounded),
        ),
    )


def export_policy(
    trial: Trial,
    stage: LanguageStage,
    base: Decoder,
    part_of: Callable[[PyTree], Part],
    trained: Trained,
) -> None:
    """The policy as a Hugging Face folder, and with LoRA its adapter alone."""
    directory, policy, lora = trained.trials[0], part_of(trained.lanes[0]), trial.scenario.lora
    save_policy(trial, base, policy, directory / stage.model)
    if lora is not None and policy.adapters is not None:
        named = trial.material.folder if trial.scenario.sft is None else None
        save_adapters(policy.adapters, lora, directory / ADAPTER, named or directory / SFT.model)


def draw_policy(trial: Trial, stage: LanguageStage, trained: Trained, outcome: Outcome) -> None:
    """Performance with its alarms, and the page of samples."""
    sounded = outcome.details.alarms
    trained.paint(
        plots.performance,
        trained.folders[0] / "plots" / "performance.png",
        trained.rows(0),
        {alarm.kind: alarm.step for alarm in sounded},
        trial.scenario.evaluation.alarms.kl_budget,
    )
    write_trial_page(trial.scenario, stage, trained.trials[0], sounded)
