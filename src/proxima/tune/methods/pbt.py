"""Population-based training (Jaderberg et al. 2017, arXiv 1711.09846), with truncation selection.

all members train side by side; after each evaluation:
    exploit   each of the worst few goes on as a copy of one of the best few, drawn at random
    explore   the copy's settings are perturbed, some of them drawn anew
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from proxima.scenario.search import SearchConfig
from proxima.tune.draws import PBT_ROLE, TRIES, stream
from proxima.tune.method import Check, Ranges, Settings
from proxima.tune.methods.random import random_settings
from proxima.tune.space import perturbed, value_at

DRAWN_ANEW = 0.25  # of the settings of a copy; Ray Tune's resample_probability


def first_population(config: SearchConfig, ranges: Ranges, check: Check) -> list[Settings]:
    """The members' first settings: those of random search."""
    return random_settings(config, ranges, check)


def evolve(
    config: SearchConfig,
    ranges: Ranges,
    check: Check,
    generation: int,
    values: Sequence[float],
    settings: Sequence[Settings],
) -> tuple[list[int], list[Settings]]:
    """For each member whose copy it goes on as, itself where it stays, and its settings from now on.

    `values` are the members' in this generation: higher is better, -inf means broken.
    """
    rng = stream(config, PBT_ROLE, generation)
    best, worst = _best_and_worst(config.replaced, values)
    sources, following = list(range(len(settings))), list(settings)
    if not best:  # all are broken
        return sources, following
    for member in worst:
        source = best[rng.integers(len(best))]
        sources[member] = source
        following[member] = _explored(config, ranges, check, settings[source], rng)
    return sources, following


def _best_and_worst(share: float, values: Sequence[float]) -> tuple[list[int], list[int]]:
    """The best and the worst members, as many of each; among the best nobody who is broken."""
    members = len(values)
    ranking = sorted(range(members), key=lambda member: (-values[member], member))
    wished = int(share * members + 1e-9)  # 0.29 · 100 is a little less than 29
    count = min(max(wished, 1), members // 2)
    best = [member for member in ranking[:count] if values[member] > -math.inf]
    return best, sorted(ranking[members - count :])


def _explored(
    config: SearchConfig,
    ranges: Ranges,
    check: Check,
    settings: Settings,
    rng: np.random.Generator,
) -> Settings:
    """Settings near these, or these where nothing near them is possible."""
    tries = itertools.islice(_nearby(ranges, settings, config.perturbation, rng), TRIES)
    return next((nearby for nearby in tries if check(nearby) is None), settings)


def _nearby(
    ranges: Ranges, settings: Settings, factor: float, rng: np.random.Generator
) -> Iterator[Settings]:
    while True:
        yield {
            path: value_at(span, rng.random())
            if rng.random() < DRAWN_ANEW
            else perturbed(span, settings[path], factor, rng)
            for path, span in ranges.items()
        }
