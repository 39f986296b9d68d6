"""What any agent is compared with: buying and holding, following the last bar, chance, and the best rule.

The best rule is the best that can be done without looking ahead, where the process behind the prices is
known. A pattern's own settings, and prices up to bar t, give the mean and variance of the next log return;
the position that is best for them has the largest expected log growth, wµ − w²σ²/2 of a simple return's
mean µ. Trading costs are left out: with a fee, an agent that trades less may do better still.

    mean_reversion     the mean pulls back to the base: a share of the distance
    trending           a Kalman filter follows the hidden drift
    regime_switching   Hamilton's filter follows the probability of the rising regime
    upward_drift       always long
    gbm, heston        the same position for ever, Merton's µ/σ²
    random_walk, garch, jump_diffusion   no position: nothing to be earned
    sine_wave, bootstrap                 None: perfect foresight is their oracle
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import decisions
from proxima.domains.trading.market import Market

Params = Mapping[str, Any]

RANDOM_RUNS = 200
LARGEST_EVIDENCE = 700.0  # of one bar; exp of more would overflow


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


class Forecast(NamedTuple):
    """The next bar's log return, as known at each bar's close, (n,)."""

    mean: Floats
    variance: Floats


def model_optimal(
    pattern: str | None, params: Params, market: Market, config: TradingEnvConfig
) -> Floats | None:
    """The best targets (T,) for one who knows the process; None where there is no such answer."""
    if pattern in UNPREDICTABLE:
        best = nearest(np.zeros(len(market.close)), config)
    elif pattern == "upward_drift":
        best = np.full(len(market.close), max(config.positions))
    elif pattern in FORECASTS:
        best = best_position(FORECASTS[pattern](market, params), config)
    else:
        return None
    return best[decisions(market, config)]


def best_position(forecast: Forecast, config: TradingEnvConfig) -> Floats:
    """The allowed weight of largest expected log growth at no cost, for each forecast."""
    variance = np.maximum(forecast.variance, np.finfo(np.float64).tiny)
    mean = forecast.mean + variance / 2  # of the simple return
    if config.actions == "continuous":
        return nearest(mean / variance, config)
    # By how far from 0 they are, so that equals go to the smaller one.
    weights = np.asarray(sorted(config.positions, key=abs), np.float64)[:, None]
    return weights[:, 0][np.argmax(weights * mean - weights**2 * variance / 2, axis=0)]


def mean_reversion(market: Market, params: Params) -> Forecast:
    """The log price takes back a share of its distance from the base."""
    distance = np.log(market.close / params["base"])
    return Forecast(-params["reversion"] * distance, _constant(market, params["volatility"] ** 2))


def trending(market: Market, params: Params) -> Forecast:
    """Kalman filter of a drift µ' = φµ + noise that is seen through returns r = µ + σz."""
    persistence, noise = params["persistence"], params["volatility"] ** 2
    stationary = params["drift_volatility"] ** 2
    shock = stationary * (1 - persistence**2)
    mean, variance = 0.0, stationary  # of the drift, before the bar's return is known
    means, variances = [], []
    for seen in _log_returns(market).tolist():
        gain = variance / (variance + noise) if variance > 0 else 0.0
        mean = persistence * (mean + gain * (seen - mean))
        variance = persistence**2 * (1 - gain) * variance + shock
        means.append(mean)
        variances.append(variance + noise)
    return Forecast(np.array(means), np.array(variances))


def regime_switching(market: Market, params: Params) -> Forecast:
    """Hamilton's filter of the probability that the drift is +m and not −m."""
    stay, drift, noise = params["stay"], params["drift"], params["volatility"] ** 2
    rising = 0.5  # before the bar's return is known
    signs = []
    for seen in _log_returns(market).tolist():
        # log of the ratio of the two likelihoods: exp(−(r − m)²/2σ²) over exp(−(r + m)²/2σ²)
        evidence = 2 * seen * drift / noise if noise > 0 else math.copysign(math.inf, seen)
        evidence = min(max(evidence, -LARGEST_EVIDENCE), LARGEST_EVIDENCE)
        rising = rising / (rising + (1 - rising) * math.exp(-evidence))
        rising = stay * rising + (1 - stay) * (1 - rising)
        signs.append(2 * rising - 1)
    sign = np.array(signs)
    return Forecast(sign * drift, noise + drift**2 * (1 - sign**2))


def constant_drift(market: Market, params: Params) -> Forecast:
    """The same for every bar: (µ − σ²/2)dt and σ²dt; Heston's mean variance stands in for the hidden one."""
    variance = params["variance"] if "variance" in params else params["volatility"] ** 2
    step = 1 / params["periods_per_year"]
    mean = (params["drift"] - variance / 2) * step
    return Forecast(_constant(market, mean), _constant(market, variance * step))


UNPREDICTABLE = ("random_walk", "garch", "jump_diffusion")
FORECASTS: dict[str | None, Callable[[Market, Params], Forecast]] = {
    "mean_reversion": mean_reversion,
    "trending": trending,
    "regime_switching": regime_switching,
    "gbm": constant_drift,
    "heston": constant_drift,
}


def _log_returns(market: Market) -> Floats:
    # A synthetic bar opens where the last one closed, so the first bar has a return as well.
    return np.diff(np.log(market.close), prepend=np.log(market.open[0]))


def _constant(market: Market, value: float) -> Floats:
    return np.full(len(market.close), value)
