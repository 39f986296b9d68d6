"""Metrics against known numbers, slow formulas and what must not exist; intervals that know neighbours."""

import math

import numpy as np
import pytest

from proxima.domains.trading import metrics
from proxima.domains.trading.accounting import account
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.metrics import block_length, mean_interval, resampled_means
from proxima.domains.trading.trades import trades_of

RETURNS = np.array([0.01, -0.02, 0.03, -0.01, 0.02, 0, -0.015, 0.005, 0.012, -0.007])
TRIALS = [1, 0.2, -0.3, 0.5, 0.9, 1.5, -0.7, 0.1]
YEAR = 252
GOLDEN = {
    "sharpe": (metrics.sharpe(RETURNS, YEAR), 2.493139017745826),
    "sortino": (metrics.sortino(RETURNS, YEAR), 4.510968544481587),
    "max_drawdown": (metrics.max_drawdown(RETURNS), -0.02),
    "cagr": (metrics.cagr(RETURNS, YEAR), 0.8233614289892617),
    "calmar": (metrics.calmar(RETURNS, YEAR), 41.16807144946316),
    "volatility": (metrics.volatility(RETURNS, YEAR), 0.2526934902208603),
    "omega": (metrics.omega(RETURNS), 1.4807692307692308),
    "tail_ratio": (metrics.tail_ratio(RETURNS), 1.4366197183098586),
    "var_5": (metrics.value_at_risk(RETURNS), -0.01775),
    "psr": (metrics.probabilistic_sharpe(RETURNS), 0.6842360181050696),
    "deflated": (metrics.deflated_sharpe(RETURNS, TRIALS, YEAR), 0.608971510494534),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vector(name):
    found, expected = GOLDEN[name]
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("constant", [0.0, 0.01, -0.1])
def test_constant_returns_have_no_ratios(constant):
    returns = np.full(50, constant)
    for ratio in (metrics.sharpe, metrics.sortino):
        assert math.isnan(ratio(returns, YEAR))
    assert math.isnan(metrics.volatility(returns, YEAR))
    assert math.isnan(metrics.probabilistic_sharpe(returns))
    assert math.isnan(metrics.deflated_sharpe(returns, TRIALS, YEAR))


def test_what_divides_by_nothing_is_not_a_number():
    gains = np.array([0.01, 0.02, 0.03])
    assert math.isnan(metrics.omega(gains))
    assert math.isnan(metrics.calmar(gains, YEAR))
    assert math.isnan(metrics.sortino(gains, YEAR))


def test_one_trial_deflates_nothing_and_more_trials_deflate_more():
    assert metrics.deflated_sharpe(RETURNS, [2.5], YEAR) == metrics.probabilistic_sharpe(RETURNS)
    few = metrics.deflated_sharpe(RETURNS, TRIALS, YEAR)
    many = metrics.deflated_sharpe(RETURNS, TRIALS * 10, YEAR)
    assert many < few < metrics.probabilistic_sharpe(RETURNS)
    assert metrics.luckiest_sharpe([*TRIALS, math.nan]) == metrics.luckiest_sharpe(TRIALS)


def test_tear_sheet_of_a_known_account():
    prices = np.array([100.0, 110, 99, 99, 108.9, 98.01])
    returns = prices[1:] / prices[:-1] - 1
    done = account([1, 1, 0, 1, -1], returns, 0.0, 0.0)
    trades = trades_of(done, prices, TradingEnvConfig(fee=0.0))
    sheet = metrics.tear_sheet(done, trades, YEAR)
    assert sheet["total_return"] == pytest.approx(1.1 * 0.9 * 1 * 1.1 * 1.1 - 1)
    assert sheet["log_return"] == pytest.approx(math.log(1 + sheet["total_return"]))
    assert sheet["max_drawdown"] == pytest.approx(-0.1)
    assert (sheet["exposure_long"], sheet["exposure_short"]) == (0.6, 0.2)
    assert sheet["exposure_flat"] == pytest.approx(0.2)
    assert (sheet["trades"], sheet["fills"]) == (3, 4)  # the last is open
    assert sheet["win_rate"] == 0.5
    assert sheet["profit_factor"] == pytest.approx(0.099 / 0.01)  # 0.99 to 1.089, and 1 to 0.99
    gained, lost = 0.1 + 0.1 + 0.1, 0.1  # bar by bar
    assert sheet["omega"] == pytest.approx(gained / lost)
    assert sheet["turnover"] == pytest.approx((1 + 1 + 1 + 2) / 5)
    assert sheet["hit_rate"] == 0.75
    assert sheet["holding_time"] == pytest.approx(4 / 3)


def test_tear_sheet_of_doing_nothing():
    sheet = metrics.tear_sheet(account(np.zeros(200), np.full(200, 0.01), 0.001, 0.0), [], YEAR)
    assert (sheet["log_return"], sheet["trades"], sheet["exposure_flat"]) == (0.0, 0, 1.0)
    for name in ("sharpe", "hit_rate", "holding_time", "omega", "profit_factor", "win_rate"):
        assert math.isnan(sheet[name])


def test_too_good_to_be_true():
    rising, falling = np.full(150, 0.01), np.full(150, 0.01)
    falling[70] = -0.001
    assert len(metrics.too_good(account(np.ones(150), rising, 0.0, 0.0))) == 2
    assert metrics.too_good(account(np.ones(150), falling, 0.0, 0.0)) == []
    assert metrics.too_good(account(np.ones(100), rising[:100], 0.0, 0.0)) == []
    assert metrics.too_good(account(np.zeros(150), rising, 0.0, 0.0)) == []


def autoregression(seed, size, persistence):
    noise = np.random.default_rng(seed).normal(size=size)
    values = np.empty(size)
    value = noise[0] / math.sqrt(1 - persistence**2)
    for index, shock in enumerate(noise):
        value = persistence * value + shock if index else value
        values[index] = value
    return values


def slow_resampled_mean(values, mean_block, random):
    """One stationary bootstrap sample, value by value."""
    total, place = 0.0, 0
    for index in range(len(values)):
        fresh = index == 0 or random.random() < 1 / mean_block
        place = random.integers(len(values)) if fresh else (place + 1) % len(values)
        total += values[place]
    return total / len(values)


@pytest.mark.parametrize("mean_block", [1.0, 8.0])
def test_resampled_means_spread_as_a_slow_loop_says(mean_block):
    values = autoregression(0, 200, 0.7)
    fast = resampled_means(values, mean_block, 4_000, np.random.default_rng(1))
    random = np.random.default_rng(2)
    slow = [slow_resampled_mean(values, mean_block, random) for _ in range(1_000)]
    assert fast.mean() == pytest.approx(values.mean(), abs=0.02)
    assert fast.std() == pytest.approx(np.std(slow), rel=0.08)


def test_blocks_grow_with_the_memory_of_the_values():
    lengths = [block_length(autoregression(3, 5_000, phi)) for phi in (0.0, 0.5, 0.9)]
    assert lengths[0] < 6 < lengths[1] < lengths[2] < 150
    assert block_length(np.zeros(100)) == 1.0


def test_intervals_cover_the_mean_where_single_draws_would_not():
    covered = single = 0
    for seed in range(60):
        values = autoregression(seed, 600, 0.8)
        low, high = mean_interval(values)
        covered += low < 0 < high
        means = resampled_means(values, 1.0, 500, np.random.default_rng(0))
        single += np.percentile(means, 2.5) < 0 < np.percentile(means, 97.5)
    assert covered >= 50  # 95 % would be 57
    assert single <= 45


def test_interval_of_next_to_nothing():
    assert all(math.isnan(end) for end in mean_interval([0.1]))
    assert mean_interval(np.zeros(50)) == (0.0, 0.0)


def every(step, count, keep=lambda time: True, start="2020-01-06"):
    """Times a step apart, of those that are kept."""
    times = np.datetime64(start, "us") + np.arange(count) * np.timedelta64(step, "m")
    return times[[bool(keep(time.astype(object))) for time in times]]


HOUR, DAY = 60, 24 * 60


@pytest.mark.parametrize(
    ("times", "year"),
    [
        (every(DAY, 1_000), 365),
        (every(DAY, 1_000, lambda time: time.weekday() < 5), 252),
        (every(DAY, 26, lambda time: time.weekday() < 5), 252),  # four weeks
        (every(7 * DAY, 200), 52),
        (every(HOUR, 2_000), 365 * 24),
        (every(4 * HOUR, 2_000), 365 * 6),
        (every(1, 3_000), 365 * 24 * 60),
        (every(HOUR, 9_000, lambda time: time.weekday() < 5), 252 * 24),
        (every(HOUR, 9_000, lambda time: time.weekday() < 5 and 14 <= time.hour < 21), 252 * 7),
    ],
)
def test_bars_of_a_year_are_counted_in_their_times(times, year):
    assert metrics.bars_per_year(times) == pytest.approx(year, rel=1e-9)


def test_bars_that_are_near_nothing_usual_are_counted_as_they_are():
    assert metrics.bars_per_year(every(3 * DAY, 1_000)) == pytest.approx(365.25 / 3)
