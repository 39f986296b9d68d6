"""Random search: every setting is drawn by itself, uniformly in its range."""

from collections.abc import Iterator, Sequence

from proxima.scenario.search import SearchConfig
from proxima.tune.draws import RANDOM_ROLE, admissible, stream
from proxima.tune.method import Check, Method, Ranges, Settings
from proxima.tune.methods.whole import WholeTrainings
from proxima.tune.space import settings_at


def make_random(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings] = ()
) -> Method:
    """`config.configs` random configurations."""
    settings = list(drawn) or random_settings(config, ranges, check)
    return WholeTrainings(config.evaluations, settings)


def random_settings(config: SearchConfig, ranges: Ranges, check: Check) -> list[Settings]:
    """`config.configs` configurations. The first ones are the same however many there are."""
    draws = _endless(config, ranges)
    return [admissible(draws, check) for _ in range(config.configs)]


def _endless(config: SearchConfig, ranges: Ranges) -> Iterator[Settings]:
    rng = stream(config, RANDOM_ROLE)
    while True:
        yield settings_at(ranges, rng.random(len(ranges)))
