"""A file of rated texts, settings that make a language run on it tiny, and functions that judge texts."""

import math
from pathlib import Path

import numpy as np
import polars as pl
from tiny import LANGUAGE

GOOD, BAD = ("great", "lovely", "fine", "warm"), ("dull", "awful", "bad", "cold")
NAMES = ("film", "story", "acting", "music", "ending", "cast")
TINY = LANGUAGE | {
    "data.source": "file",
    "data.path": "texts.parquet",
    "data.prompt_tokens": 3,
    "data.held_out": 0.25,
    "sft.batch_size": 16,
    "sft.evaluate_every": 4,
    "evaluation.judge": "texts.judge",
    "checkpoint.frequency": 1,
}


def judge(texts):
    """Good words less bad ones."""
    return [sum(w in GOOD for w in t.split()) - sum(w in BAD for w in t.split()) for t in texts]


def write_texts(directory: Path) -> None:
    rng = np.random.default_rng(0)
    texts, ratings = [], []
    for _ in range(96):
        good = rng.random() < 0.5
        words = rng.choice(GOOD if good else BAD, 2)
        texts.append(f"the {rng.choice(NAMES)} was {words[0]} and {words[1]} .")
        ratings.append(3.0 + rng.random() if good else -3.0 - rng.random())
    pl.DataFrame({"text": texts, "rating": ratings}).write_parquet(directory / "texts.parquet")


def good_words(prompts, completions):
    return judge(completions)


def broken(prompts, completions):
    return [float("nan")] * len(completions)


def lengths(texts):
    return [len(text) for text in texts]


def short(texts):
    return [1.0]


def not_numbers(texts):
    return [math.nan for _ in texts]


def raises(texts):
    raise KeyError("gone")
