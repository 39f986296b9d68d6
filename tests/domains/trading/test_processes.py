"""What the makers of synthetic prices know: filters by their Sharpe ratios, grids by prices."""

import math

import numpy as np
import pytest
from markets import market_of

from proxima.domains.trading.metrics import sharpe
from proxima.domains.trading.patterns import PATTERNS
from proxima.domains.trading.processes import KNOWN
from proxima.domains.trading.synthetic import pattern_params
from proxima.domains.trading.timing import fill_returns


def long_market(pattern, rows=200_000, seed=0, **params):
    params = pattern_params(pattern, params)
    prices = PATTERNS[pattern].closes(rows, params, np.random.default_rng(seed))
    return market_of(prices[1:], np.zeros((rows, 1), np.float32), prices[:-1]), params


def expected_returns(process, states):
    """Means of the next log return, between the states of the grid."""
    return np.interp(states, process.state, (process.chance * process.log_return).sum(axis=1))


@pytest.mark.parametrize(
    ("pattern", "sign_policy", "linear_policy"),
    [
        ("mean_reversion", math.sqrt(0.1 / (math.pi - 0.1)), math.sqrt(0.1 / 2.1)),
        ("trending", 0.164, 0.200),
        ("regime_switching", 0.114, None),
    ],
)
def test_filters_earn_the_sharpe_ratio_that_theory_gives_them(pattern, sign_policy, linear_policy):
    market, params = long_market(pattern)
    returns, known = fill_returns(market, "same_close"), KNOWN[pattern]
    mean = expected_returns(known.process(params), known.states(params, market, 0))[:-1]
    assert sharpe(np.sign(mean) * returns) == pytest.approx(sign_policy, abs=0.012)
    if linear_policy is not None:
        assert sharpe(mean * returns) == pytest.approx(linear_policy, abs=0.012)


@pytest.mark.parametrize(
    ("pattern", "params"),
    [
        ("mean_reversion", {"reversion": 0.4}),
        ("mean_reversion", {"reversion": 1.5}),
        ("upward_drift", {"noise": 0.02}),
        ("trending", {"persistence": -0.5}),
        ("trending", {"persistence": 0.9, "volatility": 0.0}),
        ("regime_switching", {"stay": 0.9}),
        ("regime_switching", {"stay": 0.2, "drift": 0.02}),
        ("regime_switching", {"volatility": 0.0}),
        ("gbm", {"drift": 2.0}),
        ("random_walk", {}),
    ],
)
def test_grids_say_what_the_next_return_and_state_will_be_on_average(pattern, params):
    market, params = long_market(pattern, 50_000, **params)
    known = KNOWN[pattern]
    process = known.process(params)
    np.testing.assert_allclose(process.chance.sum(axis=1), 1)
    assert (np.diff(process.state) > 0).all()
    states = known.states(params, market, 0)[100:]  # filters have settled
    returns = np.diff(np.log(market.close))[100:]
    for seen, grid in ((returns, process.log_return), (states[1:], process.following)):
        for power in (1, 2):
            mean = (process.chance * grid**power).sum(axis=1)
            surprise = seen**power - np.interp(states[:-1], process.state, mean)
            # Neither on average nor in one direction of the state is there anything left to say.
            for part in (surprise, surprise * (states[:-1] - states.mean())):
                deviation = part.std() / math.sqrt(len(part))
                assert abs(part.mean()) < 4 * deviation + 1e-9


def test_a_state_looks_at_no_later_price():
    for pattern, known in KNOWN.items():
        market, params = long_market(pattern, rows=200)
        later = market.close.copy()
        later[100:] *= 1.5
        one = known.states(params, market, 7)
        other = known.states(params, market._replace(close=later), 7)
        np.testing.assert_array_equal(one[:100], other[:100])


def test_the_height_over_a_line_counts_rows_from_the_files_first():
    market, params = long_market("upward_drift", 300, noise=0.01)
    whole = KNOWN["upward_drift"].states(params, market, 0)
    rest = market._replace(close=market.close[100:], open=market.open[100:])
    np.testing.assert_allclose(KNOWN["upward_drift"].states(params, rest, 100), whole[100:])
    assert np.std(whole) == pytest.approx(0.01, rel=0.15)


@pytest.mark.parametrize(
    ("pattern", "params"),
    [
        ("mean_reversion", {"volatility": 0.0}),
        ("mean_reversion", {"reversion": 1e-5}),
        ("upward_drift", {"noise": 0.0}),
        ("trending", {"volatility": 0.0, "drift_volatility": 0.0}),
        ("trending", {"persistence": 0.999999}),
        ("regime_switching", {"volatility": 0.0, "drift": 0.0}),
        ("gbm", {"volatility": 0.0}),
        ("random_walk", {"volatility": 0.0}),
    ],
)
def test_no_grid_where_nothing_is_uncertain_or_all_is_too_slow(pattern, params):
    assert KNOWN[pattern].process(pattern_params(pattern, params)) is None
