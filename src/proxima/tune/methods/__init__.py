"""The methods that draw configurations, by name; population-based training is apart, in pbt.py."""

from collections.abc import Sequence

from proxima.core.errors import ProximaError
from proxima.scenario.search import SearchConfig
from proxima.tune.method import Check, Maker, Method, Ranges, Settings
from proxima.tune.methods.asha import make_asha
from proxima.tune.methods.grid import make_grid
from proxima.tune.methods.random import make_random
from proxima.tune.methods.sobol import make_sobol
from proxima.tune.methods.table import make_table


def make_tpe(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings]
) -> Method:
    """Optuna's TPE; a plain install is without Optuna."""
    from proxima.tune.methods import optuna

    return optuna.make_tpe(config, ranges, check, drawn)


def make_cma_es(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings]
) -> Method:
    """Optuna's CMA-ES; a plain install is without Optuna."""
    from proxima.tune.methods import optuna

    return optuna.make_cma_es(config, ranges, check, drawn)


METHODS: dict[str, Maker] = {
    "random": make_random,
    "grid": make_grid,
    "sobol": make_sobol,
    "table": make_table,
    "asha": make_asha,
    "tpe": make_tpe,
    "cma-es": make_cma_es,
}


def make_method(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings] = ()
) -> Method:
    """The method of a search; `drawn` are the settings that it had drawn before it was interrupted."""
    if not ranges and config.method != "table":
        raise ProximaError("search.space: is empty; name at least one setting and its range")
    return METHODS[config.method](config, ranges, check, drawn)
