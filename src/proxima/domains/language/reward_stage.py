"""The stage of the reward model: learnt from which of two texts people prefer, then calibrated.

    P(a is preferred to b) = σ(r(a) − r(b))                 (Bradley & Terry 1952)
    loss = −log σ(r(better) − r(worse)), mean over the pairs of a batch

Pairs are given, or come of ratings: all pairs within a random batch of texts whose ratings differ by more
than a gap, so that a text that was read once is compared many times.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.parallel import masked_mean
from proxima.domains.domain import Trainable, Trained, Verdict
from proxima.domains.language.batches import Layout, drawn, filled, with_eos
from proxima.domains.language.config import RewardModelConfig
from proxima.domains.language.data import imitated, preferred
from proxima.domains.language.generate import Generator
from proxima.domains.language.model import REFERENCE, Head, Part, fresh_part, joined, score_texts
from proxima.domains.language.optimizers import Tuned, tuning
from proxima.domains.language.part_files import load_part, save_part
from proxima.domains.language.pipeline import CALIBRATION, Training, Trial, reference_of, trainable
from proxima.domains.language.results import LanguageTrial
from proxima.domains.language.reward_model import (
    RewardModel,
    calibrated,
    load_reward_model,
    save_reward_model,
    text_scores,
)
from proxima.domains.language.samples import Rows
from proxima.domains.language.stages import REWARD_MODEL
from proxima.domains.language.tables import Table
from proxima.domains.language.tokenizer import Ids, Tokenizer, left_padded, right_padded, unpadded
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder
from proxima.run.results import Outcome

STAGE = REWARD_MODEL.name
HEAD_SCALE = 0.5
FOLDER, PART_FILE = "model", "part.safetensors"


Text = TypeVar("Text")  # as ids, or as its number among texts that somebody else holds


class Pairs(NamedTuple, Generic[Text]):
    """Texts side by side: the first of each pair is preferred."""

    chosen: Sequence[Text]
    rejected: Sequence[Text]


class Compared(NamedTuple, Generic[Text]):
    """Texts, and which is better than which: (texts, texts), row than column."""

    texts: Sequence[Text]
    better: np.ndarray


# number of the update, number of pairs → what is compared in that update: twice as many texts at most
Source = Callable[[int, int], Compared[Text]]


class Batch(NamedTuple):
    """What is compared in an update."""

    rows: Rows  # (texts, T); all pads where there is no text
    better: Array  # (texts, texts) bool


def rated_pairs(
    texts: Sequence[Text], ratings: Sequence[float], gap: float, seed: int, stage: str = STAGE
) -> Source[Text]:
    """Every text once per epoch, compared with all in its batch whose ratings differ by more than `gap`."""
    rated = np.asarray(ratings, np.float64)
    _worse(rated, gap, stage)

    def source(n: int, count: int) -> Compared[Text]:
        chosen = drawn(len(texts), 2 * count, seed, n)
        better = rated[chosen][:, None] - rated[chosen][None] > gap
        return Compared([texts[i] for i in chosen], better)

    return source


def given_pairs(pairs: Pairs[Text], seed: int, stage: str = STAGE) -> Source[Text]:
    """Every pair once per epoch, in a new order each."""
    if not len(pairs.chosen):
        raise ProximaError(f"{stage}: there are no training pairs; bring some")

    def source(n: int, count: int) -> Compared[Text]:
        chosen = drawn(len(pairs.chosen), count, seed, n)
        texts = [pairs.chosen[i] for i in chosen] + [pairs.rejected[i] for i in chosen]
        return Compared(texts, np.eye(len(texts), k=len(chosen), dtype=bool))

    return source


def make_pairs(
    texts: Sequence[Text],
    ratings: Sequence[float],
    gap: float,
    count: int,
    seed: int,
    stage: str = STAGE,
) -> Pairs[Text]:
    """`count` random pairs of texts whose ratings differ by more than `gap`, the better rated first."""
    ascending, worse = _worse(np.asarray(ratings, np.float64), gap, stage)
    random = np.random.default_rng(seed)
    until = np.cumsum(worse)
    ranks = np.searchsorted(until, random.integers(0, until[-1], count), side="right")
    lesser = random.integers(0, worse[ranks])
    return Pairs([texts[i] for i in ascending[ranks]], [texts[i] for i in ascending[lesser]])


def reward_stage(
    config: RewardModelConfig,
    base: Decoder,
    lora: LoraConfig | None,
    train: Source[Ids],
    held_out: Pairs[Ids],
    eos_id: int,
    seed: int,
    checkpoint: bool = False,
    layout: Layout = lambda rows: rows,
) -> Training:
    """The stage over texts without EOS; the trunk starts as `base`, the head small and random."""
    longest, count = base.config.context, config.batch_size
    if not len(held_out.chosen):
        raise ProximaError("reward_model: there are no held-out pairs; bring some")
    chosen, rejected = (list(map(tuple, with_eos(texts, eos_id, longest))) for texts in held_out)
    unique = list(dict.fromkeys([*chosen, *rejected]))

    def fresh() -> Part:
        trunk_key, head_key = jax.random.split(jax.random.key(seed))
        width = base.config.width
        # first scores of about ±HEAD_SCALE; from 0 the trunk would learn nothing at first
        weight = jax.random.normal(head_key, (width,)) * HEAD_SCALE / width**0.5
        return fresh_part(trunk_key, base, lora)._replace(head=Head(weight, jnp.zeros(())))

    def batch(n: int) -> Batch:
        texts, better = train(n, count)
        rows = layout(filled(with_eos(texts, eos_id, longest), 2 * count, longest))
        return Batch(rows, jax.device_put(np.pad(better, (0, 2 * count - len(texts)))))

    def evaluate(state: Tuned) -> dict[str, float]:
        scored = dict(zip(unique, text_scores(base, state.part, unique, layout), strict=True))
        margins = np.array([scored[a] - scored[b] for a, b in zip(chosen, rejected, strict=True)])
        losses = np.logaddexp(0.0, -margins)
        # a tie is a guess: half right
        right = np.mean(margins > 0) + 0.5 * np.mean(margins == 0)
        return {"eval/accuracy": float(right), "eval/loss": float(np.mean(losses))}

    sizes = (config.updates, config.evaluate_every)
    return tuning(config, *sizes, mean_loss, base, fresh, batch, evaluate, checkpoint)


def preference_losses(scored: Array) -> Array:
    """−log σ(r_i − r_j) of all ordered pairs of scores (texts,): what it costs if i is better than j."""
    return jax.nn.softplus(-(scored[:, None] - scored[None]))


def mean_loss(
    part: Part, base: Decoder, batch: Batch, checkpoint: bool
) -> tuple[Array, dict[str, Array]]:
    """The loss of a batch, and which share of its pairs is put in the right order."""
    scored = score_texts(base, part, batch.rows, checkpoint)
    loss = masked_mean(preference_losses(scored), batch.better)
    accuracy = masked_mean(scored[:, None] > scored[None], batch.better)
    return loss, {"loss/reward_model": loss, "train/accuracy": accuracy}


def make(trial: Trial) -> Trainable:
    """A reward model; leaves it calibrated, as a folder from which the policy's stage reads it."""
    scenario, (_, tokenizer, like) = trial.scenario, trial.material
    assert scenario.reward_model is not None
    base = reference_of(trial)
    training = reward_stage(
        scenario.reward_model,
        base,
        scenario.lora,
        *_pairs(trial),
        tokenizer.eos_id,
        trial.seed,
        scenario.model.gradient_checkpointing,
        trial.layout,
    )

    def judge(trained: Trained) -> Verdict:
        part, folder = trained.lanes[0].part, trained.folders[0] / FOLDER
        rows = right_padded(_reference_texts(trial, base), tokenizer.pad_id)
        model = calibrated(base, part, rows, trial.layout)
        save_reward_model(model, tokenizer, folder, like)
        if (
            scenario.lora is not None
        ):  # so that this run's policy need not hold the base a second time
            save_part(part, folder / PART_FILE)
        calibration = {"mean": float(model.mean), "std": float(model.std)}
        return Verdict([Outcome(details=LanguageTrial(calibration=calibration))])

    return trainable(trial, REWARD_MODEL, training, judge)


def check_ahead(trial: Trial) -> None:
    """The stage needs columns, and ratings that differ; the prompts of calibration are the policy's."""
    _pairs(trial)


def saved_reward_model(trial: Trial, base: Decoder) -> RewardModel:
    """What the stage left; with LoRA over the base that is held already."""
    folder, config = trial.directory / REWARD_MODEL.name / FOLDER, trial.scenario.model
    model, _ = load_reward_model(folder, config.dtype)
    if trial.scenario.lora is not None:
        model = model._replace(base=base, part=load_part(folder / PART_FILE, base))
    return model


def _pairs(trial: Trial) -> tuple[Source[Ids], Pairs[Ids]]:
    """Given pairs, or pairs of rated texts: those to train on, and held-out ones."""
    config, data = trial.scenario.reward_model, trial.scenario.data
    assert config is not None
    (train, held_out, *_), tokenizer, _ = trial.material
    count, gap = config.held_out_pairs, config.rating_gap
    if train.chosen is not None:
        given: Pairs[Ids] = Pairs(*preferred(data, train, tokenizer))
        chosen, rejected = preferred(data, held_out, tokenizer)
        return given_pairs(given, trial.seed), Pairs(chosen[:count], rejected[:count])
    source = rated_pairs(*_rated(train, tokenizer), gap, trial.seed)
    # the same held-out pairs for every trial
    return source, make_pairs(*_rated(held_out, tokenizer), gap, count, trial.scenario.seed)


def _rated(table: Table, tokenizer: Tokenizer) -> tuple[Sequence[Ids], list[float]]:
    if table.text is None or table.rating is None:
        raise ProximaError(
            "data: the reward model needs columns text and rating, or prompt, chosen and rejected"
        )
    return tokenizer.encode(table.text), table.rating


def _reference_texts(trial: Trial, base: Decoder) -> list[list[int]]:
    """What the reference writes after training prompts; without a policy to come, what people wrote."""
    scenario, (texts, tokenizer, _) = trial.scenario, trial.material
    assert scenario.reward_model is not None
    count, policy = scenario.reward_model.calibration_samples, scenario.policy
    if policy is None:
        written = imitated(scenario.data, texts.train, tokenizer)[:count]
        return with_eos(written, tokenizer.eos_id, base.config.context)
    prompts, _ = trial.prompts(policy.new_tokens)
    generator = Generator(base, tokenizer, policy.new_tokens, policy.temperature)
    made: list[list[int]] = []
    for start in range(0, count, policy.batch_size):
        asked = [prompts[i % len(prompts)] for i in range(start, start + policy.batch_size)]
        key = jax.random.fold_in(trial.key(CALIBRATION), start)
        samples = generator.generate(REFERENCE, left_padded(asked, tokenizer.pad_id), key)
        made += unpadded(joined(samples.prompts, samples.completions))
    return made[:count]


def _worse(rated: np.ndarray, gap: float, stage: str) -> tuple[np.ndarray, np.ndarray]:
    """The texts by ascending rating, and for each how many are worse by the gap: the first so many.

    None at all is an error: there is nothing to compare.
    """
    ascending = np.argsort(rated, kind="stable")
    worse = np.searchsorted(rated[ascending], rated[ascending] - gap, side="left")
    if not worse.any():
        most = f"{np.ptp(rated):g} at most" if len(rated) else "there are none"
        raise ProximaError(
            f"{stage}.rating_gap: {gap:g}, and no two ratings differ by more ({most}); set a "
            "smaller one"
        )
    return ascending, worse
