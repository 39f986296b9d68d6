"""Experience: everything the update wants to know of completions, computed once; kept, and made readable.

Old log-probabilities are computed again here, by the forward pass that training differentiates and on
as many rows as a gradient sees at once: those that generation left behind come from other products,
and a ratio that starts at 1.001 is clipped by mistake. All are divided by the sampling temperature.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.language.model import REFERENCE, Part, joined, score_completions, values_before
from proxima.domains.language.reward_model import RewardModel, scores
from proxima.domains.language.samples import Experience, Rows, Samples
from proxima.domains.language.tokenizer import Tokenizer, unpadded
from proxima.nets.transformer import Decoder


class Scoring(NamedTuple):
    """What policy, reference, critic and reward model say of samples; (B, N) and 0 on pads."""

    log_probs: Array
    entropies: Array
    reference_log_probs: Array
    values: Array  # 0 without a critic
    scores: Array | None  # (B,) None where the reward is no model that reads these ids


class Kind(NamedTuple):
    """How rewards become advantages: the values of the settings that are no numbers."""

    advantage: str
    group_size: int
    whiten: bool
    normalized: bool  # scores, by their running moments


def scored(
    base: Decoder,
    policy: Part,
    critic: Part | None,
    model: RewardModel | None,
    samples: Samples,
    temperature: Array | float,
    at_once: int,
) -> Scoring:
    """All opinions of the samples, `at_once` rows at a time, which divides them."""

    def some(rows: Samples) -> Scoring:
        prompts, completions = rows.prompts, rows.completions
        now = score_completions(base, policy, prompts, completions, temperature)
        reference = score_completions(base, REFERENCE, prompts, completions, temperature)
        values = jnp.zeros_like(now.log_probs)
        if critic is not None:
            values = values_before(base, critic, prompts, completions)
        opinion = None if model is None else scores(model, joined(prompts, completions))
        return Scoring(now.log_probs, now.entropies, reference.log_probs, values, opinion)

    rows = samples.ended.shape[0]
    if rows == at_once:
        return some(samples)
    parts = divided(jax.tree.map(jnp.asarray, samples), rows // at_once)
    return jax.tree.map(lambda leaf: leaf.reshape(rows, *leaf.shape[2:]), jax.lax.map(some, parts))


_compiled_values = jax.jit(values_before)


@final
@dataclass(frozen=True)
class ValueAdder:
    """The values of a critic over one base; 0 where there is no critic."""

    base: Decoder

    def add_values(self, part: Part | None, samples: Samples) -> Array:
        """V before each token of the completions, (B, N), 0 on pads."""
        if part is None:
            return jnp.zeros(samples.completions.ids.shape)
        return _compiled_values(self.base, part, samples.prompts, samples.completions)


def divided(tree: PyTree, parts: int) -> PyTree:
    """Every leaf (rows, ...) as (parts, rows of each, ...)."""
    return jax.tree.map(lambda leaf: leaf.reshape(parts, -1, *leaf.shape[1:]), tree)


def shuffled(experience: Experience, key: Array, minibatches: int) -> Experience:
    """The rows in a fresh order, divided: every leaf (minibatches, rows of each, ...)."""
    order = jax.random.permutation(key, experience.scores.shape[0])
    return divided(jax.tree.map(lambda leaf: leaf[order], experience), minibatches)


@final
class ExperienceBuffer:
    """Experience of the last rollouts, at most `capacity` completions; the oldest go first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: list[Experience] = []

    def __len__(self) -> int:
        return sum(len(rollout.scores) for rollout in self._held)

    def store(self, experience: Experience) -> None:
        """Takes a rollout in; whole rollouts leave, and of a larger one only its last rows stay."""
        self._held.append(jax.tree.map(lambda leaf: leaf[-self.capacity :], experience))
        while len(self) > self.capacity:
            del self._held[0]

    def clear(self) -> None:
        """Forgets everything: PPO learns from each rollout once."""
        self._held.clear()

    def minibatches(self, key: Array, count: int) -> Iterator[Experience]:
        """All that is held, each row once, in `count` minibatches of one size."""
        if not self._held or len(self) % count:
            raise ProximaError(
                f"{len(self)} completions do not make {count} minibatches of one size; store more, or ask "
                "for another number"
            )
        minibatches = shuffled(joined_rollouts(self._held), key, count)
        for index in range(count):
            yield jax.tree.map(lambda leaf, index=index: leaf[index], minibatches)


def joined_rollouts(rollouts: list[Experience]) -> Experience:
    """Rollouts below each other; prompts get pads on the left and tokens on the right to equal widths."""
    before = max(rollout.prompts.ids.shape[1] for rollout in rollouts)
    after = max(rollout.completions.ids.shape[1] for rollout in rollouts)

    def widened(rollout: Experience) -> Experience:
        left = before - rollout.prompts.ids.shape[1]
        right = after - rollout.completions.ids.shape[1]
        prompts = Rows(*(jnp.pad(leaf, ((0, 0), (left, 0))) for leaf in rollout.prompts))
        rest = jax.tree.map(
            lambda leaf: jnp.pad(leaf, ((0, 0), (0, right))) if leaf.ndim == 2 else leaf, rollout
        )
        return rest._replace(prompts=prompts)

    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *map(widened, rollouts))


class Pair(NamedTuple):
    """One token of a completion: what came before, what was said, and what that was worth."""

    row: int  # of the batch
    state: str  # prompt and completion so far
    action: str
    logprob_policy: float
    logprob_ref: float
    kl: float  # log π − log π_ref
    value: float
    reward: float
    advantage: float


@final
@dataclass(frozen=True)
class TokenAttributor:
    """Rows with text from experience, which holds ids."""

    tokenizer: Tokenizer

    def extract_pairs(self, experience: Experience) -> list[Pair]:
        """One row per valid token, in reading order."""
        read = partial(np.asarray, dtype=np.float64)
        now, reference = read(experience.log_probs), read(experience.reference_log_probs)
        worth = map(read, (experience.values, experience.rewards, experience.advantages))
        columns = (now, reference, now - reference, *worth)
        texts = zip(unpadded(experience.prompts), unpadded(experience.completions), strict=True)
        pairs = []
        for row, (prompt, completion) in enumerate(texts):
            for index, action in enumerate(self.tokenizer.tokens(completion)):
                state = self.tokenizer.decode([*prompt, *completion[:index]])
                figures = (float(column[row, index]) for column in columns)
                pairs.append(Pair(row, state, action, *figures))
        return pairs
