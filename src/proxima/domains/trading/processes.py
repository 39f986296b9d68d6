"""Synthetic prices as their makers know them: what the next return may be, given the prices so far.

All that the past says about the next return is one number, the state, and the next return says what it
will be then. Both are on a grid: a state has a few possible returns, with their probabilities.

    mean_reversion     the log price's distance from its base
    upward_drift       the log price's distance from its line; the next one has nothing to do with it
    trending           the drift, as a Kalman filter knows it
    regime_switching   the probability of the rising regime, by Hamilton's filter
    gbm, random_walk   nothing: every return is like every other

Not here: sine_wave (its future is known), bootstrap (its source is not known), and garch, jump_diffusion and
heston, whose hidden variance would be a second number.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.market import Market

Params = Mapping[str, Any]

# Martingales: whatever is held, its expected log growth is not above 0.
MARTINGALES = ("random_walk", "garch", "jump_diffusion")
# A standard normal variable at even steps: values have kinks where decisions change, over which a rule of
# few nodes, as Gauss's, would step.
NODES = np.linspace(-4.8, 4.8, 25)
CHANCES = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
DEVIATIONS = 6.0  # of the state to each side, that the grid reaches
FEWEST_STATES, MOST_STATES = 61, 601
LARGEST_EVIDENCE = 700.0  # of one bar; exp of more would overflow


class Process(NamedTuple):
    """The states s, and the k returns that may follow each."""

    state: Floats  # (s,) ascending
    log_return: Floats  # (s, k)
    chance: Floats  # (s, k)
    following: Floats  # (s, k) the state after the return


class Known(NamedTuple):
    """A pattern's process, and its state at each close of a market that begins at a row of the file."""

    process: Callable[[Params], Process | None]  # None where the grid would not be fine enough
    states: Callable[[Params, Market, int], Floats]


def is_martingale(pattern: str | None, params: Params) -> bool:
    """Whether the next price is on average the last one, whatever happened before."""
    return pattern in MARTINGALES or (pattern == "heston" and params["drift"] == 0)


def mean_reversion(params: Params) -> Process | None:
    """x' = (1 − a)x + σz, and the return is x' − x."""
    persistence, shock = 1 - params["reversion"], params["volatility"]
    return _autoregression(persistence, shock, lambda x, following, z: following - x)


def distance(params: Params, market: Market, first_row: int) -> Floats:
    """The log price over its base."""
    return np.log(market.close / params["base"])


def upward_drift(params: Params) -> Process | None:
    """y = ln(1 + noise·z) is new at every bar, and the return is µ + y' − y."""
    noise = params["noise"]
    if noise == 0:
        return None
    reach = np.linspace(-DEVIATIONS, DEVIATIONS, FEWEST_STATES)
    state = np.log1p(noise * reach[1 + noise * reach > 0])
    possible = 1 + noise * NODES > 0  # where it was below 0 there was no price, and no file
    chance = CHANCES[possible] / CHANCES[possible].sum()
    shape = (len(state), len(chance))
    following = np.broadcast_to(np.log1p(noise * NODES[possible]), shape)
    log_return = params["drift"] + following - state[:, None]
    return Process(state, log_return, np.broadcast_to(chance, shape), following)


def height(params: Params, market: Market, first_row: int) -> Floats:
    """The log price over the line that it scatters about."""
    rows = first_row + np.arange(len(market.close))
    return np.log(market.close / params["base"]) - params["drift"] * rows


def trending(params: Params) -> Process | None:
    """The drift's expectation m: the return is m + √S z, and m' = φ(m + K√S z) with a Kalman gain K."""
    persistence, noise = params["persistence"], params["volatility"] ** 2
    variance = params["drift_volatility"] ** 2
    for _ in range(10_000):  # to where it no longer changes
        gain, following = _updated(variance, params)
        if following == variance:
            break
        variance = following
    deviation = math.sqrt(variance + noise)
    shock = persistence * gain * deviation
    return _autoregression(persistence, shock, lambda m, following, z: m + deviation * z)


def filtered_drift(params: Params, market: Market, first_row: int) -> Floats:
    """Kalman filter of a drift µ' = φµ + noise that is seen through returns r = µ + σz."""
    persistence = params["persistence"]
    mean, variance = 0.0, params["drift_volatility"] ** 2  # before the bar's return is known
    means = []
    for seen in _log_returns(market).tolist():
        gain, variance = _updated(variance, params)
        mean = persistence * (mean + gain * (seen - mean))
        means.append(mean)
    return np.array(means)


def _updated(variance: float, params: Params) -> tuple[float, float]:
    """The gain with which a return is looked at, and the variance of the next drift after it."""
    persistence, stationary = params["persistence"], params["drift_volatility"] ** 2
    gain = variance / (variance + params["volatility"] ** 2) if variance > 0 else 0.0
    shock = stationary * (1 - persistence**2)
    return gain, persistence**2 * (1 - gain) * variance + shock


def regime_switching(params: Params) -> Process | None:
    """With probability p the drift is +m, else −m; what the return says of it, Hamilton's filter knows."""
    stay, drift, deviation = params["stay"], params["drift"], params["volatility"]
    if drift == 0 and deviation == 0:
        return None
    state = np.linspace(min(stay, 1 - stay), max(stay, 1 - stay), 2 * FEWEST_STATES - 1)
    state = state if stay != 0.5 else np.array([0.5, 1.0])
    either = np.concatenate([drift + deviation * NODES, deviation * NODES - drift])
    log_return = np.broadcast_to(either, (len(state), len(either)))
    rising = state[:, None]
    chance = np.concatenate([rising * CHANCES, (1 - rising) * CHANCES], axis=1)
    evidence = _evidence(either, params)
    believed = rising / (rising + (1 - rising) * np.exp(-evidence))
    return Process(state, log_return, chance, stay * believed + (1 - stay) * (1 - believed))


def rising_probability(params: Params, market: Market, first_row: int) -> Floats:
    """Hamilton's filter of the probability that the next bar's drift is +m and not −m."""
    stay, rising, probabilities = params["stay"], 0.5, []
    for evidence in _evidence(_log_returns(market), params).tolist():
        rising = rising / (rising + (1 - rising) * math.exp(-evidence))
        rising = stay * rising + (1 - stay) * (1 - rising)
        probabilities.append(rising)
    return np.array(probabilities)


def _evidence(seen: Floats, params: Params) -> Floats:
    """Log of the ratio of two likelihoods: exp(−(r − m)²/2σ²) over exp(−(r + m)²/2σ²)."""
    noise = params["volatility"] ** 2
    evidence = 2 * seen * params["drift"] / noise if noise > 0 else np.copysign(np.inf, seen)
    return np.clip(evidence, -LARGEST_EVIDENCE, LARGEST_EVIDENCE)


def gbm(params: Params) -> Process | None:
    """Returns of mean (µ − σ²/2)dt and variance σ²dt."""
    step, volatility = 1 / params["periods_per_year"], params["volatility"]
    mean = (params["drift"] - volatility**2 / 2) * step
    return _always(mean, volatility * math.sqrt(step))


def random_walk(params: Params) -> Process | None:
    """Returns of mean −σ²/2 and variance σ²."""
    return _always(-(params["volatility"] ** 2) / 2, params["volatility"])


def nothing(params: Params, market: Market, first_row: int) -> Floats:
    """The only state of a process without memory."""
    return np.zeros(len(market.close))


KNOWN: dict[str | None, Known] = {
    "mean_reversion": Known(mean_reversion, distance),
    "upward_drift": Known(upward_drift, height),
    "trending": Known(trending, filtered_drift),
    "regime_switching": Known(regime_switching, rising_probability),
    "gbm": Known(gbm, nothing),
    "random_walk": Known(random_walk, nothing),
}


def _always(mean: float, deviation: float) -> Process | None:
    if deviation == 0:
        return None
    shape = (2, len(NODES))  # a grid has two points; the second is never reached
    log_return = np.broadcast_to(mean + deviation * NODES, shape)
    return Process(np.arange(2.0), log_return, np.broadcast_to(CHANCES, shape), np.zeros(shape))


def _autoregression(
    persistence: float, shock: float, log_return: Callable[[Floats, Floats, Floats], Floats]
) -> Process | None:
    """A state x' = φx + shock·z; the return follows from x, x' and z. None where a grid is too coarse."""
    spread = abs(shock) / math.sqrt(1 - persistence**2)
    state = np.arange(2.0)
    if spread > 0:
        # Two points for each deviation of a step, or what happens within a step is not seen.
        count = max(FEWEST_STATES, math.ceil(4 * DEVIATIONS * spread / abs(shock)))
        if count > MOST_STATES:
            return None
        state = np.linspace(-DEVIATIONS * spread, DEVIATIONS * spread, count)
    now = state[:, None]
    following = persistence * now + shock * NODES
    moves = log_return(now, following, NODES)
    if not np.ptp(moves, axis=1).all():
        return None  # nothing is uncertain: the future is known
    return Process(state, moves, np.broadcast_to(CHANCES, moves.shape), following)


def _log_returns(market: Market) -> Floats:
    # A synthetic bar opens where the last one closed, so the first bar has a return as well.
    return np.diff(np.log(market.close), prepend=np.log(market.open[0]))
