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
from proxima.domains.language.batches import order
from proxima.domains.language.config import LanguagePPOConfig
from proxima.domains.language.experience import Scoring, scored
from proxima.domains.language.generate import Generator, bucket, check_prompts
from proxima.domains.language.learn import (
    ModelTrainer as ModelTrainer,
)
from proxima.domains.language.learn import (
    PPOState as PPOState,
)
from proxima.domains.language.learn import (
    compiled_learn,
    experience_at,
    first_state,
    hyper_of,
    plan_of,
)
from proxima.domains.language.model import Part
from proxima.domains.language.rewards import RewardComputer, shaping
from proxima.domains.language.samples import Experience, Rows, Samples
from proxima.domains.language.tokenizer import Ids, Tokenizer, left_padded
from proxima.domains.language.training import Training
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder

Place = Callable[[Rows], Rows]  # how rows lie over devices

compiled_scored = partial(jax.jit, static_argnames="at_once")(scored)
_compiled_experience = partial(jax.jit, static_argnames="kind")(experience_at)


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
    place: Place = lambda rows: rows,
    critic: Part | None = None,
) -> Training:
    """The stage over prompts as ids; `checkpoint` spares memory inside layers.

    `critic` is what the critic starts as (`learn.critic_from`); without one it starts by saying 0.
    """
    _check_sizes(config)
    check_prompts(prompts, base, config.new_tokens)
    generator = Generator(base, tokenizer, config.new_tokens, config.temperature)
    hyper, numbers = hyper_of(config), shaping(reward.config)
    plan = plan_of(config, reward.config.normalize, checkpoint)
    asked = config.batch_size // repeats(config)
    longest = max(len(ids) for ids in prompts)

    def update(state: PPOState, n: int) -> tuple[PPOState, dict[str, float]]:
        started = time.perf_counter()
        chosen = [prompts[i] for i in next_prompts(len(prompts), asked, seed, int(state.cursor))]
        rows = place(prompt_rows(chosen, repeats(config), tokenizer.pad_id, longest))
        key = jax.random.fold_in(state.sample_key, state.updates)
        samples = jax.block_until_ready(generator.generate(state.policy, rows, key))
        generated = time.perf_counter()
        scoring, given = opinions(config, reward, base, state, samples)
        judged = time.perf_counter()
        state, metrics = compiled_learn(
            base, state, samples, scoring, given, hyper, numbers, plan=plan
        )
        state = state._replace(cursor=state.cursor + asked)
        found = {name: float(value) for name, value in jax.device_get(metrics).items()}
        return state, found | {
            "time/generate": generated - started,
            "time/score": judged - generated,
            "time/learn": time.perf_counter() - judged,
        }

    return Training(
        updates=config.updates,
        init=lambda: first_state(config, base, lora, seed, critic),
        update=update,
        evaluate=evaluate,
        evaluate_every=evaluate_every,
    )


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
    scoring = compiled_scored(
        base,
        state.policy,
        state.value,
        reward.model_of_ids,
        samples,
        np.float32(config.temperature),
        at_once=at_once,
    )
    given = reward.given(samples) if scoring.scores is None else scoring.scores
    return jax.block_until_ready((scoring, given))


def experience_from(
    config: LanguagePPOConfig, reward: RewardComputer, base: Decoder, state: PPOState
) -> Callable[[Samples], Experience]:
    """Makes experience of samples as an update would, and changes nothing: for those who look at tokens.

    With advantage group or leave_one_out, samples come in groups of one prompt, as in training.
    """
    hyper, plan = hyper_of(config), plan_of(config, reward.config.normalize)

    def make(samples: Samples) -> Experience:
        scoring, given = opinions(config, reward, base, state, samples)
        numbers = shaping(reward.config)
        return _compiled_experience(state, samples, scoring, given, hyper, numbers, plan.kind)[0]

    return make


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


def _check_sizes(config: LanguagePPOConfig) -> None:
    for whole, size, part in (
        ("batch_size", config.batch_size, ("minibatch_size", config.minibatch_size)),
        ("batch_size", config.batch_size, ("group_size", repeats(config))),
        ("minibatch_size", config.minibatch_size, ("micro_batches", config.micro_batches)),
    ):
        if size % part[1]:
            raise ProximaError(
                f"ppo.{whole}: {size} is not a multiple of ppo.{part[0]} ({part[1]}); take "
                f"{max(1, round(size / part[1])) * part[1]}"
            )
