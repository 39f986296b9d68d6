"""Readable rows of state and action: a view of experience for people and export; nothing learns from it."""

from dataclasses import dataclass
from typing import NamedTuple, final

import jax
import numpy as np

from proxima.domains.language.samples import Experience
from proxima.domains.language.tokenizer import Ids, Tokenizer, unpadded


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
        columns = jax.tree.map(np.asarray, experience)
        rows = zip(unpadded(columns.prompts), unpadded(columns.completions), strict=True)
        return [
            self._pair(columns, row, prompt, completion, index, action)
            for row, (prompt, completion) in enumerate(rows)
            for index, action in enumerate(self.tokenizer.tokens(completion))
        ]

    def _pair(
        self, columns: Experience, row: int, prompt: Ids, completion: Ids, index: int, action: str
    ) -> Pair:
        now = float(columns.log_probs[row, index])
        reference = float(columns.reference_log_probs[row, index])
        return Pair(
            row=row,
            state=self.tokenizer.decode([*prompt, *completion[:index]]),
            action=action,
            logprob_policy=now,
            logprob_ref=reference,
            kl=now - reference,
            value=float(columns.values[row, index]),
            reward=float(columns.rewards[row, index]),
            advantage=float(columns.advantages[row, index]),
        )
