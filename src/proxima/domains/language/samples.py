"""What travels between the components: token ids and masks, (B, T), never strings; text is a view.

Masks come from lengths, never from ids: a pad may be any id, EOS too, and is told by its mask alone.
"""

from typing import NamedTuple

from jax import Array


class Rows(NamedTuple):
    """Texts side by side: ids (B, T) int32 and which of them are tokens (B, T) bool."""

    ids: Array  # of JAX or NumPy
    mask: Array


class Samples(NamedTuple):
    """Prompts and what was generated after them; P and N are the widths of a bucket."""

    prompts: Rows  # (B, P), padded on the left
    completions: Rows  # (B, N), padded on the right; a generated EOS is the last valid token
    log_probs: Array  # (B, N) of the tokens when drawn, at the sampling temperature; 0 on pads
    ended: Array  # (B,) bool: by an EOS; False: cut at the limit


class Experience(NamedTuple):
    """A rollout ready to learn from; everything (B, N) is 0 where completions.mask is False."""

    prompts: Rows  # (B, P)
    completions: Rows  # (B, N)
    log_probs: Array  # (B, N) old policy, recomputed by the training forward
    reference_log_probs: Array  # (B, N)
    rewards: Array  # (B, N) score on the last valid token, −β·KL on each
    values: Array  # (B, N) V before each token; 0 without a critic
    advantages: Array  # (B, N)
    returns: Array  # (B, N)
    scores: Array  # (B,) the reward of the whole, before the KL's price
