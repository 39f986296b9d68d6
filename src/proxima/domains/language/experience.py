"""From samples to experience: everything the update wants to know of completions, computed once.

Old log-probabilities are computed again here, by the forward pass that training differentiates and on
as many rows as a gradient sees at once: those that generation left behind come from other products,
and a ratio that starts at 1.001 is clipped by mistake. All are divided by the sampling temperature.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.losses import sampled_kl
from proxima.core.normalize import Moments
from proxima.domains.language.advantages import advantages_of
from proxima.domains.language.model import (
    REFERENCE,
    Part,
    joined,
    score_completions,
    values_before,
)
from proxima.domains.language.reward_model import RewardModel, scores
from proxima.domains.language.rewards import Rewards, Shaping, rewards_of
from proxima.domains.language.samples import Experience, Samples
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
    parts = jax.tree.map(
        lambda leaf: jnp.asarray(leaf).reshape(-1, at_once, *leaf.shape[1:]), samples
    )
    found = jax.lax.map(some, parts)
    return jax.tree.map(lambda leaf: leaf.reshape(rows, *leaf.shape[2:]), found)


def experience_of(
    samples: Samples,
    scoring: Scoring,
    given: Array,
    beta: Array,
    moments: Moments,
    numbers: Shaping,
    gamma: Array,
    lam: Array,
    kind: Kind,
) -> tuple[Experience, Rewards]:
    """The samples with rewards, advantages and returns; `given` is what the reward said of them."""
    kl = sampled_kl(scoring.log_probs, scoring.reference_log_probs)
    rewards = rewards_of(given, samples, kl, beta, moments, numbers, kind.normalized)
    found = advantages_of(
        rewards.rewards,
        scoring.values,
        samples.completions.mask,
        gamma,
        lam,
        kind.advantage,
        kind.group_size,
        kind.whiten,
    )
    experience = Experience(
        prompts=samples.prompts,
        completions=samples.completions,
        log_probs=scoring.log_probs,
        reference_log_probs=scoring.reference_log_probs,
        rewards=rewards.rewards,
        values=scoring.values,
        advantages=found.advantages,
        returns=found.returns,
        scores=rewards.scores,
    )
    return experience, rewards
