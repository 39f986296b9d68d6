"""Supervised fine-tuning: the part learns to continue the texts as they go on.

    for each batch of texts, each followed by an EOS:
        loss = Σ over its tokens of −log P(token | those before it) ÷ their number
        one AdamW step on the gradient, its norm clipped, at a one-cycle learning rate

Without LoRA all weights learn, with it the adapters alone. Which texts are in batch n follows from the
seed and n, so that a stage goes on after an interruption exactly as it would have. Left out on purpose:
packing several texts into a row, and a loss on answers only.
"""

from collections.abc import Sequence
from functools import partial
from math import exp

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.parallel import masked_mean
from proxima.domains.domain import Trainable, Trained, Verdict
from proxima.domains.language.batches import Layout, drawn, filled, in_batches, with_eos
from proxima.domains.language.config import SFTConfig
from proxima.domains.language.data import imitated
from proxima.domains.language.model import Part, features, fresh_part
from proxima.domains.language.optimizers import Tuned, tuning
from proxima.domains.language.pipeline import Training, Trial, first_model, save_policy, trainable
from proxima.domains.language.samples import Rows
from proxima.domains.language.stages import SFT
from proxima.domains.language.tokenizer import Ids
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder, logits_of
from proxima.run.results import Outcome


def sft_stage(
    config: SFTConfig,
    base: Decoder,
    lora: LoraConfig | None,
    train: Sequence[Ids],
    held_out: Sequence[Ids],
    eos_id: int,
    seed: int,
    checkpoint: bool = False,
    layout: Layout = lambda rows: rows,
) -> Training:
    """The stage over texts as ids, without EOS; `checkpoint` spares memory inside layers."""
    longest = min(config.max_tokens or base.config.context, base.config.context)
    texts, others = (with_eos(lists, eos_id, longest) for lists in (train, held_out))
    for name, lists in (("training", texts), ("held-out", others)):
        if not any(len(ids) > 1 for ids in lists):
            raise ProximaError(f"sft: there is no {name} text of at least one token; bring some")
    updates = config.epochs * -(-len(texts) // config.batch_size)

    def batch(n: int) -> Rows:
        chosen = drawn(len(texts), config.batch_size, seed, n)
        return layout(filled([texts[i] for i in chosen], config.batch_size, longest))

    def evaluate(state: Tuned) -> dict[str, float]:
        total = count = 0.0
        for _, rows in in_batches(others, config.batch_size, longest):
            sums = np.asarray(loss_sums(base, state.part, layout(rows)), np.float64)
            total, count = total + sums[0], count + sums[1]
        loss = float(total / count)
        return {"eval/loss": loss, "eval/perplexity": exp(min(loss, 700.0))}

    fresh = partial(fresh_part, jax.random.key(seed), base, lora)
    every = config.evaluate_every
    return tuning(config, updates, every, mean_loss, base, fresh, batch, evaluate, checkpoint)


def token_losses(
    base: Decoder, part: Part, rows: Rows, checkpoint: bool = False
) -> tuple[Array, Array]:
    """−log P of each token but the first given those before it, (B, T − 1), and which of them count."""
    before = Rows(rows.ids[:, :-1], rows.mask[:, :-1])
    h = features(base, part, before, checkpoint)
    logits = logits_of(base if part.decoder is None else part.decoder, h)
    targets = rows.ids[:, 1:]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    valid = rows.mask[:, 1:] & before.mask
    return jnp.where(valid, losses, 0.0), valid


def mean_loss(
    part: Part, base: Decoder, rows: Rows, checkpoint: bool = False
) -> tuple[Array, dict[str, Array]]:
    """The loss of a batch, and the number of tokens it is the mean of."""
    losses, valid = token_losses(base, part, rows, checkpoint)
    loss = masked_mean(losses, valid)
    return loss, {"loss/sft": loss, "train/tokens": jnp.sum(valid)}


@eqx.filter_jit
def loss_sums(base: Decoder, part: Part, rows: Rows) -> Array:
    """The sum of the losses of the rows' tokens and their number, (2,)."""
    losses, valid = token_losses(base, part, rows)
    return jnp.stack([jnp.sum(losses), jnp.sum(valid).astype(jnp.float32)])


def make(trial: Trial) -> Trainable:
    """Supervised fine-tuning; leaves the reference that the stages after it start from."""
    scenario, (texts, tokenizer, _) = trial.scenario, trial.material
    assert scenario.sft is not None
    base = first_model(trial)
    training = sft_stage(
        scenario.sft,
        base,
        scenario.lora,
        imitated(scenario.data, texts.train, tokenizer),
        imitated(scenario.data, texts.held_out, tokenizer),
        tokenizer.eos_id,
        trial.seed,
        scenario.model.gradient_checkpointing,
        trial.layout,
    )

    def judge(trained: Trained) -> Verdict:
        save_policy(trial, base, trained.lanes[0].part, trained.trials[0] / SFT.model)
        return Verdict([Outcome()])

    return trainable(trial, SFT, training, judge)
