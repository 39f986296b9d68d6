"""A programmatic reward: how many different positive words a completion has, less the negative ones.

    reward.function: proxima.domains.language.positive.positive_words

The lists are short and our own, so that the lexicon of the judge (`judge.py`) stays an independent measure.
A word counts once, so that repeating it earns nothing.
"""

import math
from collections.abc import Sequence

MARKS = ".,!?;:()[]{}\"'`*-–—…"
ENOUGH = 2.0  # words for about three quarters of the full reward

POSITIVE_LIST = """
admire amazing beautiful best better bright brilliant calm celebrate charming cheerful comfort
confident delicious delight delighted delightful eager easy elegant encouraging enjoy enjoyed
enjoying excellent excited exciting fantastic favorite fine fortunate fresh friend friendly
friends fun funny gentle gift glad good grateful great happily happiness happy healthy helpful
hope hopeful impressive inspired inspiring joy joyful kind laugh laughed lively love loved
lovely loves loving lucky magical memorable nice optimistic peaceful perfect playful pleasant
pleased pleasure proud relaxed rewarding safe satisfied smile smiled smiling splendid strong
succeed success successful sunny superb sweet thank thankful thrilled warm welcome welcoming win
wise wonderful worth
"""
NEGATIVE_LIST = """
afraid alone anger angry annoying anxious ashamed awful bad bitter bored boring broken cold
cried cruel cry danger dangerous dark dead death depressed desperate die died difficult dirty
disappointed disappointing disaster disgusting dreadful dull empty evil fail failed failure fear
fight frightened frustrated gloomy grief guilty hate hated hates horrible hopeless hurt ill
jealous lonely lose losing loss lost mad mean messy miserable mistake nervous painful pain poor
problem problems regret rude sad sadly sadness scared scary shame sick sorrow stupid suffer
suffered suffering terrible terrifying tired tragedy tragic trouble ugly unfortunate unhappy
upset weak worried worry worse worst wrong
"""
POSITIVE, NEGATIVE = frozenset(POSITIVE_LIST.split()), frozenset(NEGATIVE_LIST.split())


def positive_words(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """One number in (−1, 1) per completion; 0 where it has neither kind of word."""
    return [_score(text) for text in completions]


def _score(text: str) -> float:
    words = {word.strip(MARKS) for word in text.lower().split()}
    return math.tanh((len(words & POSITIVE) - len(words & NEGATIVE)) / ENOUGH)
