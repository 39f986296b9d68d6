"""Trades from entry to exit: together what the account gained, against a portfolio kept by hand."""

import math

import numpy as np
import pytest
from portfolio import by_hand

from proxima.domains.trading.accounting import RUIN_GROWTH, account
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.trades import trades_frame, trades_of

COSTS = [
    {"fee": 0.0},
    {"fee": 0.002},
    {"fee": 0.001, "slippage": 0.003},
    {"fee": 0.002, "slippage": 0.001, "borrow_rate": 0.002},
]


def traded(targets, prices, **costs):
    config = TradingEnvConfig(**costs)
    prices = np.asarray(prices, np.float64)
    returns = prices[1:] / prices[:-1] - 1
    done = account(targets, returns, config.fee, config.borrow_rate, config.slippage)
    return trades_of(done, prices, config)


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("kind", ["positions", "weights"])
@pytest.mark.parametrize("seed", range(5))
def test_trades_add_up_to_what_a_portfolio_kept_by_hand_gains(seed, kind, costs):
    random = np.random.default_rng(seed)
    prices = 100 * np.exp(np.cumsum(random.normal(0, 0.02, 121)))
    targets = random.choice([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0], 120)
    if kind == "weights":
        targets = random.uniform(-1.5, 2.5, 120).round(4)
    found = traded(targets, prices, **costs)
    usual = (costs["fee"], costs.get("borrow_rate", 0.0), costs.get("slippage", 0.0))
    values = by_hand(targets.tolist(), prices.tolist(), *usual)
    assert sum(trade.net for trade in found) == pytest.approx(values[-1] - 1, abs=1e-8)
    assert [trade.status for trade in found[:-1]] == ["closed"] * (len(found) - 1)
    assert all(trade.fee >= 0 and trade.interest >= 0 for trade in found)
    assert any(trade.interest > 0 for trade in found) == ("borrow_rate" in costs)


def test_one_round_trip_by_hand():
    (trade,) = traded([1, 1, 0], [100.0, 110, 121, 121], fee=0.01, slippage=0.02)
    spent = 0.99  # what is left of 1 after the fee, spent at 102
    assert trade[:4] == ("long", "closed", 0, 2)
    assert trade.size == pytest.approx(spent / 102)
    assert (trade.entry_price, trade.exit_price) == pytest.approx((102, 121 * 0.98))
    assert trade.profit == pytest.approx(trade.size * (121 * 0.98 - 102))
    assert trade.fee == pytest.approx(0.01 + 0.01 * trade.size * 121 * 0.98)
    assert trade.net == pytest.approx(trade.size * 121 * 0.98 * 0.99 - 1)


def test_parts_are_closed_at_the_mean_of_what_was_paid():
    free = {"fee": 0.0}
    first, second = traded([0.5, 1, 0.25, 0.25], [100.0, 120, 150, 150, 90], **free)
    for trade in (first, second):
        assert trade.side == "long" and trade.entry_bar == 0
        # Half of 1 at 100, then the cash that was left at 120.
        assert trade.entry_price == pytest.approx(1 / (0.5 / 100 + 0.5 / 120))
    assert (first.status, first.exit_bar, first.exit_price) == ("closed", 2, 150)
    assert (second.status, second.exit_bar, second.exit_price) == ("open", 4, 90)


def test_a_flip_closes_one_side_and_opens_the_other():
    found = traded([1, -1, -1, 0], [100.0, 110, 100, 90, 90], fee=0.001)
    assert [(trade.side, trade.entry_bar, trade.exit_bar) for trade in found] == [
        ("long", 0, 1),
        ("short", 1, 3),
    ]
    assert all(trade.net > 0 for trade in found)


def test_a_ruin_closes_at_what_it_left():
    (trade,) = traded([-1, -1, -1], [100.0, 150, 250, 100], fee=0.0)
    assert trade.status == "ruined" and trade.exit_bar == 2
    assert trade.net == pytest.approx(0.5 * RUIN_GROWTH - 1)


def test_cash_has_no_trades_and_the_table_still_has_its_columns():
    time = np.datetime64("2020-01-01", "us") + np.arange(4) * np.timedelta64(1, "D")
    none = traded([0, 0, 0], [100.0, 101, 102, 103])
    some = traded([1, -1, 0], [100.0, 101, 102, 103])
    empty, table = trades_frame(none, time), trades_frame(some, time)
    assert empty.height == 0 and empty.schema == table.schema
    assert table["bars"].to_list() == [1, 1]
    assert table["exit_time"].to_list()[-1].day == 3
    assert table["return"][0] == pytest.approx(some[0].net / (some[0].size * some[0].entry_price))
    assert table["net"].sum() == pytest.approx(sum(trade.net for trade in some))


def test_more_than_a_float_holds_is_counted_in_larger_units():
    found = traded(
        np.tile([1, 0], 500),
        1.0 * np.array([4.0**k for k in range(500) for _ in (0, 1)] + [4.0**499]),
    )
    assert all(math.isfinite(trade.net) for trade in found)
