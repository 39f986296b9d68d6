"""The environment against the account in float64, bar by bar, for both kinds of weights and every fill."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from panels_of_prices import closes

from proxima.core.errors import ProximaError
from proxima.domains.trading.portfolio.accounting import account, kept_value
from proxima.domains.trading.portfolio.config import PortfolioEnvConfig
from proxima.domains.trading.portfolio.data import Stretch
from proxima.domains.trading.portfolio.env import (
    check_fill,
    portfolio_env,
    target_weights,
    targets_of,
    trade_loss,
)
from proxima.domains.trading.timing import fill_returns

BARS, ASSETS, KINDS = 60, 4, 2
KEY = jax.random.key(0)


def stretch(seed=0, scale=0.02):
    table = closes(BARS, ASSETS, seed, scale)
    opens = table * np.exp(np.random.default_rng(seed + 9).normal(0, 0.01, table.shape))
    time = np.arange(BARS).astype("datetime64[D]").astype("datetime64[us]")
    numbers = np.arange(BARS * ASSETS * KINDS, dtype=np.float32)
    return Stretch(time, opens, table, numbers.reshape(BARS, ASSETS, KINDS))


def config(**settings):
    return PortfolioEnvConfig(**{"max_steps_per_episode": None, **settings})


def actions_for(env, seed=0):
    shape = (len(env.returns), *env.action_space.shape)
    return np.random.default_rng(seed).uniform(-1.3, 1.3, shape).astype(np.float32)


def play(env, actions):
    """Rewards, weights seen at each decision, and which steps ended the episode."""
    state, obs = env.reset(KEY)

    def step(carry, action):
        state, obs = carry
        state, result = env.step(state, action, KEY)
        return (state, result.obs), (result.reward, obs["weights"], result)

    _, (rewards, seen, results) = jax.lax.scan(step, (state, obs), jnp.asarray(actions))
    return rewards, seen, results


def in_float64(env, prices, settings):
    """The environment with every number in float64, its returns unrounded."""
    wide = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, env
    )
    exact = dict(
        returns=jnp.asarray(fill_returns(prices, settings.fill)),
        fee=jnp.asarray(settings.fee),
        borrow_rate=jnp.asarray(settings.borrow_rate),
        leverage=jnp.asarray(settings.leverage),
    )
    return dataclasses.replace(wide, **exact)


ACCOUNTS = [
    {"fee": 0.0},
    {"fee": 0.002},
    {"fee": 0.02, "fill": "same_close"},
    {"fee": 0.002, "weights": "long_short", "leverage": 1.8, "borrow_rate": 0.0005},
    {"fee": 0.002, "weights": "long_short", "leverage": 3.0, "fill": "next_close"},
]


@pytest.mark.parametrize("settings", ACCOUNTS)
def test_rewards_are_the_accounts_log_returns(settings):
    settings = config(**settings)
    prices = stretch()
    env = portfolio_env(prices, settings, training=False)
    actions = actions_for(env)
    rewards, _, results = play(env, actions)
    returns = fill_returns(prices, settings.fill)
    done = account(targets_of(actions, settings), returns, settings.fee, settings.borrow_rate)
    np.testing.assert_allclose(rewards, done.log_return, atol=2e-6)
    assert results.truncated.tolist() == [False] * (len(returns) - 1) + [True]
    assert not np.asarray(results.terminated).any()


@pytest.mark.parametrize("settings", ACCOUNTS)
def test_in_float64_the_environment_is_the_account_to_1e_8(settings):
    settings = config(**settings)
    prices = stretch(3)
    with jax.enable_x64(True):
        env = in_float64(portfolio_env(prices, settings, training=False), prices, settings)
        actions = actions_for(env, 1).astype(np.float64)
        rewards, _, _ = play(env, actions)
    returns = fill_returns(prices, settings.fill)
    done = account(targets_of(actions, settings), returns, settings.fee, settings.borrow_rate)
    np.testing.assert_allclose(rewards, done.log_return, rtol=0, atol=1e-8)


def test_many_at_once_are_as_one_by_one():
    env = portfolio_env(stretch(), config(), training=False)
    several = np.stack([actions_for(env, seed) for seed in range(3)])
    together = jax.vmap(partial(play, env))(several)[0]
    alone = np.stack([play(env, actions)[0] for actions in several])
    np.testing.assert_allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize(
    ("fill", "shift"), [("next_open", None), ("next_close", 0), ("same_close", 1)]
)
def test_weights_are_seen_as_they_are_worth_at_the_close(fill, shift):
    settings, prices = config(fee=0.0, fill=fill), stretch(5)
    env = portfolio_env(prices, settings, training=False)
    actions = actions_for(env)
    _, seen, _ = play(env, actions)
    targets = targets_of(actions, settings)
    for bar in range(1, len(targets)):
        bought = prices.open[bar] if fill == "next_open" else prices.close[bar - shift]
        worth = targets[bar - 1] * prices.close[bar] / bought
        cash = 1 - targets[bar - 1].sum()
        np.testing.assert_allclose(seen[bar], worth / (worth.sum() + cash), atol=2e-6)


def test_an_observation_is_of_the_last_bars_and_no_other():
    settings = config(window=3)
    env = portfolio_env(stretch(), settings, training=False)
    _, obs = env.reset(KEY)
    assert (
        obs["features"].shape == (ASSETS, 3 * KINDS) == env.observation_space.get("features").shape
    )
    features = np.asarray(stretch().features)
    expected = np.concatenate([features[0], features[1], features[2]], axis=-1)
    np.testing.assert_array_equal(obs["features"], expected)
    changed = dataclasses.replace(env, features=env.features.at[3:].add(1e6))
    np.testing.assert_array_equal(changed.reset(KEY)[1]["features"], expected)


def test_prices_after_a_decision_change_nothing_before_it():
    prices, settings = stretch(), config(fill="next_close")
    later = prices._replace(close=prices.close.copy())
    later.close[40:] *= 1.5
    first, second = (portfolio_env(each, settings, training=False) for each in (prices, later))
    actions = actions_for(first)
    one, other = play(first, actions), play(second, actions)
    # The decision of bar 37 is settled at the close of bar 39.
    np.testing.assert_array_equal(one[0][:38], other[0][:38])
    assert not np.array_equal(one[0], other[0])


def test_a_constant_price_without_a_fee_earns_nothing():
    prices = stretch()
    flat = prices._replace(open=np.ones_like(prices.open), close=np.ones_like(prices.close))
    env = portfolio_env(flat, config(fee=0.0), training=False)
    assert np.abs(play(env, actions_for(env))[0]).max() < 1e-7


def test_a_ruin_terminates():
    prices = stretch()
    rising = prices._replace(close=prices.close * np.linspace(1, 40, BARS)[:, None] ** 3)
    settings = config(weights="long_short", leverage=10.0, fill="same_close")
    env = portfolio_env(rising, settings, training=False)
    state, _ = env.reset(KEY)
    _, result = env.step(state, -jnp.ones(ASSETS), KEY)
    assert bool(result.terminated) and not bool(result.truncated) and float(result.reward) == -10


def test_actions_are_weights():
    uniform = target_weights(np.zeros(5), True, 1.0)
    assert uniform == pytest.approx(np.full(4, 0.2))
    all_in = target_weights(np.array([-1, 1, -1, -1, -1]), True, 1.0)
    assert all_in[0] > 0.99 and all_in.sum() < 1
    short = target_weights(np.array([1.0, -1.0, 0.0, 0.0]), False, 2.0)
    assert short.tolist() == [1.0, -1.0, 0.0, 0.0]
    assert target_weights(np.array([0.1, 0.0, 0.0, 0.0]), False, 2.0).tolist() == [0.2, 0, 0, 0]


@pytest.mark.parametrize("fee", [0.0005, 0.005, 0.05, 0.2])
def test_a_trades_cost_is_exact_in_float32(fee):
    random = np.random.default_rng(0)
    for assets in (2, 36):
        targets, weights = random.dirichlet(np.full(assets + 1, 0.3), (2, 500))[..., 1:]
        exact = 1 - kept_value(weights, targets, fee)
        single = [jnp.asarray(each, jnp.float32) for each in (weights, targets)]
        lost = jax.vmap(trade_loss, (0, 0, None))(*single, jnp.float32(fee))
        np.testing.assert_allclose(lost, exact, rtol=0, atol=1e-7)


def test_the_penalties_and_the_sharpe_ratio_are_taken_from_the_reward():
    prices = stretch()
    plain = portfolio_env(prices, config(fee=0.0), training=False)
    actions = actions_for(plain)
    base = play(plain, actions)[0]
    turned = play(portfolio_env(prices, config(fee=0.0, turnover_penalty=0.1), False), actions)[0]
    assert (np.asarray(turned) < np.asarray(base)).all()
    ratio = play(portfolio_env(prices, config(reward="differential_sharpe"), False), actions)[0]
    assert np.isfinite(ratio).all() and np.abs(ratio).max() <= 10


def test_opens_that_a_file_does_not_have_are_refused():
    with pytest.raises(ProximaError, match=r"env\.fill: next_open, and x\.csv has closing prices"):
        check_fill(True, config(), "x.csv")
    check_fill(True, config(fill="next_close"), "x.csv")
    check_fill(False, config(), "x.csv")


def test_a_fee_that_takes_everything_is_refused():
    with pytest.raises(ProximaError, match=r"env\.fee: at 0\.6 .* less leverage"):
        portfolio_env(stretch(), config(weights="long_short", leverage=2.0, fee=0.6), False)
