"""A reward model: one number for a text, by which of two texts people would prefer.

    r = what a head makes of the features at a text's last token, the EOS of a text that ended

r is known up to a shift; `calibrated` shifts and scales it to mean 0 and deviation 1 on what the reference
writes. Saved, it is a Hugging Face folder with its own tokenizer and a head beside it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.domains.language.batches import Layout, in_batches
from proxima.domains.language.hf import load_model, save_model
from proxima.domains.language.model import Part, merged_decoder, score_texts
from proxima.domains.language.part_files import load_part, save_part
from proxima.domains.language.samples import Rows
from proxima.domains.language.tokenizer import Ids, Tokenizer, load_tokenizer, unpadded
from proxima.nets.transformer import Decoder
from proxima.run.files import write_json
from proxima.train.together import gathered

SCORED_AT_ONCE = 64  # texts
LEAST_DEVIATION = 1e-6
HEAD, MEASURED = "reward_head.safetensors", "reward_model.json"


class RewardModel(NamedTuple):
    """Scores of texts with mean 0 and deviation 1 on what the reference writes."""

    base: Decoder
    part: Part
    mean: Array  # () of the head's numbers
    std: Array  # ()


_compiled_scores = eqx.filter_jit(score_texts)


def text_scores(
    base: Decoder, part: Part, texts: Sequence[Ids], layout: Layout = lambda rows: rows
) -> np.ndarray:
    """The head's number for each text as it is, (number,), float64."""
    context = base.config.context
    for row, ids in enumerate(texts):
        if len(ids) > context:
            raise ProximaError(
                f"texts[{row}]: has {len(ids)} tokens, more than the model's context of {context}; shorten it"
            )
    scored = np.zeros(len(texts))
    for chosen, rows in in_batches(texts, SCORED_AT_ONCE, context):
        of_rows = _compiled_scores(base, part, layout(rows))
        scored[chosen] = np.asarray(gathered(of_rows))[: len(chosen)]
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
