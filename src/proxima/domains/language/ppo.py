"""The stage of PPO: ask prompts, score what is said, learn from it; all random numbers from the seed.

    for each update:
        completions of the next prompts by the policy                       (one compiled call)
        their log-probs by policy and reference, values, the reward model's  (one compiled call)
        a reward function's opinion of their texts, if there is one          (Python)
        rewards, advantages, epochs × minibatches optimizer steps            (one compiled call)

The base's weights are arguments of all three; numbers of the settings are too, so that changing one
compiles nothing.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np

from proxima.core.errors import ProximaError
from proxima.domains.domain import Trainable, Trained, Verdict
from proxima.domains.language import alarms, learn, plots
from proxima.domains.language.batches import Layout, order
from proxima.domains.language.config import LanguagePPOConfig
from proxima.domains.language.evaluate import Evaluator, evaluation_prompts
from proxima.domains.language.experience import Scoring, scored
from proxima.domains.language.generate import Generator, bucket, check_prompts
from proxima.domains.language.hf import check_vocabulary
from proxima.domains.language.hub import locate
from proxima.domains.language.judge import judge
from proxima.domains.language.learn import PPOState, hyper_of, plan_of
from proxima.domains.language.mesh import lay_out
from proxima.domains.language.model import Part
from proxima.domains.language.part_files import save_adapters
from proxima.domains.language.pipeline import Training, Trial, reference_of, save_policy, trainable
from proxima.domains.language.results import LanguageTrial
from proxima.domains.language.reward_model import RewardModel, load_reward_model
from proxima.domains.language.reward_stage import saved_reward_model
from proxima.domains.language.rewards import RewardComputer, shaping
from proxima.domains.language.samples import Experience, Rows, Samples
from proxima.domains.language.samples_page import PROMPTS, TABLE, gains, write_trial_page
from proxima.domains.language.stages import ADAPTER, PPO, SFT, size_faults
from proxima.domains.language.tokenizer import Ids, Tokenizer, left_padded
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder
from proxima.run.files import write_json
from proxima.run.results import Alarm, Outcome, described
from proxima.train.convergence import Convergence
from proxima.train.stage import Score

compiled_scored = partial(jax.jit, static_argnames="at_once")(scored)
_compiled_experience = partial(jax.jit, static_argnames="kind")(learn.experience_of)


def ppo_stage(
    config: LanguagePPOConfig,
    reward: RewardComputer,
    base: Decoder,
    lora: LoraConfig | None,
    prompts: Sequence[Ids],
    tokenizer: Tokenizer,
    seed: int,
    checkpoint: bool = False,
    evaluate: Callable[[PPOState], dict[str, float]] = lambda state: {},
    evaluate_every: int = 10,
    layout: Layout = lambda rows: rows,
    critic: Part | None = None,
) -> Training:
    """The stage over prompts as ids; `checkpoint` spares memory inside layers.

    `critic` is what the critic starts as (`learn.critic_from`); without one it starts by saying 0.
    """
    for fault in size_faults(config):
        raise ProximaError(f"{'.'.join(map(str, fault.paths[0]))}: {fault.text}")
    check_prompts(prompts, base, config.new_tokens)
    generator = Generator(base, tokenizer, config.new_tokens, config.temperature)
    hyper, numbers = hyper_of(config), shaping(reward.config)
    plan = plan_of(config, reward.config.normalize, checkpoint)
    asked = config.batch_size // repeats(config)
    longest = max(len(ids) for ids in prompts)

    def update(state: PPOState, n: int) -> tuple[PPOState, dict[str, float]]:
        started = time.perf_counter()
        chosen = [prompts[i] for i in next_prompts(len(prompts), asked, seed, int(state.cursor))]
        rows = layout(prompt_rows(chosen, repeats(config), tokenizer.pad_id, longest))
        key = jax.random.fold_in(state.sample_key, state.updates)
        samples = jax.block_until_ready(generator.generate(state.policy, rows, key))
        generated = time.perf_counter()
        scoring, given = opinions(config, reward, base, state, samples)
        judged = time.perf_counter()
        state, metrics = learn.compiled_learn(
            base, state, samples, scoring, given, hyper, numbers, plan=plan
        )
        state = state._replace(cursor=state.cursor + asked)
        figures = {name: float(value) for name, value in jax.device_get(metrics).items()}
        return state, figures | {
            "time/generate": generated - started,
            "time/score": judged - generated,
            "time/learn": time.perf_counter() - judged,
        }

    init = partial(learn.first_state, config, base, lora, seed, critic)
    return Training(config.updates, init, update, evaluate, evaluate_every)


def opinions(
    config: LanguagePPOConfig,
    reward: RewardComputer,
    base: Decoder,
    state: PPOState,
    samples: Samples,
) -> tuple[Scoring, jax.Array]:
    """What everybody says of the samples, and what the reward does; rows as many at a time as in training."""
    rows = len(samples.ended)
    share = config.minibatch_size // config.micro_batches
    at_once = share if rows % share == 0 else rows
    models = (base, state.policy, state.value, reward.model_of_ids)
    temperature = np.float32(config.temperature)
    scoring = compiled_scored(*models, samples, temperature, at_once=at_once)
    given = reward.given(samples) if scoring.scores is None else scoring.scores
    return jax.block_until_ready((scoring, given))


def experience_from(
    config: LanguagePPOConfig,
    reward: RewardComputer,
    base: Decoder,
    state: PPOState,
    samples: Samples,
) -> Experience:
    """What an update would make of samples; it changes nothing: for those who look at tokens.

    With advantage group or leave_one_out, samples come in groups of one prompt, as in training.
    """
    opinion = opinions(config, reward, base, state, samples)
    kind = plan_of(config, reward.config.normalize).kind
    numbers = (hyper_of(config), shaping(reward.config))
    return _compiled_experience(state, samples, *opinion, *numbers, kind)[0]


def next_prompts(count: int, batch: int, seed: int, cursor: int) -> list[int]:
    """The numbers of the next prompts after `cursor` of them: each once per pass, in a new order each."""
    places = range(cursor, cursor + batch)
    orders = {epoch: order(count, seed, epoch) for epoch in {at // count for at in places}}
    return [int(orders[at // count][at % count]) for at in places]


def prompt_rows(prompts: Sequence[Ids], repeated: int, pad_id: int, longest: int) -> Rows:
    """The prompts, each `repeated` times in neighbouring rows, padded on the left to a bucket's width."""
    lists = [ids for ids in prompts for _ in range(repeated)]
    return left_padded(lists, pad_id, bucket(max(map(len, lists)), longest))


def repeats(config: LanguagePPOConfig) -> int:
    """Completions per prompt."""
    return 1 if config.advantage == "gae" else config.group_size


def make(trial: Trial) -> Trainable:
    """PPO over the reference; leaves the policy, and what it does with held-out prompts."""
    scenario, tokenizer = trial.scenario, trial.material.tokenizer
    config, measuring = scenario.ppo, scenario.evaluation
    assert config is not None
    base = reference_of(trial)
    reward = reward_of(trial, base)
    prompts, held_out = trial.prompts(config.new_tokens)
    generator = Generator(base, tokenizer, config.new_tokens, config.temperature)
    independent = judge(measuring.judge)
    evaluator = Evaluator(
        generator, reward, independent, measuring, held_out, tokenizer, scenario.seed
    )
    training = ppo_stage(
        config,
        reward,
        base,
        scenario.lora,
        prompts,
        tokenizer,
        trial.seed,
        scenario.model.gradient_checkpointing,
        lambda state: evaluator.evaluate(state.policy),
        measuring.frequency,
        trial.layout,
    )

    def judged(trained: Trained) -> Verdict:
        (state,) = trained.lanes
        # only a critic has an opinion of single tokens
        has_critic = config.advantage == "gae"
        learnt = partial(experience_from, config, reward, base, state) if has_critic else None
        return Verdict([outcome_of(trial, evaluator, trained, learnt)])

    def converge(memory: Convergence, score: Score, step: int) -> Convergence:
        return alarms.observe_patience(memory, score.value, step, measuring.patience)

    def draw(trained: Trained, lane: int, outcome: Outcome) -> None:
        made.draw(trained, lane, outcome)
        draw_policy(trial, trained, outcome)

    made = trainable(trial, PPO, training, judged)
    watched = made.stage._replace(
        converge_evaluation=converge,
        alarms=lambda history: alarms.new_alarms(history, measuring.alarms),
    )
    return made._replace(stage=watched, export=partial(export_policy, trial, base), draw=draw)


def check_ahead(trial: Trial) -> None:
    """The stage needs prompts that fit, held-out ones among them, its judge, and its reward.

    A reward model from elsewhere is read whole: its files may be damaged.
    """
    scenario = trial.scenario
    assert scenario.ppo is not None
    prompts, held_out = trial.prompts(scenario.ppo.new_tokens)
    evaluation_prompts(scenario.evaluation, held_out)
    judge(scenario.evaluation.judge)
    if scenario.reward.kind == "function":
        RewardComputer(scenario.reward, tokenizer=trial.material.tokenizer)
    elif scenario.reward.path is not None:
        model, theirs = reward_from_elsewhere(trial, scenario.reward.path)
        if theirs is None:  # it reads the policy's ids
            check_prompts([*prompts, *held_out], model.base, scenario.ppo.new_tokens)


def reward_from_elsewhere(trial: Trial, path: str) -> tuple[RewardModel, Tokenizer | None]:
    """A saved reward model, and its tokenizer where that is not the policy's."""
    folder = locate(path)
    model, tokenizer = load_reward_model(folder, trial.scenario.model.dtype)
    check_vocabulary(model.base, tokenizer.size, folder)
    same = tokenizer.serialized() == trial.material.tokenizer.serialized()
    return model, None if same else tokenizer


def reward_of(trial: Trial, base: Decoder) -> RewardComputer:
    """What PPO is rewarded by: a function, the stage's reward model, or one from elsewhere."""
    config, model_config = trial.scenario.reward, trial.scenario.model
    tokenizer, theirs = trial.material.tokenizer, None
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
    evaluator: Evaluator,
    trained: Trained,
    learnt: Callable[[Samples], Experience] | None,
) -> Outcome:
    """The policy on the held-out prompts beside the reference; samples are written."""
    policy = trained.lanes[0].policy
    before, after = evaluator.reference(), evaluator.measure(policy)
    write_json(trained.trials[0] / TABLE, evaluator.samples(policy, learnt, after))
    by_prompt = {"before": before.by_prompt(), "after": after.by_prompt()}
    write_json(trained.folders[0] / PROMPTS, by_prompt)
    history = [row for row in trained.rows(0) if "eval/reward" in row]
    sounded = alarms.alarms(history, trial.scenario.evaluation.alarms)
    # rewards as results hold episodes: a token is a step
    reference, now = (described(seen.reward, seen.length) for seen in (before, after))
    return Outcome(
        evaluation=now,
        reference=reference,
        baselines={"reference": reference.return_mean},
        details=LanguageTrial(
            gains=gains(*by_prompt.values()),
            alarms=tuple(Alarm(**alarm._asdict(), trial=trial.number) for alarm in sounded),
        ),
    )


def export_policy(trial: Trial, base: Decoder, trained: Trained) -> None:
    """The policy as a Hugging Face folder, and with LoRA its adapter alone."""
    directory, policy, lora = trained.trials[0], trained.lanes[0].policy, trial.scenario.lora
    save_policy(trial, base, policy, directory / PPO.model)
    if lora is not None and policy.adapters is not None:
        named = trial.material.folder if trial.scenario.sft is None else None
        save_adapters(policy.adapters, lora, directory / ADAPTER, named or directory / SFT.model)


def draw_policy(trial: Trial, trained: Trained, outcome: Outcome) -> None:
    """Performance with its alarms, and the page of samples."""
    sounded = outcome.details.alarms
    trained.paint(
        plots.performance,
        trained.folders[0] / "plots" / "performance.png",
        trained.rows(0),
        {alarm.kind: alarm.step for alarm in sounded},
        trial.scenario.evaluation.alarms.kl_budget,
    )
    write_trial_page(trial.scenario, trained.trials[0], sounded)
