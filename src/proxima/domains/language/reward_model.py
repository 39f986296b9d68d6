"""A reward model: one number for a text, learnt from which of two texts people prefer.

    P(a is preferred to b) = σ(r(a) − r(b))                 (Bradley & Terry 1952)
    loss = −log σ(r(better) − r(worse)), mean over the pairs of a batch

r is what a head makes of the features at a text's last token, the EOS of a text that ended. Pairs are given,
or come of ratings: all pairs within a random batch of texts whose ratings differ by more than a gap, so that
a text that was read once is compared many times. r is known up to a shift; `calibrated` shifts and scales it
to mean 0 and deviation 1 on what the reference writes. Saved, it is a Hugging Face folder with its own
tokenizer and a head beside it.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from proxima.core.errors import ProximaError
from proxima.domains.language.batches import Layout, drawn, filled, in_batches, with_eos
from proxima.domains.language.config import RewardModelConfig
from proxima.domains.language.hf import load_model, save_model
from proxima.domains.language.model import Head, Part, fresh_part, merged_decoder, score_texts
from proxima.domains.language.optimizers import Numbers, adamw_step, first_adam, numbers, one_cycle
from proxima.domains.language.part_files import load_part, save_part
from proxima.domains.language.samples import Rows
from proxima.domains.language.tokenizer import Ids, Tokenizer, load_tokenizer, unpadded
from proxima.domains.language.training import Training
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder
from proxima.run.files import write_json

SCORED_AT_ONCE = 64  # texts
HEAD_SCALE = 0.5
LEAST_DEVIATION = 1e-6
HEAD, MEASURED = "reward_head.safetensors", "reward_model.json"


class Pairs(NamedTuple):
    """Texts as ids, side by side: the first of each pair is preferred."""

    chosen: Sequence[Ids]
    rejected: Sequence[Ids]


class Compared(NamedTuple):
    """Texts as ids, and which is better than which: (texts, texts), row than column."""

    texts: Sequence[Ids]
    better: np.ndarray


# number of the update, number of pairs → what is compared in that update: twice as many texts at most
Source = Callable[[int, int], Compared]


class RewardState(NamedTuple):
    """What is learnt, and Adam's moments of it."""

    part: Part
    optimizer: optax.OptState


class Batch(NamedTuple):
    """What a step is given and does not change."""

    base: Decoder
    rows: Rows  # (texts, T); all pads where there is no text
    better: Array  # (texts, texts) bool
    numbers: Numbers


class RewardModel(NamedTuple):
    """Scores of texts with mean 0 and deviation 1 on what the reference writes."""

    base: Decoder
    part: Part
    mean: Array  # () of the head's numbers
    std: Array  # ()


def rated_pairs(texts: Sequence[Ids], ratings: Sequence[float], gap: float, seed: int) -> Source:
    """Every text once per epoch, compared with all in its batch whose ratings differ by more than `gap`."""
    rated = np.asarray(ratings, np.float64)
    _worse(rated, gap)

    def source(n: int, count: int) -> Compared:
        chosen = drawn(len(texts), 2 * count, seed, n)
        better = rated[chosen][:, None] - rated[chosen][None] > gap
        return Compared([texts[i] for i in chosen], better)

    return source


def given_pairs(pairs: Pairs, seed: int) -> Source:
    """Every pair once per epoch, in a new order each."""
    if not len(pairs.chosen):
        raise ProximaError("reward_model: there are no training pairs; bring some")

    def source(n: int, count: int) -> Compared:
        chosen = drawn(len(pairs.chosen), count, seed, n)
        texts = [pairs.chosen[i] for i in chosen] + [pairs.rejected[i] for i in chosen]
        return Compared(texts, np.eye(len(texts), k=len(chosen), dtype=bool))

    return source


def make_pairs(
    texts: Sequence[Ids], ratings: Sequence[float], gap: float, count: int, seed: int
) -> Pairs:
    """`count` random pairs of texts whose ratings differ by more than `gap`, the better rated first."""
    ascending, worse = _worse(np.asarray(ratings, np.float64), gap)
    random = np.random.default_rng(seed)
    until = np.cumsum(worse)
    ranks = np.searchsorted(until, random.integers(0, until[-1], count), side="right")
    lesser = random.integers(0, worse[ranks])
    return Pairs([texts[i] for i in ascending[ranks]], [texts[i] for i in ascending[lesser]])


def reward_stage(
    config: RewardModelConfig,
    base: Decoder,
    lora: LoraConfig | None,
    train: Source,
    held_out: Pairs,
    eos_id: int,
    seed: int,
    checkpoint: bool = False,
    layout: Layout = lambda rows: rows,
) -> Training:
    """The stage over texts without EOS; the trunk starts as `base`, the head small and random."""
    longest, count = base.config.context, config.batch_size
    if not len(held_out.chosen):
        raise ProximaError("reward_model: there are no held-out pairs; bring some")
    unique, first, second = _unique(held_out, eos_id, longest)

    def init() -> RewardState:
        trunk_key, head_key = jax.random.split(jax.random.key(seed))
        width = base.config.width
        # first scores of about ±HEAD_SCALE; from 0 the trunk would learn nothing at first
        weight = jax.random.normal(head_key, (width,)) * HEAD_SCALE / width**0.5
        part = fresh_part(trunk_key, base, lora)._replace(head=Head(weight, jnp.zeros(())))
        return RewardState(part, first_adam(part))

    def update(state: RewardState, n: int) -> tuple[RewardState, dict[str, float]]:
        compared = train(n, count)
        rows = layout(filled(with_eos(compared.texts, eos_id, longest), 2 * count, longest))
        better = np.zeros((2 * count, 2 * count), bool)
        better[: len(compared.texts), : len(compared.texts)] = compared.better
        rate = one_cycle(n, config.updates, config.learning_rate)
        step = numbers(rate, config.weight_decay, config.max_grad_norm)
        batch = Batch(base, rows, jax.device_put(better), step)
        state, metrics = reward_step(batch, state, checkpoint)
        figures = {name: float(value) for name, value in jax.device_get(metrics).items()}
        return state, figures | {"train/learning_rate": rate}

    def evaluate(state: RewardState) -> dict[str, float]:
        scored = text_scores(base, state.part, unique, layout)
        margins = scored[first] - scored[second]
        losses = np.logaddexp(0.0, -margins)
        # a tie is a guess: half right
        right = np.mean(margins > 0) + 0.5 * np.mean(margins == 0)
        return {"eval/accuracy": float(right), "eval/loss": float(np.mean(losses))}

    return Training(config.updates, init, update, evaluate, config.evaluate_every)


def preference_losses(scored: Array) -> Array:
    """−log σ(r_i − r_j) of all ordered pairs of scores (texts,): what it costs if i is better than j."""
    return jax.nn.softplus(-(scored[:, None] - scored[None]))


def mean_loss(part: Part, batch: Batch, checkpoint: bool) -> tuple[Array, Array]:
    """The loss of a batch, and which share of its pairs is put in the right order."""
    scored = score_texts(batch.base, part, batch.rows, checkpoint)
    count = jnp.maximum(jnp.sum(batch.better), 1)
    losses = jnp.where(batch.better, preference_losses(scored), 0.0)
    right = batch.better & (scored[:, None] > scored[None])
    return jnp.sum(losses) / count, jnp.sum(right) / count


@eqx.filter_jit(donate="all-except-first")
def reward_step(
    batch: Batch, state: RewardState, checkpoint: bool
) -> tuple[RewardState, dict[str, Array]]:
    """One optimizer step; the old state is given up."""
    grad = jax.value_and_grad(mean_loss, has_aux=True)
    (loss, accuracy), gradient = grad(state.part, batch, checkpoint)
    part, optimizer, norm = adamw_step(state.part, gradient, state.optimizer, batch.numbers)
    metrics = {"loss/reward_model": loss, "train/accuracy": accuracy, "train/grad_norm": norm}
    return RewardState(part, optimizer), metrics


_compiled_scores = eqx.filter_jit(score_texts)


def text_scores(
    base: Decoder, part: Part, texts: Sequence[Ids], layout: Layout = lambda rows: rows
) -> np.ndarray:
    """The head's number for each text as it is, (number,), float64."""
    scored = np.zeros(len(texts))
    for chosen, rows in in_batches(texts, SCORED_AT_ONCE, base.config.context):
        scored[chosen] = np.asarray(_compiled_scores(base, part, layout(rows)))[: len(chosen)]
    return scored


def calibrated(
    base: Decoder, part: Part, rows: Rows, layout: Layout = lambda rows: rows
) -> RewardModel:
    """The part as a reward model whose scores have mean 0 and deviation 1 on the given texts."""
    scored = text_scores(base, part, unpadded(rows), layout)
    # a model that says the same of all texts is left as it is: there is nothing to scale
    deviation = scored.std() if scored.std() > LEAST_DEVIATION else 1.0
    return RewardModel(base, part, jnp.float32(scored.mean()), jnp.float32(deviation))


def scores(model: RewardModel, rows: Rows) -> Array:
    """The normalised scores of texts in the model's own ids, (B,)."""
    return (score_texts(model.base, model.part, rows) - model.mean) / model.std


def save_reward_model(
    model: RewardModel, tokenizer: Tokenizer, folder: Path, like: Path | None = None
) -> None:
    """Writes a Hugging Face folder, adapters worked in, with the head, mean and deviation beside it.

    `like` is the folder of the model it comes from; without one it is written as a Llama.
    """
    save_model(merged_decoder(model.base, model.part), folder, like)
    tokenizer.save(folder)
    save_part(Part(head=model.part.head), folder / HEAD)
    write_json(folder / MEASURED, {"mean": float(model.mean), "std": float(model.std)})


def load_reward_model(folder: Path, dtype: str = "float32") -> tuple[RewardModel, Tokenizer]:
    """A saved reward model and the tokenizer that it reads in."""
    try:
        measured = json.loads((folder / MEASURED).read_text())
        mean, std = (jnp.float32(measured[name]) for name in ("mean", "std"))
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise ProximaError(
            f"{folder}: is not a saved reward model ({MEASURED}: {failure}); reward.path names a folder "
            "that a reward_model stage wrote"
        ) from failure
    base = load_model(folder, dtype)
    return RewardModel(base, load_part(folder / HEAD, base), mean, std), load_tokenizer(folder)


def _worse(rated: np.ndarray, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """The texts by ascending rating, and for each how many are worse by the gap: the first so many.

    None at all is an error: there is nothing to compare.
    """
    ascending = np.argsort(rated, kind="stable")
    worse = np.searchsorted(rated[ascending], rated[ascending] - gap, side="left")
    if not worse.any():
        most = f"{np.ptp(rated):g} at most" if len(rated) else "there are none"
        raise ProximaError(
            f"reward_model.rating_gap: {gap:g}, and no two ratings differ by more ({most}); set a "
            "smaller one"
        )
    return ascending, worse


def _unique(
    pairs: Pairs, eos_id: int, longest: int
) -> tuple[list[tuple[int, ...]], np.ndarray, np.ndarray]:
    """The different texts of pairs with their EOS, and where each pair's two are among them."""
    chosen, rejected = (map(tuple, with_eos(texts, eos_id, longest)) for texts in pairs)
    index: dict[tuple[int, ...], int] = {}
    first = np.array([index.setdefault(ids, len(index)) for ids in chosen])
    second = np.array([index.setdefault(ids, len(index)) for ids in rejected])
    return list(index), first, second
