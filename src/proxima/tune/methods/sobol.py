"""Scrambled Sobol points: as random as random search, but spread evenly (Owen 1998)."""

import itertools
from collections.abc import Iterator, Sequence

from proxima.scenario.search import SearchConfig
from proxima.tune.draws import SOBOL_ROLE, admissible, library_seed
from proxima.tune.method import Check, Method, Ranges, Settings
from proxima.tune.methods.whole import WholeTrainings
from proxima.tune.space import settings_at


def make_sobol(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings] = ()
) -> Method:
    """`config.configs` points of the sequence, without what contradicts."""
    settings = list(drawn) or sobol_settings(config, ranges, check)
    return WholeTrainings(config.evaluations, settings)


def sobol_settings(config: SearchConfig, ranges: Ranges, check: Check) -> list[Settings]:
    """`config.configs` configurations. The first ones are the same however many there are."""
    seed = library_seed(config, SOBOL_ROLE)
    draws = (settings_at(ranges, point) for point in sobol_points(len(ranges), seed))
    return [admissible(draws, check) for _ in range(config.configs)]


def sobol_points(dimensions: int, seed: int) -> Iterator[list[float]]:
    """The points of one scrambled sequence, without end."""
    from scipy.stats.qmc import Sobol  # takes two seconds to import

    sequence = Sobol(dimensions, rng=seed)
    yield from sequence.random_base2(0).tolist()
    for exponent in itertools.count():  # each block doubles what was drawn, as the library asks
        yield from sequence.random_base2(exponent).tolist()
