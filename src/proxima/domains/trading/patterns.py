"""The formulas of the synthetic prices: each pattern's closes, its settings and what they mean.

    closes(rows, params, random) -> (rows + 1,) float64: the close before the first bar, then every bar's

Returns are log returns. What has a hidden state (a drift, a regime) keeps it to itself: whoever wants
to know it has to infer it from the prices. Where the direction is meant to be unpredictable the price
is a martingale, E[P'|P] = P, hence the −σ²/2 in its log returns.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

Prices = NDArray[np.float64]
Params = Mapping[str, Any]
Closes = Callable[[int, Params, np.random.Generator], Prices]


class Param(NamedTuple):
    """A setting of a pattern."""

    default: float | int | str
    meaning: str
    limits: Interval = Interval()


class Pattern(NamedTuple):
    """A way to make prices."""

    description: str
    params: Mapping[str, Param]
    closes: Closes


POSITIVE, SHARE = Interval(gt=0), Interval(ge=0, lt=1)
AT_LEAST_0 = Interval(ge=0)
_VOLATILITY = Param(0.01, "Standard deviation of the noise in a bar's log return.", AT_LEAST_0)
_YEAR = Param(252, "Bars in a year.", POSITIVE)
PATTERNS: dict[str, Pattern] = {}


def pattern(description: str, base: float = 100.0, **params: Param) -> Callable[[Closes], Closes]:
    """Registers a pattern under its function's name, with its settings; every pattern has a base."""
    relative = Param(base, "Price that everything is relative to.", POSITIVE)

    def register(closes: Closes) -> Closes:
        PATTERNS[closes.__name__] = Pattern(description, {"base": relative, **params}, closes)
        return closes

    return register


def describe_patterns() -> list[dict[str, Any]]:
    """Every pattern in plain data: name, description, and each setting's name, default and meaning."""
    return [
        {
            "pattern": name,
            "description": pattern.description,
            "params": [
                {"name": key, "default": param.default, "meaning": param.meaning}
                for key, param in pattern.params.items()
            ],
        }
        for name, pattern in PATTERNS.items()
    ]


@pattern(
    "A sine about a straight line.",
    base=50_000.0,
    amplitude=Param(8_000.0, "How far the price swings to each side.", AT_LEAST_0),
    period=Param(100.0, "Bars of a full swing.", POSITIVE),
    slope=Param(0.0, "What the price gains a bar besides."),
    phase=Param(0.0, "Where in its swing the sine is at bar 0, in radians."),
    mean_close=Param(1, "Bars whose mean is the close.", Interval(ge=1)),
)
def sine_wave(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """close_t = mean over the last `mean_close` bars of B + A sin(2πt/T + phase) + slope·t."""
    smooth = params["mean_close"]
    t = np.arange(-smooth, rows, dtype=np.float64)  # the close before bar 0 needs its own past
    angle = 2 * np.pi * t / params["period"] + params["phase"]
    price = params["base"] + params["amplitude"] * np.sin(angle) + params["slope"] * t
    return np.lib.stride_tricks.sliding_window_view(price, smooth).mean(axis=1)


@pattern(
    "Exponential growth with a little noise about it.",
    base=50_000.0,
    drift=Param(0.0015, "Log growth a bar."),
    noise=Param(0.0005, "Standard deviation of the noise, a share of the price.", SHARE),
)
def upward_drift(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """close_t = B exp(µt)(1 + noise·z_t)."""
    t = np.arange(-1, rows, dtype=np.float64)
    noise = 1 + params["noise"] * random.standard_normal(rows + 1)
    return params["base"] * np.exp(params["drift"] * t) * noise


@pattern(
    "The log price returns to its base: an AR(1) process.",
    reversion=Param(0.1, "Share of the distance that a bar takes back.", Interval(gt=0, lt=2)),
    volatility=_VOLATILITY,
)
def mean_reversion(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """close_t = B exp(x_t), x' = (1 − a)x + σz, begun in its stationary distribution."""
    persistence = 1 - params["reversion"]
    x = _autoregression(rows + 1, persistence, params["volatility"], random)
    return params["base"] * np.exp(x)


@pattern(
    "Log returns with a slowly changing, hidden drift: an AR(1) process.",
    persistence=Param(0.98, "How much of the drift the next bar keeps.", Interval(gt=-1, lt=1)),
    drift_volatility=Param(0.003, "Standard deviation of the drift.", AT_LEAST_0),
    volatility=_VOLATILITY,
)
def trending(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """r_t = µ_t + σz_t, µ' = φµ + noise, with stationary deviation `drift_volatility`."""
    persistence = params["persistence"]
    shock = params["drift_volatility"] * np.sqrt(1 - persistence**2)
    drift = _autoregression(rows, persistence, shock, random)
    return _path(params, drift + params["volatility"] * random.standard_normal(rows))


@pattern("A martingale: nothing predicts it, so nothing can be earned.", volatility=_VOLATILITY)
def random_walk(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """r_t = σz_t − σ²/2: the price is a martingale, nothing predicts its direction."""
    sigma = params["volatility"]
    return _path(params, sigma * random.standard_normal(rows) - sigma**2 / 2)


@pattern(
    "Geometric Brownian motion.",
    drift=Param(0.08, "Expected return a year."),
    volatility=Param(0.2, "Standard deviation of a year's log return.", AT_LEAST_0),
    periods_per_year=_YEAR,
)
def gbm(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """r_t = (µ − σ²/2)dt + σ√dt z_t, µ and σ a year."""
    step, sigma = 1 / params["periods_per_year"], params["volatility"]
    drift = (params["drift"] - sigma**2 / 2) * step
    return _path(params, drift + sigma * np.sqrt(step) * random.standard_normal(rows))


@pattern(
    "Log returns with a hidden drift that is up or down and seldom turns.",
    drift=Param(0.002, "The drift's size.", AT_LEAST_0),
    volatility=_VOLATILITY,
    stay=Param(0.99, "Probability that the next bar's drift is the same.", Interval(ge=0, le=1)),
)
def regime_switching(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """r_t = ±m + σz_t; the sign stays with probability `stay`."""
    turns = random.random(rows) >= params["stay"]
    turns[0] = random.random() < 0.5  # each regime is as likely at the start
    sign = 1 - 2 * (np.cumsum(turns) % 2)
    noise = params["volatility"] * random.standard_normal(rows)
    return _path(params, sign * params["drift"] + noise)


@pattern(
    "A martingale whose volatility clusters: GARCH(1, 1).",
    omega=Param(2e-6, "Constant part of the variance.", POSITIVE),
    alpha=Param(0.08, "Weight of the last squared shock.", SHARE),
    beta=Param(0.9, "Weight of the last variance; alpha + beta < 1.", SHARE),
)
def garch(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """r_t = σ_t z_t − σ_t²/2, σ'² = ω + (αz² + β)σ², begun at its mean ω/(1 − α − β)."""
    omega, alpha, beta = params["omega"], params["alpha"], params["beta"]
    z = random.standard_normal(rows)
    growth = (alpha * z[:-1] ** 2 + beta).tolist()
    start = omega / (1 - alpha - beta)
    variance = np.array(list(accumulate(growth, lambda v, g: omega + g * v, initial=start)))
    return _path(params, np.sqrt(variance) * z - variance / 2)


@pattern(
    "A martingale with jumps: Merton's model.",
    volatility=_VOLATILITY,
    jump_rate=Param(0.02, "Expected jumps a bar.", AT_LEAST_0),
    jump_mean=Param(-0.02, "Mean of a jump's log return."),
    jump_volatility=Param(0.03, "Standard deviation of a jump's log return.", AT_LEAST_0),
)
def jump_diffusion(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """Merton: a random walk plus a Poisson number of normal jumps a bar, drift taken out."""
    sigma, rate = params["volatility"], params["jump_rate"]
    mean, deviation = params["jump_mean"], params["jump_volatility"]
    jumps = random.poisson(rate, rows)
    jump = mean * jumps + deviation * np.sqrt(jumps) * random.standard_normal(rows)
    # E[exp(jump)] = exp(rate (exp(mean + deviation²/2) − 1)): taken off, the price is a martingale
    compensation = sigma**2 / 2 + rate * np.expm1(mean + deviation**2 / 2)
    return _path(params, sigma * random.standard_normal(rows) + jump - compensation)


@pattern(
    "A price with a volatility that is random itself: Heston's model.",
    drift=Param(0.0, "Expected return a year."),
    speed=Param(3.0, "How fast the variance returns to its mean, a year.", POSITIVE),
    variance=Param(0.04, "Mean of the variance of a year's log return.", POSITIVE),
    variance_volatility=Param(0.3, "Volatility of the variance.", AT_LEAST_0),
    correlation=Param(-0.7, "Between shocks of price and variance.", Interval(ge=-1, le=1)),
    periods_per_year=_YEAR,
)
def heston(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """r_t = (µ − v/2)dt + √(v dt) z, v' = v + κ(θ − v)dt + ξ√(v dt) w, corr(z, w) = ρ.

    Full truncation: where the variance steps below 0 it counts as 0 (Lord, Koekkoek, van Dijk 2010).
    """
    step, speed, mean = 1 / params["periods_per_year"], params["speed"], params["variance"]
    z, other = random.standard_normal((2, rows))
    correlation = params["correlation"]
    w = correlation * z + np.sqrt(1 - correlation**2) * other
    shocks = (params["variance_volatility"] * np.sqrt(step) * w[:-1]).tolist()

    def advance(v: float, shock: float) -> float:
        known = v if v > 0 else 0.0
        return v + speed * (mean - known) * step + shock * known**0.5

    variance = np.maximum(np.array(list(accumulate(shocks, advance, initial=mean))), 0.0)
    return _path(params, (params["drift"] - variance / 2) * step + np.sqrt(variance * step) * z)


@pattern(
    "Blocks of another file's log returns in a random order.",
    source=Param("", "OHLCV parquet or CSV whose returns are drawn."),
    mean_block=Param(20.0, "Mean number of bars that stay together.", Interval(ge=1)),
)
def bootstrap(rows: int, params: Params, random: np.random.Generator) -> Prices:
    """Stationary bootstrap (Politis, Romano 1994) of a file's log returns.

    Blocks start anywhere, have geometric lengths and go on at the first return after the last.
    """
    from proxima.domains.trading.ohlcv import load_trading_data

    returns = np.diff(np.log(load_trading_data(params["source"])["close"].to_numpy()))
    fresh = random.random(rows) < 1 / params["mean_block"]
    fresh[0] = True
    starts = random.integers(len(returns), size=rows)
    bar = np.arange(rows)
    began = np.maximum.accumulate(np.where(fresh, bar, 0))  # the bar at which its block began
    return _path(params, returns[(starts[began] + bar - began) % len(returns)])


def _path(params: Params, returns: Prices) -> Prices:
    """The prices that log returns lead to from the base on."""
    return params["base"] * np.exp(np.concatenate([[0.0], np.cumsum(returns)]))


def _autoregression(
    rows: int, persistence: float, shock: float, random: np.random.Generator
) -> Prices:
    """x' = φx + shock·z, begun in its stationary distribution; plain float64, one after the other."""
    noise = shock * random.standard_normal(rows)
    noise[0] /= np.sqrt(1 - persistence**2)
    return np.array(list(accumulate(noise.tolist(), lambda x, e: persistence * x + e)))
