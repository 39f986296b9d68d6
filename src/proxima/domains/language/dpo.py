"""Direct preference optimization (arXiv 2305.18290): the policy learns from pairs what a reward model would.

    h(y) = log π(y | x) − log π_ref(y | x), the sum over the tokens of y, its EOS among them; x never counts
    for each batch of pairs, y⁺ preferred to y⁻ after the same x, with Δ = h(y⁺) − h(y⁻):
        sigmoid   −(1 − ε) log σ(β Δ) − ε log σ(−β Δ)
        ipo       (Δ − 1 / (2 β))²                                              (arXiv 2310.12036)
        one AdamW step on the gradient of the mean, its norm clipped, at a one-cycle learning rate

β h(y) is the reward for which π is the best policy at a price β of KL: this is the reward model's loss with
the policy in its place. The reference never changes, so what it says of every text is computed once, before
the first update. Pairs are given, or come of ratings as the reward model's do; then x is only what every text
begins with, for a pair must share its prompt. Nothing is sampled in training. Left out on purpose: pairs that
the policy makes itself, and a loss on the chosen answers besides.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.hyper import make_hyper
from proxima.core.parallel import masked_mean
from proxima.domains.domain import Trainable
from proxima.domains.language import policy_stage
from proxima.domains.language.batches import Layout, filled, in_batches, with_eos
from proxima.domains.language.config import DPOConfig
from proxima.domains.language.data import Answer, answers_of
from proxima.domains.language.model import REFERENCE, Part, fresh_part
from proxima.domains.language.optimizers import Tuned, tuning
from proxima.domains.language.pipeline import Training, Trial, reference_of
from proxima.domains.language.reward_stage import (
    Pairs,
    Source,
    given_pairs,
    make_pairs,
    rated_pairs,
)
from proxima.domains.language.samples import Rows
from proxima.domains.language.sft import token_losses
from proxima.domains.language.stages import DPO
from proxima.domains.language.tables import Table
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder
from proxima.train.together import gathered

SCORED_AT_ONCE = 64  # texts per pass where nothing is learnt


class Hyper(NamedTuple):
    """The numbers of the loss, scalar arrays."""

    beta: Array
    label_smoothing: Array


class Preferences(NamedTuple):
    """Answers, and by their numbers which are compared: those to train on, and held-out ones."""

    answers: Sequence[Answer]
    source: Source[int]
    held_out_answers: Sequence[Answer]
    held_out: Pairs[int]


class Texts(NamedTuple):
    """Answers as they are scored: cut at the context, an EOS behind those that fit."""

    ids: list[list[int]]
    given: np.ndarray  # (texts,) int32: tokens of each prompt
    weight: np.ndarray  # (texts,) float32: 1, or with length_normalized 1 / tokens of the answer


class Batch(NamedTuple):
    """What is compared in an update; rows without a text are all pads."""

    rows: Rows  # (texts, T)
    given: Array  # (texts,)
    weight: Array  # (texts,)
    reference: Array  # (texts,) log π_ref
    better: Array  # (texts, texts) bool: row than column
    hyper: Hyper


def sigmoid_losses(gap: Array, hyper: Hyper) -> Array:
    """−(1 − ε) log σ(β Δ) − ε log σ(−β Δ) of differences of log-ratios, one each."""
    margin, wrong = hyper.beta * gap, hyper.label_smoothing
    return (1.0 - wrong) * jax.nn.softplus(-margin) + wrong * jax.nn.softplus(margin)


def ipo_losses(gap: Array, hyper: Hyper) -> Array:
    """(Δ − 1 / (2 β))² of differences of log-ratios, one each."""
    return (gap - 1.0 / (2.0 * hyper.beta)) ** 2


LOSSES = {"sigmoid": sigmoid_losses, "ipo": ipo_losses}


def answer_log_probs(
    base: Decoder, part: Part, rows: Rows, given: Array, checkpoint: bool = False
) -> Array:
    """log π of what follows the first `given` tokens of each row, (texts,); pads and prompts do not count."""
    losses, valid = token_losses(base, part, rows, checkpoint)
    position = jnp.arange(1, rows.ids.shape[1])[None]  # of the tokens that losses are about
    return -jnp.sum(jnp.where(valid & (position >= given[:, None]), losses, 0.0), axis=1)


_compiled_log_probs = eqx.filter_jit(answer_log_probs)


def mean_loss(
    losses: Callable[[Array, Hyper], Array],
    part: Part,
    base: Decoder,
    batch: Batch,
    checkpoint: bool,
) -> tuple[Array, dict[str, Array]]:
    """The mean loss over a batch's pairs, and what the pairs look like to the policy."""
    log_probs = answer_log_probs(base, part, batch.rows, batch.given, checkpoint)
    ratios = batch.weight * (log_probs - batch.reference)
    gap = ratios[:, None] - ratios[None]
    loss = masked_mean(losses(gap, batch.hyper), batch.better)

    def mean(values: Array) -> Array:
        return masked_mean(jnp.broadcast_to(values, gap.shape), batch.better)

    rewards = batch.hyper.beta * ratios
    return loss, {
        "loss/dpo": loss,
        "train/accuracy": mean((gap > 0) + 0.5 * (gap == 0)),  # a tie is a guess: half right
        "train/reward_margin": mean(batch.hyper.beta * gap),
        "train/chosen_reward": mean(rewards[:, None]),
        "train/rejected_reward": mean(rewards[None]),
        "train/chosen_log_prob": mean(log_probs[:, None]),
        "train/rejected_log_prob": mean(log_probs[None]),
    }


# one function each, so that all trials share a compiled program
MEAN_LOSSES = {name: partial(mean_loss, losses) for name, losses in LOSSES.items()}


def dpo_stage(
    config: DPOConfig,
    base: Decoder,
    lora: LoraConfig | None,
    preferences: Preferences,
    eos_id: int,
    seed: int,
    checkpoint: bool = False,
    evaluate: Callable[[Part], dict[str, float]] = lambda part: {},
    evaluate_every: int = 10,
    layout: Layout = lambda rows: rows,
) -> Training:
    """The stage over answers as ids; `evaluate` adds figures to those of the held-out pairs."""
    longest, count, hyper = base.config.context, config.batch_size, make_hyper(Hyper, config)
    train, others = (
        _texts(answers, eos_id, longest, config.length_normalized)
        for answers in (preferences.answers, preferences.held_out_answers)
    )
    chosen, rejected = (np.asarray(side, np.int64) for side in preferences.held_out)
    if not len(chosen):
        raise ProximaError("dpo: there are no held-out pairs; bring some")
    source = preferences.source
    met = {text for n in range(config.updates) for text in source(n, count).texts}
    reference = log_probs_of(base, REFERENCE, train, sorted(met), layout)
    compared = sorted({*chosen.tolist(), *rejected.tolist()})
    held_out_reference = log_probs_of(base, REFERENCE, others, compared, layout)

    def batch(n: int) -> Batch:
        numbers, better = source(n, count)
        here, free = np.asarray(numbers, np.int64), 2 * count - len(numbers)
        columns = (train.given[here], train.weight[here], reference[here].astype(np.float32))
        given, weight, before = (jnp.asarray(np.pad(column, (0, free))) for column in columns)
        rows = layout(filled([train.ids[i] for i in numbers], 2 * count, longest))
        return Batch(rows, given, weight, before, jnp.asarray(np.pad(better, (0, free))), hyper)

    def held_out_figures(state: Tuned) -> dict[str, float]:
        log_probs = log_probs_of(base, state.part, others, compared, layout)
        ratios = others.weight * (log_probs - held_out_reference)
        gap = ratios[chosen] - ratios[rejected]
        right = np.mean(gap > 0) + 0.5 * np.mean(gap == 0)
        figures = {
            "eval/loss": np.mean(LOSSES[config.loss](jnp.asarray(gap, jnp.float32), hyper)),
            "eval/accuracy": right,
            "eval/reward_margin": config.beta * np.mean(gap),
            "eval/chosen_log_prob": np.mean(log_probs[chosen]),
            "eval/rejected_log_prob": np.mean(log_probs[rejected]),
        }
        own = {name: float(value) for name, value in figures.items()}
        return own | evaluate(state.part)

    fresh = partial(fresh_part, jax.random.key(seed), base, lora)
    sizes = (config.updates, evaluate_every)
    loss = MEAN_LOSSES[config.loss]
    return tuning(config, *sizes, loss, base, fresh, batch, held_out_figures, checkpoint)


def log_probs_of(
    base: Decoder,
    part: Part,
    texts: Texts,
    wanted: Sequence[int],
    layout: Layout = lambda rows: rows,
) -> np.ndarray:
    """log π of the texts whose numbers are wanted, (texts,) float64; NaN of the others.

    Which texts are scored together follows from those that are wanted, so that the bits do too.
    """
    found, numbers = np.full(len(texts.ids), np.nan), np.asarray(wanted, np.int64)
    ids, context = [texts.ids[i] for i in numbers], base.config.context
    for chosen, rows in in_batches(ids, SCORED_AT_ONCE, context):
        here = numbers[chosen]
        given = jnp.asarray(np.pad(texts.given[here], (0, SCORED_AT_ONCE - len(here))))
        scored = _compiled_log_probs(base, part, layout(rows), given)
        found[here] = np.asarray(gathered(scored))[: len(here)]
    return found


def _texts(answers: Sequence[Answer], eos_id: int, longest: int, normalized: bool) -> Texts:
    ids = with_eos([answer.ids for answer in answers], eos_id, longest)
    given = np.array([max(1, answer.given) for answer in answers], np.int32)
    lengths = np.array([len(text) for text in ids]) - given
    for row in np.flatnonzero(lengths < 1):
        raise ProximaError(
            f"dpo: pair {row}: a prompt of {given[row]} tokens leaves no room for an answer in the model's "
            f"context of {longest}; shorten it"
        )
    weight = 1.0 / lengths if normalized else np.ones(len(ids))
    return Texts(ids, given, weight.astype(np.float32))


def preferences_of(trial: Trial) -> Preferences:
    """Given pairs, or pairs of rated texts, as the reward model's are made."""
    config, data, seed = trial.scenario.dpo, trial.scenario.data, trial.scenario.seed
    assert config is not None
    (train, held_out, *_), tokenizer, _ = trial.material
    count, gap, name = config.held_out_pairs, config.rating_gap, DPO.name
    if train.chosen is not None and train.rejected is not None:
        sides = [_sides(table) for table in (train, held_out)]
        ours, theirs = (
            [
                *answers_of(data, table, chosen, tokenizer),
                *answers_of(data, table, rejected, tokenizer),
            ]
            for table, (chosen, rejected) in zip((train, held_out), sides, strict=True)
        )
        pairs, others = (_by_number(len(answers) // 2) for answers in (ours, theirs))
        some = Pairs(others.chosen[:count], others.rejected[:count])
        return Preferences(ours, given_pairs(pairs, trial.seed, name), theirs, some)
    tables = [_rated(table) for table in (train, held_out)]
    ours, theirs = (
        answers_of(data, Table(table.rows), texts, tokenizer)
        for table, (texts, _) in zip((train, held_out), tables, strict=True)
    )
    (_, ratings), (_, other_ratings) = tables
    source = rated_pairs(range(len(ours)), ratings, gap, trial.seed, name)
    # the same held-out pairs for every trial
    some = make_pairs(range(len(theirs)), other_ratings, gap, count, seed, name)
    return Preferences(ours, source, theirs, some)


def _sides(table: Table) -> tuple[list[str], list[str]]:
    assert table.chosen is not None and table.rejected is not None  # `tables.read_table`
    return table.chosen, table.rejected


def _by_number(count: int) -> Pairs[int]:
    """Pairs of answers that lie as all chosen ones, then all rejected ones."""
    return Pairs(range(count), range(count, 2 * count))


def _rated(table: Table) -> tuple[list[str], list[float]]:
    if table.text is None or table.rating is None:
        raise ProximaError(
            "data: dpo needs pairs: columns prompt, chosen and rejected, or text and rating"
        )
    return table.text, table.rating


def check_ahead(trial: Trial) -> None:
    """The stage needs pairs, and what every policy needs."""
    preferences_of(trial)
    policy_stage.check_ahead(trial)


def make(trial: Trial) -> Trainable:
    """DPO over the reference; leaves the policy, and what it does with held-out prompts."""
    scenario, tokenizer = trial.scenario, trial.material.tokenizer
    config = scenario.dpo
    assert config is not None
    base = reference_of(trial)
    _, held_out = trial.prompts(config.new_tokens)
    reward = policy_stage.reward_of(trial, base)
    evaluator = policy_stage.evaluator_of(trial, base, reward, held_out)
    training = dpo_stage(
        config,
        base,
        scenario.lora,
        preferences_of(trial),
        tokenizer.eos_id,
        trial.seed,
        scenario.model.gradient_checkpointing,
        evaluator.evaluate,
        scenario.evaluation.frequency,
        trial.layout,
    )
    return policy_stage.policy_trainable(trial, DPO, training, evaluator, lambda state: state.part)
