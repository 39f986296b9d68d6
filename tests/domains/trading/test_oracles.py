"""Perfect foresight against trying everything, closed forms and known numbers; baselines."""

import itertools
import math

import numpy as np
import pytest
from markets import market_of, random_market

from proxima.core.errors import ProximaError
from proxima.domains.trading.accounting import Costs, account, trade_costs
from proxima.domains.trading.baselines import (
    buy_and_hold,
    momentum,
    nearest,
    random_targets,
)
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import WEIGHT_STEPS
from proxima.domains.trading.oracles import foresight_targets, search
from proxima.domains.trading.timing import decisions, fill_returns

THREE = (-1.0, 0.0, 1.0)
SETS = [
    THREE,
    (0.0, 1.0),
    (-1.0, 1.0),
    (-1.0, -0.5, 0.0, 0.5, 1.0),
    (-1.0, 0.5, 2.0),
    (-2.0, 1.0, 3.0),
]
# Fee, interest, slippage.
COSTS = [
    (0.0, 0.0, 0.0),
    (0.001, 0.0, 0.0),
    (0.01, 0.002, 0.0),
    (0.0, 0.05, 0.01),
    (0.03, 0.01, 0.0),
    (0.004, 0.0, 0.02),
]


def best_of_all(positions, returns, fee, rate, slippage=0.0):
    """The most that any sequence of these targets ends with, by trying all of them."""
    every = np.array(list(itertools.product(positions, repeat=len(returns))))
    done = account(every, returns, fee, rate, slippage)
    return done.log_value[~done.ruined.any(axis=1), -1].max()


@pytest.mark.parametrize("positions", SETS)
@pytest.mark.parametrize(("fee", "rate", "slippage"), COSTS)
@pytest.mark.parametrize("deviation", [0.01, 0.1, 0.4])  # the last one ruins many a path
def test_foresight_equals_trying_everything(positions, fee, rate, slippage, deviation):
    random = np.random.default_rng(int(1000 * deviation))
    bars = 5 if len(positions) == 5 else 7
    returns = np.expm1(random.normal(0, deviation, bars))
    found = search(returns, positions, trade_costs(fee, slippage), rate)
    most = best_of_all(positions, returns, fee, rate, slippage)
    assert found.log_value == pytest.approx(most, abs=1e-9)
    done = account(found.targets, returns, fee, rate, slippage)
    assert done.log_value[-1] == pytest.approx(found.log_value, abs=1e-9)
    assert set(found.targets) <= set(positions)


def slow_search(returns, positions, fee, rate):
    """The same search without ever dropping a holding: quadratic in the bars."""
    prices = np.concatenate([[1.0], np.cumprod(1 + returns)])
    bars = len(returns)
    value = np.full((bars, len(positions)), -np.inf)  # on entering a target at a bar
    best = -np.inf
    for start, (index, target) in itertools.product(range(bars), enumerate(positions)):
        if start == 0:
            value[0, index] = float(account([target], [0.0], fee, 0.0).log_value[-1])
        held = np.full(bars - start, target)
        grown = account(held, prices[start + 1 :] / prices[start:-1] - 1, 0.0, rate)
        ruin = int(np.argmax(grown.ruined)) if grown.ruined.any() else bars - start
        for length in range(1, ruin + 1):
            now = value[start, index] + grown.log_value[length]
            end = start + length
            if end == bars:
                best = max(best, now)
                continue
            weight = (
                target * prices[end] / prices[start] * ((1 + rate) ** length if target < 0 else 1)
            )
            worth = math.exp(grown.log_value[length])
            for other, to in enumerate(positions):
                if other == index:
                    continue
                bought = (1 - fee + fee * weight / worth) / (1 - fee + fee * to)
                sold = (1 - fee * weight / worth) / (1 - fee * to)
                left = min(bought, sold)
                if left > 0:
                    value[end, other] = max(value[end, other], now + math.log(left))
    return best


@pytest.mark.parametrize("positions", [THREE, (-1.0, -0.5, 0.0, 0.5, 1.0), (-1.0, 0.0, 2.0)])
@pytest.mark.parametrize(("drift", "deviation"), [(0.0, 0.01), (0.004, 0.05), (-0.004, 0.05)])
def test_dropping_holdings_loses_nothing(positions, drift, deviation):
    random = np.random.default_rng(7)
    returns = np.expm1(random.normal(drift, deviation, 150))  # two prunings, and some ruins
    found = search(returns, positions, Costs(0.004, 0.004), 0.001)
    assert found.log_value == pytest.approx(slow_search(returns, positions, 0.004, 0.001), abs=1e-9)


@pytest.mark.parametrize("fee", [0.001, 0.03])
def test_foresight_on_a_sine_has_a_closed_form(fee):
    periods, k = 40, 42_000 / 58_000
    prices = 50_000 + 8_000 * np.sin(2 * np.pi * (np.arange(100 * periods + 1) + 75) / 100)
    found = search(prices[1:] / prices[:-1] - 1, THREE, Costs(fee, fee), 0.0)
    a_period = math.log((1 / k) * (2 - k - 2 * fee) * (1 - fee) / (1 + fee))
    first_entry = math.log(1 - fee) - math.log(1 - 2 * fee / (2 - k))  # from cash, not from a short
    whole = periods * a_period + first_entry
    if fee > 0.01:
        assert found.log_value == pytest.approx(whole, abs=1e-9)
    else:  # a short that is cheap to renew is worth renewing halfway down
        assert whole < found.log_value < 1.1 * whole


def test_reference_numbers_of_a_smoothed_sine():
    """500 bars of the sine, the close a mean over the last 5 bars (fewer at the start)."""
    sine = 50_000 + 8_000 * np.sin(2 * np.pi * np.arange(501) / 100)
    close = np.array([sine[max(0, bar - 4) : bar + 1].mean() for bar in range(501)])
    market = market_of(close)
    config = TradingEnvConfig(fill="same_close", fee=0.001)
    returns = fill_returns(market, "same_close")

    def end(targets):
        return float(account(targets, returns, 0.001, 0.0).log_value[-1])

    assert end(foresight_targets(returns, config)) == pytest.approx(2.923, abs=5e-4)
    assert end(momentum(market, config)) == pytest.approx(2.773, abs=5e-4)
    assert end(buy_and_hold(market, config)) == pytest.approx(-0.021, abs=5e-4)
    chance = [end(targets) for targets in random_targets(market, config, runs=2_000)]
    assert np.mean(chance) == pytest.approx(-0.461, abs=0.01)
    assert np.std(chance) == pytest.approx(0.13, abs=0.01)


@pytest.mark.parametrize(
    ("fee", "rate", "slippage"), [(0.0, 0.0, 0.0), (0.002, 0.0, 0.003), (0.002, 0.01, 0.0)]
)
@pytest.mark.parametrize("limits", [(-1.0, 1.0), (0.0, 1.0), (-0.5, 2.0)])
def test_no_continuous_weights_beat_foresight(fee, rate, slippage, limits):
    random = np.random.default_rng(3)
    costs = {"fee": fee, "borrow_rate": rate, "slippage": slippage}
    config = TradingEnvConfig(actions="continuous", positions=limits, **costs)
    for _ in range(4):
        returns = np.expm1(random.normal(0, 0.05, 4))
        best = account(foresight_targets(returns, config), returns, **costs).log_value[-1]
        step = 1 / WEIGHT_STEPS
        grid = {*np.linspace(*limits, 5), limits[0] + step, limits[1] - step}
        assert best >= best_of_all(sorted(grid), returns, fee, rate, slippage) - 3e-5


def test_continuous_foresight_trades_a_drifted_weight_back():
    returns = np.full(50, -0.01)
    config = TradingEnvConfig(actions="continuous", fee=0.0)
    end = account(foresight_targets(returns, config), returns, 0.0, 0.0).log_value[-1]
    assert end == pytest.approx(50 * math.log(1.01), abs=5e-5)  # every other target is -0.9999
    once = search(returns, THREE, Costs(0.0, 0.0), 0.0).targets
    held = account(once, returns, 0.0, 0.0).log_value[-1]
    assert held < end - 0.05


def test_foresight_says_when_nothing_survives():
    with pytest.raises(ProximaError, match="survive bar 0 of the stretch; add 0"):
        search([1.5, 0.0], (-1.0, -0.9), Costs(0.0, 0.0), 0.0)


def test_long_paths_do_not_overflow():
    returns = np.expm1(np.random.default_rng(0).normal(0, 0.2, 6_000))
    found = search(returns, THREE, Costs(0.001, 0.001), 0.01)
    assert found.log_value > 720  # more than exp can hold
    done = account(found.targets, returns, 0.001, 0.01)
    assert done.log_value[-1] == pytest.approx(found.log_value, rel=1e-9)


def test_baselines():
    market = market_of([100.0, 101, 102, 101, 103, 103])
    config = TradingEnvConfig(fill="same_close")
    assert momentum(market, config).tolist() == [0, 1, 1, -1, 1]
    assert buy_and_hold(market, config).tolist() == [1] * 5
    late = TradingEnvConfig(fill="next_open", window=3)
    assert decisions(market, late) == slice(2, 4)
    assert momentum(market, late).tolist() == [1, -1]
    long_only = TradingEnvConfig(fill="same_close", positions=(1.0, 0.0))
    assert momentum(market, long_only).tolist() == [0, 1, 1, 0, 1]
    assert nearest(np.array([-3.0, 0.4, 0.6]), long_only).tolist() == [0, 0, 1]


def test_random_targets_are_uniform_and_seeded():
    market = random_market(bars=1_000)
    runs = np.array(list(random_targets(market, TradingEnvConfig(), runs=20)))
    shares = [(runs == position).mean() for position in THREE]
    np.testing.assert_allclose(shares, 1 / 3, atol=0.02)
    again = np.array(list(random_targets(market, TradingEnvConfig(), runs=20)))
    np.testing.assert_array_equal(runs, again)
    continuous = TradingEnvConfig(actions="continuous", positions=(-0.5, 1.0))
    drawn = np.array(list(random_targets(market, continuous, runs=20)))
    assert drawn.min() >= -0.5
    assert drawn.max() <= 1
    assert drawn.mean() == pytest.approx(0.25, abs=0.02)
