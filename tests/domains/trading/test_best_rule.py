"""The best rule: as good as trying everything on small trees, and better than any simple rule on prices."""

import itertools
import math

import numpy as np
import pytest
from markets import market_of

from proxima.domains.trading.accounting import account, hold, trade_factor
from proxima.domains.trading.best_rule import best_rule, solve
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.patterns import PATTERNS
from proxima.domains.trading.processes import KNOWN, Process
from proxima.domains.trading.synthetic import pattern_params
from proxima.domains.trading.timing import decisions, fill_returns

THREE = (-1.0, 0.0, 1.0)
# Two states of two returns each, that lead to the other state or stay.
TREE = Process(
    state=np.array([0.0, 1.0]),
    log_return=np.array([[0.10, -0.06], [0.03, -0.12]]),
    chance=np.array([[0.6, 0.4], [0.3, 0.7]]),
    following=np.array([[0.0, 1.0], [0.0, 1.0]]),
)
BARS = 4


def branches(state):
    """Probability, simple return and next state, of each return."""
    parts = TREE.chance[state], np.expm1(TREE.log_return[state]), TREE.following[state]
    return [(chance, move, int(after)) for chance, move, after in zip(*parts, strict=True)]


def best_now(left, state, asked, weight, config):
    """The largest expected log value, by trying everything: filled before the bar's return."""
    if not left:
        return 0.0

    def held(target, weight):
        total = 0.0
        for chance, move, after in branches(state):
            growth, drifted = hold(weight, move, config.borrow_rate)
            value = best_now(left - 1, after, target, drifted, config)
            total += chance * (math.log(growth) + value)
        return total

    values = [
        held(target, weight)
        if target == asked
        else math.log(trade_factor(weight, target, config.fee, config.slippage))
        + held(target, target)
        for target in {*config.positions, asked}
    ]
    return max(values)


def best_late(left, state, asked, weight, config):
    """The same, filled after the bar's return."""

    def filled(target):
        total = 0.0
        for chance, move, after in branches(state):
            growth, drifted = hold(weight, move, config.borrow_rate)
            cost, then = 0.0, drifted
            if target != asked:
                cost = math.log(trade_factor(drifted, target, config.fee, config.slippage))
                then = target
            value = best_late(left - 1, after, target, then, config)
            total += chance * (math.log(growth) + cost + value)
        return total

    if not left:
        return sum(
            chance * math.log(hold(weight, move, config.borrow_rate)[0])
            for chance, move, _ in branches(state)
        )
    return max(filled(target) for target in {*config.positions, asked})


def expected_value(rule, config, start):
    """What following the rule earns on average over all paths of the tree."""
    late, total = config.fill == "next_close", 0.0
    for path in itertools.product((0, 1), repeat=BARS + late):
        state, chance, states, moves = start, 1.0, [], []
        for choice in path:
            states.append(float(state))
            probability, move, state = branches(state)[choice]
            chance *= probability
            moves.append(move)
        returns = np.array(moves[late:])  # a late fill misses the first
        targets = rule.follow(np.array(states[:BARS]), returns)
        total += (
            chance
            * account(targets, returns, config.fee, config.borrow_rate, config.slippage).log_value[
                -1
            ]
        )
    return total


@pytest.mark.parametrize("fill", ["same_close", "next_close"])
@pytest.mark.parametrize(
    "costs", [{"fee": 0.0}, {"fee": 0.02}, {"fee": 0.005, "slippage": 0.01, "borrow_rate": 0.01}]
)
@pytest.mark.parametrize("positions", [THREE, (0.0, 1.0), (-1.0, 0.5, 2.0)])
def test_nothing_earns_more_on_a_tree(fill, costs, positions):
    config = TradingEnvConfig(fill=fill, positions=positions, **costs)
    rule = solve(TREE, config, BARS)
    for start in (0, 1):
        best = (best_late if fill == "next_close" else best_now)(BARS, start, 0.0, 0.0, config)
        assert expected_value(rule, config, start) == pytest.approx(best, abs=2e-6)


def test_continuous_weights_earn_no_less_than_positions_and_rebalance():
    config = TradingEnvConfig(
        fill="same_close", actions="continuous", positions=(-1.0, 1.0), fee=0.0
    )
    many = tuple(np.linspace(-1, 1, 11).round(4).tolist())
    fine = TradingEnvConfig(fill="same_close", positions=many, fee=0.0)
    rule = solve(TREE, config, BARS)
    for start in (0, 1):
        assert expected_value(rule, config, start) > best_now(3, start, 0.0, 0.0, fine)


def made(pattern, rows, seed=0, **params):
    """Prices of a pattern, and all its settings."""
    params = pattern_params(pattern, params)
    prices = PATTERNS[pattern].closes(rows, params, np.random.default_rng(seed))
    return market_of(prices[1:], np.zeros((rows, 1), np.float32), prices[:-1]), params


def simple_rules(market, states, positions):
    """Targets of constants, and of signs of the last return, the last two, and the state, with bands."""
    last = np.diff(np.log(market.close), prepend=np.log(market.open[0]))
    two = last + np.concatenate([[0.0], last[:-1]])
    yield from (np.full(len(last), position) for position in positions)
    low, high = min(positions), max(positions)
    for signal in (last, two, states - states.mean()):
        for sign, band, shift in itertools.product((1, -1), (0, 0.2, 0.6), (-0.3, 0, 0.3)):
            level = sign * signal / signal.std() if signal.std() else signal
            asked = np.where(
                level > shift + band, high, np.where(level < shift - band, low, np.nan)
            )
            since = np.maximum.accumulate(np.where(np.isnan(asked), 0, np.arange(len(asked))))
            yield np.nan_to_num(asked[since])


CASES = [
    ("mean_reversion", {}),
    ("upward_drift", {"noise": 0.02}),
    ("trending", {"persistence": -0.5, "drift_volatility": 0.01}),
    ("regime_switching", {"stay": 0.9, "drift": 0.01}),
    ("gbm", {"drift": -0.5}),
]


@pytest.mark.parametrize("fill", ["next_open", "next_close"])
@pytest.mark.parametrize(("fee", "positions"), [(0.0, THREE), (0.002, (-1.0, 0.5, 2.0))])
@pytest.mark.parametrize(("pattern", "params"), CASES)
def test_no_simple_rule_earns_more(pattern, params, positions, fee, fill):
    rows, blocks = 3_000, 40
    market, params = made(pattern, rows, **params)
    config = TradingEnvConfig(fill=fill, fee=fee, positions=positions)
    bars, returns = decisions(market, config), fill_returns(market, fill)
    best = best_rule(pattern, params, config, rows).targets(market, 0)
    states = KNOWN[pattern].states(params, market, 0)
    others = np.array([targets[bars] for targets in simple_rules(market, states, positions)])
    earned = account(best, returns, fee, 0.0).log_return
    more = account(others, returns, fee, 0.0).log_return - earned
    more = more[:, : len(returns) // blocks * blocks].reshape(len(others), blocks, -1).sum(axis=-1)
    error = more.std(axis=1, ddof=1) / math.sqrt(blocks) + 1e-6
    assert (more.mean(axis=1) / error).max() < 2.5


def test_noise_about_a_rise_is_worth_trading():
    market, params = made("upward_drift", 1_000, noise=0.02)
    config = TradingEnvConfig(fee=0.0)
    targets = best_rule("upward_drift", params, config, 1_000).targets(market, 0)
    returns = fill_returns(market, config.fill)
    earned = account(targets, returns, 0.0, 0.0).log_value[-1]
    assert earned > 5 * account(np.ones(len(returns)), returns, 0.0, 0.0).log_value[-1]


def test_a_later_fill_may_turn_the_sign():
    """At a persistence of −0.5 the bar after the next goes the other way."""
    market, params = made("trending", 500, persistence=-0.5, drift_volatility=0.02)
    rules = [
        TradingEnvConfig(fee=0.0, fill=fill, positions=(0.0, 1.0))
        for fill in ("same_close", "next_close")
    ]
    soon, late = (best_rule("trending", params, config, 500).targets(market, 0) for config in rules)
    assert np.mean(soon[: len(late)] != late) > 0.95


@pytest.mark.parametrize(
    ("pattern", "params", "settings"),
    [
        (None, {}, {}),
        ("sine_wave", {}, {}),
        ("upward_drift", {"noise": 0.0}, {}),
        ("heston", {"drift": 0.1}, {}),
        ("garch", {}, {"positions": (-1.0, 1.0)}),
        ("jump_diffusion", {}, {"actions": "continuous", "positions": (0.5, 1.0)}),
        ("mean_reversion", {}, {"actions": "continuous"}),
        ("mean_reversion", {}, {"actions": "continuous", "fee": 0.0, "slippage": 0.001}),
        ("mean_reversion", {"reversion": 1e-4}, {}),
    ],
)
def test_there_is_no_rule_where_none_is_known(pattern, params, settings):
    params = pattern_params(pattern, params) if pattern else {}
    assert best_rule(pattern, params, TradingEnvConfig(**settings), 100) is None


@pytest.mark.parametrize("pattern", ["random_walk", "garch", "jump_diffusion", "heston"])
@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_the_best_of_a_martingale_is_to_stay_out(pattern, actions):
    market, params = made(pattern, 50)
    rule = best_rule(pattern, params, TradingEnvConfig(actions=actions), 50)
    assert set(rule.targets(market, 0)) == {0.0}


def test_one_that_grows_by_chance_is_held_at_mertons_weight_and_no_other():
    market, params = made("gbm", 300)
    config = TradingEnvConfig(actions="continuous", positions=(-3.0, 3.0), fee=0.0)
    targets = best_rule("gbm", params, config, 300).targets(market, 0)
    np.testing.assert_allclose(targets, 0.08 / 0.2**2, atol=2e-3)
    done = account(targets, fill_returns(market, config.fill), 0.0, 0.0)
    np.testing.assert_allclose(done.weight, 0.08 / 0.2**2, atol=2e-3)  # it does not drift


def test_one_who_pays_more_than_there_is_to_come_does_not_enter():
    market, params = made("gbm", 300)
    config = TradingEnvConfig(positions=(0.0, 1.0), fee=0.2)
    assert not best_rule("gbm", params, config, 300).targets(market, 0).any()
    cheap = TradingEnvConfig(positions=(0.0, 1.0), fee=0.001)
    held = best_rule("gbm", params, cheap, 300).targets(market, 0)
    assert set(held) == {1.0}


def test_a_rule_looks_at_no_later_price():
    for fill in ("same_close", "next_close"):
        market, params = made("mean_reversion", 200)
        later = market.close.copy()
        later[100:] *= 1.5
        rule = best_rule("mean_reversion", params, TradingEnvConfig(fill=fill), 200)
        one = rule.targets(market, 0)
        other = rule.targets(market._replace(close=later), 0)
        np.testing.assert_array_equal(one[:100], other[:100])
        assert len(one) == len(fill_returns(market, fill))
