"""Accounts of several assets against cash and units kept by hand, and hindsight against a search."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.trading.portfolio.accounting import (
    account,
    held_log_value,
    kept_value,
    side_by_side,
)
from proxima.domains.trading.portfolio.oracles import best_constant
from proxima.domains.trading.portfolio.rules import buy_and_hold

NYSE_O = (
    14.50,
    54.14,
    250.60,
)  # market, best stock, best constant rebalanced (Borodin et al. 2004)


def by_hand(targets, returns, cost, rate):
    """Values after every bar of cash and holdings in plain floats; the cost is found by bisection."""
    cash, held, values = 1.0, [0.0] * len(targets[0]), [1.0]
    for target, moves in zip(targets, returns, strict=True):
        worth = cash + sum(held)
        if not any(weight != weight for weight in target):
            low, high = 0.0, worth
            for _ in range(200):
                left = (low + high) / 2
                pays = cost * sum(abs(left * a - h) for a, h in zip(target, held, strict=True))
                low, high = (left, high) if left + pays < worth else (low, left)
            held = [low * weight for weight in target]
            cash = low - sum(held)
        held = [
            amount * (1 + move) * (1 + rate if amount < 0 else 1)
            for amount, move in zip(held, moves, strict=True)
        ]
        cash *= 1 + rate if cash < 0 else 1
        values.append(cash + sum(held))
    return values


def moves(bars, assets, seed):
    return np.expm1(np.random.default_rng(seed).normal(0, 0.02, (bars, assets)))


@pytest.mark.parametrize("cost", [0.0, 0.001, 0.05])
@pytest.mark.parametrize("short", [False, True])
def test_an_account_is_what_one_keeps_by_hand(cost, short):
    random = np.random.default_rng(3)
    targets = random.normal(size=(300, 4)) if short else random.dirichlet(np.ones(5), 300)[:, :4]
    targets[random.random(300) < 0.3] = np.nan  # not traded: drifts
    targets /= np.maximum(1, np.abs(targets).sum(axis=1, keepdims=True) / 1.8)
    returns = moves(300, 4, 1)
    done = account(targets, returns, cost, 0.0003)
    values = by_hand(targets.tolist(), returns.tolist(), cost, 0.0003)
    np.testing.assert_allclose(done.log_value, np.log(values), rtol=0, atol=1e-8)
    assert not done.ruined.any()


@pytest.mark.parametrize("cost", [0.0, 0.02])
def test_what_is_bought_once_needs_no_loop(cost):
    returns = moves(200, 5, 6)
    bar_by_bar = account(buy_and_hold(returns), returns, cost).log_value
    np.testing.assert_allclose(held_log_value(returns, cost), bar_by_bar, rtol=0, atol=1e-12)


def test_what_a_trade_leaves_pays_for_the_trade():
    random = np.random.default_rng(0)
    for _ in range(500):
        weights, target = random.normal(size=(2, 7))
        target /= np.abs(target).sum()
        kept = kept_value(weights, target, 0.1)
        assert kept == pytest.approx(1 - 0.1 * np.abs(kept * target - weights).sum(), abs=1e-14)


def test_contributions_and_costs_are_the_growth():
    targets, returns = np.random.default_rng(1).dirichlet(np.ones(3), 50), moves(50, 3, 2)
    done = account(targets, returns, 0.01)
    growth = 1 - done.cost + done.contribution.sum(axis=1)
    np.testing.assert_allclose(np.log(growth), done.log_return, atol=1e-12)


def test_a_ruin_ends_an_account():
    done = account([[-2.0], [-2.0], [-2.0]], [[0.1], [0.6], [0.1]])
    assert done.ruined.tolist() == [False, True, False]
    assert done.log_return.tolist() == [pytest.approx(np.log(0.8)), -10.0, 0.0]


def test_a_cost_that_takes_everything_is_refused():
    with pytest.raises(ProximaError, match=r"env\.fee: at 0\.5 a trade to weights of 2 in all"):
        account([[1.0, -1.0]], [[0.0, 0.0]], 0.5)


def test_the_best_constant_weights_are_best():
    returns = moves(400, 3, 5)
    best = best_constant(returns)
    assert best.gap <= 1e-9
    grid = [(a, b, 100 - a - b) for a in range(101) for b in range(101 - a)]
    tried = np.log((1 + returns) @ (np.array(grid).T / 100)).sum(axis=0)
    assert tried.max() <= best.log_value + 1e-9
    assert best.log_value - tried.max() < 0.01


def test_half_in_each_of_a_pair_that_takes_turns():
    """Cover's example: one doubles and halves by turns, cash stays; half and half grows by 9/8 in two."""
    best = best_constant([[1.0, 0.0], [-0.5, 0.0]] * 20)
    assert best.weights == pytest.approx([0.5, 0.5], abs=1e-5)
    assert best.log_value == pytest.approx(20 * np.log(9 / 8), abs=1e-9)


def test_published_figures_of_nyse_o():
    spec = importlib.util.find_spec("universal")
    if spec is None:
        pytest.skip("needs the package universal-portfolios, whose file nyse_o.csv this reads")
    (folder,) = spec.submodule_search_locations
    table = np.genfromtxt(Path(folder) / "data" / "nyse_o.csv", delimiter=",", skip_header=1)
    # Its first row is what became of 1 on the first of 5,651 days: the prices of 1 are left out.
    prices = np.concatenate([np.ones((1, table.shape[1])), table])
    relative = prices[-1] / prices[0]
    returns = prices[1:] / prices[:-1] - 1
    best = best_constant(returns)
    figures = relative.mean(), relative.max(), np.exp(best.log_value)
    assert figures == pytest.approx(NYSE_O, abs=0.006)
    assert best.gap <= 1e-9
    done = account(np.tile(best.weights, (len(returns), 1)), returns)
    assert done.log_value[-1] == pytest.approx(best.log_value, abs=1e-8)


def test_accounts_side_by_side_are_each_by_itself_to_the_bit():
    random = np.random.default_rng(2)
    targets, returns = random.dirichlet(np.ones(6), (80, 7))[..., 1:], moves(80, 5, 3)
    targets[random.random((80, 7)) < 0.2] = np.nan
    together = account(targets, returns, 0.003, 0.001)
    for index, one in enumerate(side_by_side(together)):
        alone = account(targets[:, index], returns, 0.003, 0.001)
        for name, column in alone._asdict().items():
            assert np.array_equal(getattr(one, name), column, equal_nan=True), name
