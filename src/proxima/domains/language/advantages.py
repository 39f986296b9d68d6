"""Advantages of tokens: the shared GAE with a critic, or a baseline from the prompt's other completions.

    gae            A = Σ (γλ)^i δ_{t+i},  δ_t = r_t + γ V_{t+1} − V_t;   returns = A + V, before whitening
    group          A = (R − mean of the group) / deviation of the group, on every token
    leave_one_out  A = R − mean of the group's others, on every token

The second is GRPO's (arXiv 2402.03300), the third RLOO's (arXiv 2402.14740); both do without a
critic. R is a completion's whole reward, the price of KL taken. Whitening, last, is over all valid tokens
of the batch: over a row or a minibatch it would make unequal things equal.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.parallel import standardize
from proxima.core.returns import gae
from proxima.domains.language.rewards import last_tokens

EPS = 1e-4  # added to a group's deviation (TRL's GRPO): completions that are all worth the same teach nothing


class Advantages(NamedTuple):
    """How much better each token was than expected, and what the critic should have said; (B, N)."""

    advantages: Array
    returns: Array


def advantages_of(
    rewards: Array,
    values: Array,
    mask: Array,
    gamma: Array,
    lam: Array,
    kind: str = "gae",
    group_size: int = 1,
    whiten: bool = True,
) -> Advantages:
    """Advantages and returns of completions; rows of one group are neighbours."""
    if kind == "gae":
        # A completion cut at the limit is ended as well: its score is of the whole as it stands and nothing
        # follows, so there is no later value to count on. The penalty for a missing EOS speaks for the cut.
        ended = last_tokens(mask).T
        following = jnp.pad(values[:, 1:], ((0, 0), (0, 1)))
        estimates = gae(rewards.T, values.T, following.T, ended, jnp.zeros_like(ended), gamma, lam)
        raw = jnp.where(mask, estimates.T, 0.0)
        returns = jnp.where(mask, raw + values, 0.0)
    else:
        totals = jnp.sum(jnp.where(mask, rewards, 0.0), axis=1)
        compare = standing if kind == "group" else against_the_others
        better = compare(totals.reshape(-1, group_size)).ravel()
        raw = jnp.broadcast_to(better[:, None], mask.shape)
        returns = jnp.where(mask, jnp.broadcast_to(totals[:, None], mask.shape), 0.0)
    if whiten:
        raw = standardize(raw.ravel(), mask.ravel().astype(jnp.float32)).reshape(mask.shape)
    return Advantages(jnp.where(mask, raw, 0.0), returns)


def standing(totals: Array) -> Array:
    """Each total less its group's mean, over the group's deviation; groups in rows."""
    mean = jnp.mean(totals, axis=1, keepdims=True)
    deviation = jnp.std(totals, axis=1, keepdims=True, ddof=1)
    return (totals - mean) / (deviation + EPS)


def against_the_others(totals: Array) -> Array:
    """Each total less the mean of its group's others; groups in rows."""
    others = totals.shape[1] - 1
    return totals - (jnp.sum(totals, axis=1, keepdims=True) - totals) / others


_compiled = partial(jax.jit, static_argnames=("kind", "group_size", "whiten"))(advantages_of)


@final
@dataclass(frozen=True)
class AdvantageComp:
    """Advantages by one of the three kinds, with its numbers."""

    gamma: float = 1.0
    lam: float = 0.95
    kind: str = "gae"
    group_size: int = 1
    whiten: bool = True

    def compute_advantages(self, rewards: Array, values: Array, mask: Array) -> Advantages:
        """Advantages and returns, (B, N); `mask` says which tokens are valid."""
        numbers = jnp.float32(self.gamma), jnp.float32(self.lam)
        return _compiled(rewards, values, mask, *numbers, self.kind, self.group_size, self.whiten)
