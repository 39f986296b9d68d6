"""The models, batches and settings that TRL, torch and ours are given; standard library only.

Nobody may stop early: there is no EOS to draw, so every completion has all its tokens and both sides
do the same work. Prompts are random and of equal length, so there is no padding either.
"""

import argparse
import random
from pathlib import Path
from typing import NamedTuple

import protocol

SMOLLM2 = Path(__file__).resolve().parent.parent / ".peers" / "smollm2"  # a Hugging Face folder
PARTS = ("generation", "ppo", "smollm2_generation", "smollm2_lora")
EPOCHS, MINIBATCHES = 2, 2
LEARNING_RATE, ADAM_EPS, CLIP, VALUE_CLIP, VALUE_COEFFICIENT = 3e-4, 1e-5, 0.2, 0.2, 0.1
GAMMA, LAMBDA, KL_COEFFICIENT, TEMPERATURE = 1.0, 0.95, 0.2, 1.0
LORA_RANK, LORA_ALPHA = 16, 32
THREADS = 2


class Small(NamedTuple):
    """A Llama of 627,360 parameters, head and embedding tied."""

    vocabulary: int = 3072
    layers: int = 3
    width: int = 96
    heads: int = 4
    inner: int = 256
    context: int = 40


class Batch(NamedTuple):
    """Rows side by side: a prompt's tokens, and those generated after it or learnt from."""

    rows: int
    prompt: int
    new: int


SMALL = Batch(rows=64, prompt=5, new=20)
SMOLLM2_GENERATION = Batch(rows=16, prompt=16, new=64)
SMOLLM2_LORA = Batch(rows=8, prompt=0, new=64)
SMOLLM2_PPO = Batch(rows=16, prompt=16, new=32)  # whose memory is measured


def token_rows(rows: int, tokens: int, vocabulary: int, seed: int = 0) -> list[list[int]]:
    """Random tokens, the same for everyone; the first ids are left out, they are often special."""
    draw = random.Random(seed)
    return [[draw.randrange(16, vocabulary) for _ in range(tokens)] for _ in range(rows)]


def arguments(description: str, parts: tuple[str, ...]) -> argparse.ArgumentParser:
    """A parser for what every program of the language lines is told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--updates", type=protocol.positive, default=3, help="per timed run")
    parser.add_argument("--rows", type=protocol.positive, help="instead of the line's batch size")
    parser.add_argument("--repeat", type=protocol.positive, default=3, help="runs without --serve")
    parser.add_argument("--serve", action="store_true", help="obey lines on standard input")
    return parser


def answer(done: int, seconds: float, *values: float) -> dict[str, float | list[float]]:
    """The answer to a timed run: tokens, iterations or updates by their time.

    `values` say how much work that was; the driver compares speeds only where they are equal.
    """
    return {"steps_per_second": done / seconds, "seconds": seconds, "values": list(values)}
