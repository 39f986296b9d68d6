"""Which random stream a method draws from, and draws that contradict nothing."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from proxima.core.errors import ProximaError
from proxima.scenario.search import SearchConfig
from proxima.tune.method import Check, Settings

RANDOM_ROLE, SOBOL_ROLE, TPE_ROLE, CMA_ES_ROLE, PBT_ROLE = range(5)
TRIES = 1_000  # draws for one configuration


def stream(config: SearchConfig, role: int, generation: int = 0) -> np.random.Generator:
    """Random numbers that depend on the search's seed, on who draws and on its generation alone."""
    return np.random.default_rng((config.seed, role, generation))


def library_seed(config: SearchConfig, role: int, generation: int = 0) -> int:
    """A seed of 32 bits, for a library that has random numbers of its own."""
    return int(stream(config, role, generation).integers(2**32))


def admissible(draws: Iterator[Settings], check: Check) -> Settings:
    """The first of `draws` in which nothing contradicts."""
    problem: str | None = None
    for settings in islice(draws, TRIES):
        problem = check(settings)
        if problem is None:
            return settings
    raise ProximaError(
        f"search.space: of {TRIES:,} configurations in a row none is possible, the last because: "
        f"{problem}; narrow the ranges to what goes together"
    )
