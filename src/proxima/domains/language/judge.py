"""A judge of texts that no stage trains on: rewards that rise while it falls are a policy's trick.

    s = Σ over words of their valence in the lexicon, × −0.74 after a negation
    score = s / √(s² + 15)                                               in (−1, 1)

This is the sum, the negation and the normalisation of VADER (Hutto & Gilbert 2014) with its lexicon.
Left out on purpose: capitals, exclamation marks, "very" and "but", which reviews in one voice do not need.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from proxima.core.functions import function_at
from proxima.domains.language.data import read_lexicon
from proxima.domains.language.rewards import asked, check_takes, checked

Judge = Callable[[Sequence[str]], np.ndarray]

ALPHA = 15.0  # VADER's: about the largest sum expected
TURNED = -0.74  # VADER's N_SCALAR
REACH = 3  # words that a negation reaches
MARKS = ".,!?;:()[]{}\"'`*-–—…"
NEGATION_LIST = """
not no never none nobody nothing nowhere neither nor without cannot hardly barely rarely seldom lacks
lacking
"""
NEGATIONS = frozenset(NEGATION_LIST.split())


def judge(name: str | None, root: str | Path = ".") -> Judge | None:
    """The judge of that name: vader, a function's dotted path, or none."""
    if name is None:
        return None
    if name == "vader":
        lexicon = read_lexicon(root)
        return lambda texts: np.array([valence(text, lexicon) for text in texts], np.float64)
    function, where = function_at(name, "evaluation.judge"), f"evaluation.judge {name}"
    check_takes(function, where, "one list", [])
    return partial(_asked, function, where)


def valence(text: str, lexicon: Mapping[str, float]) -> float:
    """How positive a text's words are, in (−1, 1); 0 where the lexicon knows none of them."""
    pieces = text.lower().replace("’", "'").split()
    # smileys that the lexicon knows stay whole
    words = [piece if piece in lexicon else piece.strip(MARKS) for piece in pieces]
    negates = [word in NEGATIONS or word.endswith("n't") for word in words]
    total = 0.0
    for i, word in enumerate(words):
        turned = any(negates[max(0, i - REACH) : i])
        total += lexicon.get(word, 0.0) * (TURNED if turned else 1.0)
    return float(total / np.sqrt(total**2 + ALPHA))


def _asked(function: Callable, where: str, texts: Sequence[str]) -> np.ndarray:
    """What the user's function says of texts, one number each."""
    answer = asked(function, where, list(texts))
    return checked(where, answer, texts, "text", dtype=np.float64)
