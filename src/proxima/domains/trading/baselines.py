"""What any agent is compared with: buying and holding, following the last bar, and chance."""

from collections.abc import Iterator

import numpy as np

from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.market import Market
from proxima.domains.trading.timing import decisions

RANDOM_RUNS = 200


def buy_and_hold(market: Market, config: TradingEnvConfig) -> Floats:
    """All in from the first decision to the last, (T,)."""
    return nearest(np.ones(len(market.close)), config)[decisions(market, config)]


def momentum(market: Market, config: TradingEnvConfig) -> Floats:
    """Long after a bar that closed higher than the one before, short after a lower one, (T,)."""
    steps = np.sign(np.diff(market.close, prepend=market.close[0]))
    return nearest(steps[decisions(market, config)], config)


def random_targets(
    market: Market, config: TradingEnvConfig, runs: int = RANDOM_RUNS, seed: int = 0
) -> Iterator[Floats]:
    """Uniformly random targets, (T,) for each run."""
    random = np.random.default_rng(seed)
    positions = np.asarray(config.positions, np.float64)
    bars = len(market.close[decisions(market, config)])
    for _ in range(runs):
        if config.actions == "discrete":
            yield positions[random.integers(len(positions), size=bars)]
        else:
            yield random.uniform(positions.min(), positions.max(), bars)


def nearest(weights: Floats, config: TradingEnvConfig) -> Floats:
    """The targets that the settings allow, as close to the wanted weights as there are."""
    if config.actions == "continuous":
        return np.clip(weights, min(config.positions), max(config.positions))
    positions = np.sort(np.asarray(config.positions, np.float64))
    between = (positions[1:] + positions[:-1]) / 2
    return positions[np.searchsorted(between, weights, side="right")]
