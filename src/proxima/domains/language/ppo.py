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
from proxima.domains.domain import Trainable
from proxima.domains.language import learn
from proxima.domains.language.batches import Layout, order
from proxima.domains.language.config import LanguagePPOConfig
from proxima.domains.language.experience import Scoring, scored
from proxima.domains.language.generate import Generator, bucket, check_prompts
from proxima.domains.language.learn import PPOState, hyper_of, plan_of
from proxima.domains.language.model import Part
from proxima.domains.language.pipeline import Training, Trial, reference_of
from proxima.domains.language.policy_stage import (
    Learnt,
    evaluator_of,
    policy_trainable,
    reward_of,
)
from proxima.domains.language.rewards import RewardComputer, shaping
from proxima.domains.language.samples import Experience, Rows, Samples
from proxima.domains.language.stages import PPO, size_faults
from proxima.domains.language.tokenizer import Ids, Tokenizer, left_padded
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder
from proxima.train.together import gathered

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
    given = reward.given(gathered(samples)) if scoring.scores is None else scoring.scores
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
    scenario = trial.scenario
    config = scenario.ppo
    assert config is not None
    base = reference_of(trial)
    reward = reward_of(trial, base)
    assert reward is not None  # `stages.ppo_faults`
    prompts, held_out = trial.prompts(config.new_tokens)
    evaluator = evaluator_of(trial, base, reward, held_out)
    training = ppo_stage(
        config,
        reward,
        base,
        scenario.lora,
        prompts,
        trial.material.tokenizer,
        trial.seed,
        scenario.model.gradient_checkpointing,
        lambda state: evaluator.evaluate(state.policy),
        scenario.evaluation.frequency,
        trial.layout,
    )

    def learnt(state: PPOState) -> Learnt | None:
        # only a critic has an opinion of single tokens
        has_critic = config.advantage == "gae"
        return partial(experience_from, config, reward, base, state) if has_critic else None

    return policy_trainable(trial, PPO, training, evaluator, lambda state: state.policy, learnt)
