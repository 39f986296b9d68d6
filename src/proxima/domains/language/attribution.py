"""Readable rows of state and action: a view of experience for people and export; nothing learns from it."""

from collections.abc import Iterator
from typing import NamedTuple, final

import numpy as np

from proxima.domains.language.samples import Experience
from proxima.domains.language.tokenizer import Tokenizer, unpadded


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
class TokenAttributor:
    """Rows with text from experience, which holds ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def extract_pairs(self, experience: Experience) -> list[Pair]:
        """One row per valid token, in reading order."""
        columns = Experience(*(_on_host(leaf) for leaf in experience))
        prompts, completions = unpadded(experience.prompts), unpadded(experience.completions)
        return [
            pair
            for row, (prompt, said) in enumerate(zip(prompts, completions, strict=True))
            for pair in self._pairs(columns, row, prompt, said)
        ]

    def _pairs(
        self, columns: Experience, row: int, prompt: list[int], said: list[int]
    ) -> Iterator[Pair]:
        for place, action in enumerate(self.tokenizer.tokens(said)):
            now = float(columns.log_probs[row, place])
            reference = float(columns.reference_log_probs[row, place])
            yield Pair(
                row=row,
                state=self.tokenizer.decode([*prompt, *said[:place]]),
                action=action,
                logprob_policy=now,
                logprob_ref=reference,
                kl=now - reference,
                value=float(columns.values[row, place]),
                reward=float(columns.rewards[row, place]),
                advantage=float(columns.advantages[row, place]),
            )


def _on_host(leaf):
    return leaf if isinstance(leaf, tuple) else np.asarray(leaf)
