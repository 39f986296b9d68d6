"""What a stretch of trading is judged by, in float64; a ratio that does not exist is NaN, on purpose.

Returns are simple returns per bar unless a name says log; the number of bars in a year is an argument.

How uncertain a mean of returns is that depend on their neighbours, the stationary bootstrap says
(Politis, Romano 1994): resample blocks that start anywhere and have geometric lengths, around the end to
the beginning. The mean length is chosen from the autocorrelation (Politis, White 2004; Patton, Politis,
White 2009). Drawing single bars, as if they were independent, would make the interval too narrow.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.domains.trading.accounting import Account, Floats, log_value
from proxima.domains.trading.trades import Trade

NORMAL = NormalDist()
EULER_GAMMA = 0.5772156649015329
CONSTANT = 1e-12  # a deviation smaller than this share of the mean is rounding
LARGEST_EXPONENT = 700.0  # exp of more is more than float64 holds
TOO_GOOD_BARS = 100
RESAMPLES = 1_000
RESAMPLES_AT_ONCE = 50
# Longer blocks than necessary change little, and millions of bars stay affordable.
MOST_BLOCKS = 4_000
INTERVAL = (2.5, 97.5)
DAYS_OF_A_YEAR, DAYS_OF_A_WEEK = 365.25, 7.0
USUAL_YEARS = (1, 4, 12, 52, 252, 365)
NEAR_A_YEAR = 0.04  # 261 weekdays without holidays are 252


def sharpe(returns: Floats, periods_per_year: float = 1.0) -> float:
    """Mean over deviation, annualised; without a number of bars a year, per bar."""
    return math.sqrt(periods_per_year) * _ratio(_mean(returns), _deviation(returns))


def sortino(returns: Floats, periods_per_year: float = 1.0) -> float:
    """Mean over the deviation of losses (root mean square over all bars), annualised."""
    if math.isnan(_deviation(returns)):
        return math.nan
    downside = math.sqrt(_mean(np.minimum(returns, 0.0) ** 2))
    return math.sqrt(periods_per_year) * _ratio(_mean(returns), downside)


def volatility(returns: Floats, periods_per_year: float) -> float:
    """Standard deviation, annualised."""
    return math.sqrt(periods_per_year) * _deviation(returns)


def drawdowns(values: Floats) -> Floats:
    """How far below its highest so far a log value is, at most 0; the curve's start counts."""
    return np.expm1(values - np.maximum.accumulate(values))


def max_drawdown(returns: Floats) -> float:
    """The deepest fall from a highest value, negative."""
    return float(drawdowns(log_value(np.log1p(returns))).min())


def cagr(returns: Floats, periods_per_year: float) -> float:
    """Compound growth a year."""
    if not len(returns):
        return math.nan
    yearly = float(log_value(np.log1p(returns))[-1]) * periods_per_year / len(returns)
    return math.expm1(yearly) if yearly < LARGEST_EXPONENT else math.inf


def calmar(returns: Floats, periods_per_year: float) -> float:
    """Compound growth a year over the deepest drawdown."""
    return _ratio(cagr(returns, periods_per_year), -max_drawdown(returns))


def omega(returns: Floats) -> float:
    """What the bars that won made over what those that lost did."""
    return _ratio(float(np.maximum(returns, 0).sum()), float(np.maximum(-returns, 0).sum()))


def profit_factor(trades: Sequence[Trade]) -> float:
    """What the trades that won made over what those that lost did, after costs; open ones do not count."""
    return omega(np.array([trade.net for trade in trades if trade.status != "open"]))


def win_rate(trades: Sequence[Trade]) -> float:
    """The share of trades that won, after costs; open ones do not count."""
    return _mean(np.array([trade.net > 0 for trade in trades if trade.status != "open"]))


def tail_ratio(returns: Floats) -> float:
    """The best twentieth's threshold over the worst one's."""
    low, high = np.percentile(returns, (5, 95)) if len(returns) else (math.nan, math.nan)
    return _ratio(float(abs(high)), float(abs(low)))


def value_at_risk(returns: Floats) -> float:
    """The return that one bar in twenty falls short of."""
    return float(np.percentile(returns, 5)) if len(returns) else math.nan


def probabilistic_sharpe(returns: Floats, benchmark: float = 0.0) -> float:
    """Probability that the true Sharpe ratio per bar exceeds the benchmark (Bailey, López de Prado 2012)."""
    ratio, bars = sharpe(returns), len(returns)
    if math.isnan(ratio) or bars < 4:
        return math.nan
    skew, kurtosis = _shape(returns)
    spread = 1 - skew * ratio + (kurtosis - 1) / 4 * ratio**2
    if spread <= 0:
        return math.nan
    return NORMAL.cdf((ratio - benchmark) * math.sqrt(bars - 1) / math.sqrt(spread))


def deflated_sharpe(
    returns: Floats, trial_sharpes: ArrayLike, periods_per_year: float, tried: int = 1
) -> float:
    """Probability that the Sharpe ratio is more than the luckiest of so many trials would have.

    Bailey, López de Prado (2014). `trial_sharpes` are annualised, of every trial that was run; `tried` are
    the configurations among which these settings were chosen, each of which had as many trials.
    """
    luckiest = luckiest_sharpe(trial_sharpes, tried)
    return probabilistic_sharpe(returns, luckiest / periods_per_year**0.5)


def luckiest_sharpe(trial_sharpes: ArrayLike, tried: int = 1) -> float:
    """The largest Sharpe ratio to expect of `tried` times as many trials, if none had skill.

    They are taken to be spread as these are.
    """
    trials = np.asarray(trial_sharpes, np.float64)
    trials = trials[np.isfinite(trials)]
    if len(trials) < 2:
        return 0.0
    count = len(trials) * tried
    most = (1 - EULER_GAMMA) * NORMAL.inv_cdf(1 - 1 / count)
    most += EULER_GAMMA * NORMAL.inv_cdf(1 - 1 / (count * math.e))
    return float(trials.std(ddof=1)) * most


def bars_per_year(time: NDArray[np.datetime64]) -> float:
    """Bars that such a stretch of times has in a year, a usual number where it is near one.

    Usual are 1, 4, 12, 52, 252 and 365 a year, and as many a day as there are on 252 or 365 days. A
    stretch may begin and end anywhere in a week, so a short one may be further from what it is near.
    """
    days = (time[-1] - time[0]) / np.timedelta64(1, "D")
    counted = float((len(time) - 1) / days * DAYS_OF_A_YEAR)
    _, bars = np.unique(time.astype("M8[D]"), return_counts=True)
    a_day = float(np.median(bars))
    usual = [*USUAL_YEARS, 252 * a_day, 365 * a_day]
    nearest = min(usual, key=lambda number: abs(math.log(counted / number)))
    near = NEAR_A_YEAR + DAYS_OF_A_WEEK / days
    return float(nearest) if abs(math.log(counted / nearest)) < near else counted


def returns_sheet(
    log_returns: Floats, log_values: Floats, periods_per_year: float
) -> dict[str, float]:
    """What follows from log returns (T,) alone, whatever earned them; their sums (T + 1,) start at 0."""
    returns, total = np.expm1(log_returns), float(log_values[-1])
    return {
        "log_return": total,
        "total_return": math.expm1(total) if total < LARGEST_EXPONENT else math.inf,
        "sharpe": sharpe(returns, periods_per_year),
        "sortino": sortino(returns, periods_per_year),
        "max_drawdown": float(drawdowns(log_values).min()),
        "cagr": cagr(returns, periods_per_year),
        "calmar": calmar(returns, periods_per_year),
        "volatility": volatility(returns, periods_per_year),
        "omega": omega(returns),
        "tail_ratio": tail_ratio(returns),
        "var_5": value_at_risk(returns),
    }


def tear_sheet(
    account: Account, trades: Sequence[Trade], periods_per_year: float
) -> dict[str, float]:
    """Every metric of one account (T,) and its trades, by its name."""
    held = account.weight != 0
    returns = np.expm1(account.log_return)
    return {
        **returns_sheet(account.log_return, account.log_value, periods_per_year),
        "profit_factor": profit_factor(trades),
        "win_rate": win_rate(trades),
        "psr": probabilistic_sharpe(returns),
        "turnover": _mean(np.abs(account.traded)),  # weight traded per bar
        "exposure_long": _mean(account.weight > 0),
        "exposure_short": _mean(account.weight < 0),
        "exposure_flat": _mean(~held),
        "trades": len(trades),
        "fills": int(np.count_nonzero(account.traded)),
        "hit_rate": _mean(account.log_return[held] > 0),  # of the bars with a position
        "holding_time": holding_time(account),
    }


def holding_time(account: Account) -> float:
    """Mean number of bars from a fill into a position to the next fill."""
    held = account.weight != 0
    entered = np.concatenate([held[:1], (account.traded[1:] != 0) & held[1:]])
    return _ratio(float(np.count_nonzero(held)), float(np.count_nonzero(entered)))


def too_good(account: Account) -> list[str]:
    """What about an account cannot be true, in words; empty where all is well."""
    return too_good_bars(account.log_return, account.log_value, account.weight != 0)


def too_good_bars(log_returns: Floats, log_values: Floats, held: NDArray[np.bool_]) -> list[str]:
    """What about bars (T,), of which some had a position, cannot be true, in words."""
    bars = len(log_returns)
    if bars <= TOO_GOOD_BARS or not held.any():
        return []
    reasons = []
    if (log_returns[held] > 0).all():
        reasons.append(f"every one of its bars with a position won, over {bars} bars")
    if float(drawdowns(log_values).min()) == 0:
        reasons.append(f"its value never fell, over {bars} bars")
    return reasons


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


def _mean(values: NDArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _deviation(returns: Floats) -> float:
    """Sample deviation; NaN for returns that are all the same, and for fewer than two."""
    if len(returns) < 2:
        return math.nan
    deviation = float(returns.std(ddof=1))
    return deviation if deviation > CONSTANT * abs(float(returns.mean())) else math.nan


def _shape(returns: Floats) -> tuple[float, float]:
    """Skewness and kurtosis (3 for a normal distribution), corrected for the sample's size."""
    n, distance = len(returns), returns - returns.mean()
    variance = _mean(distance**2)
    skew = _mean(distance**3) / variance**1.5 * math.sqrt(n * (n - 1)) / (n - 2)
    excess = _mean(distance**4) / variance**2 - 3
    excess = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * excess + 6)
    return skew, excess + 3


def mean_interval(values: Floats, seed: int = 0) -> tuple[float, float]:
    """The middle 95 % of the mean of such values; NaN for fewer than two."""
    if len(values) < 2:
        return math.nan, math.nan
    means = resampled_means(values, block_length(values), RESAMPLES, np.random.default_rng(seed))
    low, high = np.percentile(means, INTERVAL)
    return float(low), float(high)


def resampled_means(
    values: Floats, mean_block: float, resamples: int, random: np.random.Generator
) -> Floats:
    """Means of stationary bootstrap samples as long as the values, (resamples,)."""
    size = len(values)
    expected = size / max(mean_block, size / MOST_BLOCKS)
    # Six deviations more blocks than expected: should they not be enough, the last is a longer one.
    blocks = math.ceil(expected + 6 * math.sqrt(expected) + 10)
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values]))])
    means = []
    for many in np.array_split(np.arange(resamples), math.ceil(resamples / RESAMPLES_AT_ONCE)):
        lengths = random.geometric(expected / size, (len(many), blocks))
        ends = np.minimum(np.cumsum(lengths, axis=1), size)
        ends[:, -1] = size
        lengths = np.diff(ends, axis=1, prepend=0)
        starts = random.integers(size, size=lengths.shape)
        means.append((sums[starts + lengths] - sums[starts]).sum(axis=1) / size)
    return np.concatenate(means)


def block_length(values: Floats) -> float:
    """The mean length of blocks that suits the values' autocorrelation, at least 1."""
    size = len(values)
    covariance = _autocovariance(values)
    if covariance[0] <= 0:
        return 1.0
    patience = max(5, math.ceil(math.sqrt(math.log10(size))))
    noise = 2 * math.sqrt(math.log10(size) / size)
    most = min(math.ceil(math.sqrt(size)) + patience, size - 1)
    quiet = np.abs(covariance[1 : most + 1] / covariance[0]) < noise
    bandwidth = 2 * max(1, _last_loud(quiet, patience))
    lags = np.arange(-min(bandwidth, size - 1), min(bandwidth, size - 1) + 1)
    flat_top = np.clip(2 * (1 - np.abs(lags) / bandwidth), 0.0, 1.0)
    weighted = flat_top * covariance[np.abs(lags)]
    spectrum = weighted.sum()
    slope = (np.abs(lags) * weighted).sum()
    longest = math.ceil(min(3 * math.sqrt(size), size / 3))
    if spectrum == 0:
        return float(max(1, longest))
    return float(np.clip((slope**2 / spectrum**2 * size) ** (1 / 3), 1, max(1, longest)))


def _last_loud(quiet: NDArray[np.bool_], patience: int) -> int:
    """The last lag before the first `patience` in a row whose autocorrelation is only noise."""
    run = 0
    for lag, is_quiet in enumerate(quiet.tolist(), 1):
        run = run + 1 if is_quiet else 0
        if run == patience:
            return lag - patience
    loud = np.flatnonzero(~quiet)
    return int(loud[-1]) + 1 if len(loud) else 0


def _autocovariance(values: Floats) -> Floats:
    """At every lag, by FFT."""
    size = len(values)
    spectrum = np.fft.rfft(values - values.mean(), 2 * size)
    return np.fft.irfft(np.abs(spectrum) ** 2)[:size] / size
