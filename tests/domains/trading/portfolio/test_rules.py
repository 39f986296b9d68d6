"""Rules against the package that quants know, against brute force, and against their own future."""

import itertools
import warnings

import numpy as np
import pytest
from panels_of_prices import closes

from proxima.domains.trading.portfolio import rules
from proxima.domains.trading.portfolio.accounting import account
from proxima.domains.trading.portfolio.oracles import foresight

ONLINE = (rules.anticor, rules.olmar, rules.newton)


@pytest.fixture(scope="module")
def theirs():
    """What universal-portfolios decides on the closes of a year and a half of six stocks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pandas = pytest.importorskip("pandas")
        algos = pytest.importorskip("universal.algos")
        solvers = pytest.importorskip("cvxopt").solvers
        table = closes(180, 6, seed=4)
        for name in ("abstol", "reltol", "feastol"):  # its defaults stop at three digits
            solvers.options[name] = 1e-13
        made = (algos.Anticor(c_version=False), algos.OLMAR(), algos.ONS())
        return table, [each.run(pandas.DataFrame(table)).B.to_numpy() for each in made]


@pytest.mark.parametrize(("index", "tolerance"), [(0, 1e-9), (1, 1e-9), (2, 1e-5)])
def test_online_rules_are_those_of_universal_portfolios(theirs, index, tolerance):
    table, weights = theirs
    ours = ONLINE[index](table)
    # Its row t + 1 is decided after bar t, ours is row t.
    np.testing.assert_allclose(ours[:-1], weights[index][1:], rtol=0, atol=tolerance)
    assert np.abs(ours - 1 / 6).max() > 0.1  # it did something


@pytest.mark.parametrize("rule", ONLINE)
def test_online_rules_know_nothing_of_what_follows(rule):
    table = closes(120, 4, seed=1)
    changed = table.copy()
    changed[80:] *= np.random.default_rng(0).uniform(0.5, 2, changed[80:].shape)
    first, second = rule(table), rule(changed)
    assert np.array_equal(first[:80], second[:80]) and not np.array_equal(first, second)


@pytest.mark.parametrize("rule", [*ONLINE, rules.rebalanced])
def test_weights_are_on_the_simplex(rule):
    weights = rule(closes(150, 5, seed=2))
    assert weights.min() >= -1e-15
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)


def test_the_nearest_weights_in_a_norm_are_nearest():
    random = np.random.default_rng(5)
    for _ in range(50):
        root, point = random.normal(size=(6, 6)), random.normal(size=6)
        norm = root @ root.T + 0.1 * np.eye(6)
        found = rules.nearest_in_norm(point, norm, np.full(6, 1 / 6))
        assert found.min() >= 0 and found.sum() == pytest.approx(1, abs=1e-12)
        slope = 2 * norm @ (found - point)
        # No money moved from what is held to anything else would bring it nearer.
        assert slope[found > 1e-12].max() - slope.min() < 1e-8


def test_the_nearest_on_the_simplex_are_nearest():
    found = rules.on_simplex(np.array([0.6, 0.5, -3.0]))
    assert found == pytest.approx([0.55, 0.45, 0.0])
    assert rules.on_simplex(np.array([0.2, 0.3, 0.5])) == pytest.approx([0.2, 0.3, 0.5])


def test_buying_and_holding_is_the_mean_of_what_became_of_each():
    table = closes(60, 3, seed=3)
    returns = table[1:] / table[:-1] - 1
    done = account(rules.buy_and_hold(returns), returns, 0.01)
    assert np.exp(done.log_value[-1]) == pytest.approx((table[-1] / table[0]).mean() / 1.01)
    best = account(rules.best_asset(returns), returns, 0.01)
    assert np.exp(best.log_value[-1]) == pytest.approx((table[-1] / table[0]).max() / 1.01)


@pytest.mark.parametrize("fee", [0.0, 0.01, 0.1])
def test_foresight_is_the_best_of_all_paths(fee):
    returns = np.random.default_rng(8).normal(0, 0.05, (6, 2))
    choices = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    paths = np.stack(
        [choices[list(path)] for path in itertools.product(range(3), repeat=6)], axis=1
    )
    every = account(paths, returns, fee).log_value[-1]
    done = account(foresight(returns, fee), returns, fee)
    assert done.log_value[-1] == pytest.approx(every.max(), abs=1e-12)


def test_foresight_beats_any_mixture():
    returns = np.random.default_rng(9).normal(0, 0.03, (40, 3))
    best = account(foresight(returns, 0.005), returns, 0.005).log_value[-1]
    mixed = np.random.default_rng(1).dirichlet(np.ones(4), (40, 500))[..., 1:]
    assert account(mixed, returns, 0.005).log_value[-1].max() < best


def test_the_best_expected_return_is_known_of_prices_that_are_drawn_back():
    params = {"reversion": 0.1, "volatility": 0.01, "base": 100.0}
    table = np.array([[90.0, 100.0, 80.0], [130.0, 120.0, 110.0]])
    rows = rules.best_expected("mean_reversion", params, table)
    assert rows is not None
    assert rows.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert rules.best_expected("sine_wave", {}, table) is None
