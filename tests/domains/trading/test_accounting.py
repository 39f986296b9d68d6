"""The account against one kept by hand, against known numbers, and by what must be true of any."""

import itertools
import math

import numpy as np
import pytest
from portfolio import by_hand

from proxima.domains.trading.accounting import (
    RUIN_REWARD,
    account,
    hold,
    trade_costs,
    trade_factor,
)

GOLDEN_PRICES = np.array([100.0, 102, 101, 105, 103, 99, 98, 100])
GOLDEN_TARGETS = np.array([1.0, 1, -1, -1, 0.5, 2, 2])
GOLDEN_VALUES = {
    0.0: [1000, 1020, 1010, 970, 990, 970.776699029126, 951.165048543689, 990.388349514563],
    0.001: [
        1000, 1018.98, 1008.99, 967.093876123876, 987.033956043956, 966.376594172570,
        945.425607379167, 984.412230363875,
    ],
}  # fmt: skip
POSITIONS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0])


def returns_of(prices):
    return prices[1:] / prices[:-1] - 1


def path(seed, bars=60, deviation=0.02):
    random = np.random.default_rng(seed)
    prices = 100 * np.exp(np.cumsum(random.normal(0, deviation, bars + 1)))
    return prices, random.choice(POSITIONS, bars)


@pytest.mark.parametrize("fee", [0.0, 0.001])
def test_golden_path(fee):
    found = account(GOLDEN_TARGETS, returns_of(GOLDEN_PRICES), fee, 0.0)
    np.testing.assert_allclose(
        1000 * np.exp(found.log_value), GOLDEN_VALUES[fee], rtol=0, atol=1e-9
    )


@pytest.mark.parametrize(
    ("weight", "target", "factor"),
    [
        (0.0, 1.0, 1 - 0.01),
        (1.0, 0.0, 1 - 0.01),
        (1.0, -1.0, (1 - 0.01) / (1 + 0.01)),
        (-1.0, 1.0, 1 - 2 * 0.01),
        (0.3, 0.3, 1.0),
    ],
)
def test_trades_cost_what_they_should(weight, target, factor):
    assert trade_factor(weight, target, 0.01) == pytest.approx(factor, abs=1e-15)


def test_slippage_makes_every_fill_worse_by_its_share_of_the_price():
    assert trade_factor(0.0, 1.0, 0.0, 0.25) == pytest.approx(
        1 / 1.25
    )  # bought at 1.25 of the price
    assert trade_factor(1.0, 0.0, 0.0, 0.25) == pytest.approx(0.75)
    assert trade_factor(1.0, 0.0, 0.1, 0.25) == pytest.approx(0.9 * 0.75)
    for fee in (0.0, 0.001, 0.0123):
        assert trade_costs(fee, 0.0) == (fee, fee)  # to the bit


def test_a_short_pays_interest_every_bar():
    found = account(np.full(100, -1.0), np.zeros(100), 0.0, 0.001)
    value = 1000 * math.exp(found.log_value[-1])
    assert value == pytest.approx(894.9, abs=0.05)
    assert value == pytest.approx(1000 * (2 - 1.001**100), abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "costs",
    [
        (0.0, 0.0),
        (0.001, 0.0),
        (0.01, 0.001),
        (0.0, 0.002),
        (0.0, 0.0, 0.01),
        (0.002, 0.001, 0.005),
    ],
)
def test_agrees_with_a_portfolio_kept_by_hand(seed, costs):
    prices, targets = path(seed)
    found = account(targets, returns_of(prices), *costs)
    values = by_hand(targets.tolist(), prices.tolist(), *costs)
    np.testing.assert_allclose(np.exp(found.log_value), values, rtol=1e-12)
    assert found.log_value[-1] == pytest.approx(found.log_return.sum(), abs=1e-12)


def test_weights_drift_between_trades_as_single_bars_say():
    prices, targets = path(3)
    returns = returns_of(prices)
    found = account(targets, returns, 0.002, 0.001)
    weight, asked = 0.0, 0.0
    for bar, target in enumerate(targets):
        left = 1.0
        traded = 0.0
        if target != asked:
            left, traded = float(trade_factor(weight, target, 0.002)), target - weight
            weight = asked = target
        assert found.weight[bar] == pytest.approx(weight, abs=1e-12)
        assert found.traded[bar] == pytest.approx(traded, abs=1e-12)
        growth, weight = hold(weight, returns[bar], 0.001)
        assert found.log_return[bar] == pytest.approx(math.log(left * growth), abs=1e-12)


def test_many_rows_are_as_many_accounts():
    prices, _ = path(0)
    targets = np.random.default_rng(1).choice(POSITIONS, (2, 3, 60))
    together = account(targets, returns_of(prices), 0.001, 0.001)
    alone = account(targets[1, 2], returns_of(prices), 0.001, 0.001)
    for name in together._fields:
        np.testing.assert_array_equal(getattr(together, name)[1, 2], getattr(alone, name))


def test_constant_price_without_costs_earns_nothing():
    _, targets = path(5)
    found = account(targets, np.zeros(60), 0.0, 0.0)
    np.testing.assert_allclose(found.log_return, 0.0, atol=1e-15)


def test_buy_and_hold_earns_the_price_less_one_fee():
    prices, _ = path(6)
    found = account(np.ones(60), returns_of(prices), 0.001, 0.01)
    assert found.log_value[-1] == pytest.approx(
        math.log(prices[-1] / prices[0]) + math.log(1 - 0.001), abs=1e-12
    )


def test_the_scale_of_prices_does_not_matter():
    prices, targets = path(7)
    one = account(targets, returns_of(prices), 0.001, 0.001)
    other = account(targets, returns_of(prices * 1e-6), 0.001, 0.001)
    np.testing.assert_allclose(one.log_value, other.log_value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_value_never_rises_with_the_fee_or_the_rate(seed):
    prices, targets = path(seed)
    for costs in ([(fee, 0.001) for fee in (0, 1e-4, 1e-3, 1e-2)], [(0.001, r) for r in (0, 1e-3)]):
        ends = [account(targets, returns_of(prices), *cost).log_value for cost in costs]
        for cheaper, dearer in itertools.pairwise(ends):
            assert (dearer <= cheaper + 1e-12).all()
            assert dearer[-1] < cheaper[-1]


def test_prices_after_a_bar_change_nothing_before_it():
    prices, targets = path(8)
    changed = prices.copy()
    changed[31:] *= np.linspace(1.1, 2.0, 30)
    one = account(targets, returns_of(prices), 0.001, 0.001)
    other = account(targets, returns_of(changed), 0.001, 0.001)
    np.testing.assert_array_equal(one.log_value[:31], other.log_value[:31])
    assert one.log_value[31] != other.log_value[31]


@pytest.mark.parametrize(("target", "growth"), [(-1.0, 2.5), (3.0, 0.5)])
def test_ruin_is_final_and_has_its_price(target, growth):
    prices = np.array([100.0, 100, 100 * growth, 100, 100])
    found = account([target] * 4, returns_of(prices), 0.0, 0.0)
    assert found.log_return.tolist() == [0.0, RUIN_REWARD, 0.0, 0.0]
    assert found.ruined.tolist() == [False, True, False, False]
    assert found.weight[2:].tolist() == [0.0, 0.0]


def test_a_debt_that_ruined_long_ago_is_no_number_too_large():
    targets = np.full(50_000, -1.0)
    found = account(targets, np.zeros(50_000), 0.0, 0.05)
    assert found.ruined.sum() == 1
    assert np.isfinite(found.log_value).all()
