"""The compiled environment: the account's numbers, endings, starts, rewards, and no look ahead."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from markets import market_of, random_market
from portfolio import by_hand, log_returns

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Discrete
from proxima.domains.trading.accounting import RUIN_REWARD, account
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import SHARPE_CLIP, targets_of, trading_env
from proxima.domains.trading.timing import fill_prices, fill_returns, mark_returns

POSITIONS = (-1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
KEY = jax.random.key(0)
FILLS = ["same_close", "next_open", "next_close"]


def settings(**changes):
    return TradingEnvConfig(**{"positions": POSITIONS, "fill": "same_close", **changes})


def run(env, actions, state=None):
    """A scan over the actions from a reset on: all steps and the last state."""
    if state is None:
        state, _ = env.reset(KEY)
    return jax.lax.scan(lambda state, action: env.step(state, action, KEY), state, actions)


def all_actions(env, seed=0):
    random = np.random.default_rng(seed)
    steps = len(env.returns) - env.window + 1
    if isinstance(env.action_space, Discrete):
        return jnp.asarray(random.integers(env.action_space.n, size=steps), jnp.int32)
    low, high = env.action_space.low[0], env.action_space.high[0]
    return jnp.asarray(random.uniform(low, high, (steps, 1)), jnp.float32)


def test_last_bit_of_a_continuous_action_decides_about_no_trade():
    env = trading_env(random_market(), settings(actions="continuous", fee=0.01), training=False)
    exact = jnp.full((len(env.returns), 1), -1.0)
    almost = exact.at[::3].set(jnp.nextafter(jnp.float32(-1.0), jnp.float32(0.0)))
    assert (almost != exact).any()
    np.testing.assert_array_equal(run(env, almost)[1].reward, run(env, exact)[1].reward)
    config = settings(actions="continuous")
    assert len(set(targets_of(np.asarray(almost), config))) == 1


def test_golden_path():
    market = market_of([100.0, 102, 101, 105, 103, 99, 98, 100])
    env = trading_env(market, settings(fee=0.001), training=False)
    actions = jnp.asarray([POSITIONS.index(target) for target in (1, 1, -1, -1, 0.5, 2, 2)])
    _, steps = run(env, actions)
    values = 1000 * np.exp(np.cumsum(np.asarray(steps.reward, np.float64)))
    expected = [
        1018.98, 1008.99, 967.093876123876, 987.033956043956, 966.376594172570, 945.425607379167,
        984.412230363875,
    ]  # fmt: skip
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize(
    ("fee", "rate", "slippage"), [(0.0, 0.0, 0.0), (0.001, 0.0, 0.002), (0.002, 0.001, 0.0)]
)
def test_scan_vmap_and_a_plain_loop_agree(kind, fee, rate, slippage):
    market = random_market(1)
    config = settings(fee=fee, borrow_rate=rate, slippage=slippage, actions=kind)
    env = trading_env(market, config, training=False)
    rows = [all_actions(env, seed) for seed in range(5)]
    state, _ = jax.vmap(env.reset)(jax.random.split(KEY, 5))
    step = jax.vmap(lambda state, action: env.step(state, action, KEY))
    _, together = jax.lax.scan(step, state, jnp.stack(rows, axis=1))
    for index, actions in enumerate(rows):
        _, alone = run(env, actions)
        np.testing.assert_allclose(together.reward[:, index], alone.reward, atol=1e-6)
        np.testing.assert_allclose(together.obs[:, index], alone.obs, rtol=1e-5, atol=1e-6)
        targets = targets_of(actions, config).tolist()
        values = by_hand(targets, market.close.tolist(), fee, rate, slippage)
        np.testing.assert_allclose(alone.reward, log_returns(values), atol=2e-6)


@pytest.mark.parametrize("fill", FILLS)
def test_rewards_are_the_accounts_returns_at_every_fill(fill):
    market = random_market(2)
    config = settings(fill=fill, fee=0.001, borrow_rate=0.001)
    env = trading_env(market, config, training=False)
    actions = all_actions(env)
    _, steps = run(env, actions)
    found = account(targets_of(actions, config), fill_returns(market, fill), 0.001, 0.001)
    np.testing.assert_allclose(steps.reward, found.log_return, atol=1e-6)
    assert float(steps.reward.sum()) == pytest.approx(found.log_value[-1], abs=1e-5)


def test_fill_prices():
    market = random_market(3, bars=5)
    np.testing.assert_array_equal(fill_prices(market, "same_close"), market.close)
    np.testing.assert_array_equal(fill_prices(market, "next_open"), market.open[1:])
    np.testing.assert_array_equal(fill_prices(market, "next_close"), market.close[1:])
    np.testing.assert_allclose(
        mark_returns(market, "next_open"), [0, *(market.close / market.open - 1)[1:4]]
    )
    np.testing.assert_allclose(mark_returns(market, "next_close"), np.zeros(4), atol=1e-15)
    np.testing.assert_allclose(
        mark_returns(market, "same_close"), [0, *(market.close[1:] / market.close[:-1] - 1)]
    )


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("bar", [10, 40])
def test_prices_after_a_bar_change_no_observation_up_to_it(fill, bar):
    market = random_market(4)
    env = trading_env(market, settings(fill=fill), training=False)
    changed = market._replace(
        open=np.concatenate([market.open[: bar + 1], market.open[bar + 1 :] * 1.3]),
        close=np.concatenate([market.close[: bar + 1], market.close[bar + 1 :] * 0.7]),
    )
    other = trading_env(changed, settings(fill=fill), training=False)
    actions = jnp.full_like(
        all_actions(env), POSITIONS.index(0.5)
    )  # held, so that its weight drifts
    _, one = run(env, actions)
    _, two = run(other, actions)
    # Step s shows the observation of bar s + 1.
    np.testing.assert_array_equal(one.obs[:bar], two.obs[:bar])
    assert not np.array_equal(one.obs, two.obs)


def test_observation_is_the_window_of_features_and_the_weight_at_the_close():
    market = random_market(5)
    env = trading_env(market, settings(window=4, fill="next_open"), training=False)
    state, obs = env.reset(KEY)
    assert env.observation_space.shape == obs.shape == (4 * 3 + 1,)
    np.testing.assert_array_equal(obs[:-1], market.features[:4].ravel())
    assert obs[-1] == 0
    state, step = env.step(state, jnp.int32(POSITIONS.index(0.5)), KEY)
    np.testing.assert_array_equal(step.obs[:-1], market.features[1:5].ravel())
    mark = market.close[4] / market.open[4]  # filled at the open of bar 4
    assert float(step.obs[-1]) == pytest.approx(0.5 * mark / (0.5 + 0.5 * mark), rel=1e-6)


def test_ends_truncated_at_the_last_bar_and_at_the_length():
    market = random_market(6, bars=30)
    env = trading_env(market, settings(), training=False)
    _, steps = run(env, all_actions(env))
    assert not steps.terminated.any()
    assert steps.truncated.tolist() == [False] * 28 + [True]
    short = trading_env(
        market, settings(max_steps_per_episode=7, random_start=False), training=True
    )
    _, steps = run(short, all_actions(short)[:7])
    assert steps.truncated.tolist() == [False] * 6 + [True]


@pytest.mark.parametrize("reward", ["log_return", "differential_sharpe"])
def test_ruin_terminates_with_its_own_reward(reward):
    market = market_of([100.0, 101, 250, 100])
    config = settings(reward=reward, turnover_penalty=1.0, drawdown_penalty=1.0)
    env = trading_env(market, config, training=False)
    _, steps = run(env, jnp.asarray([0, 0, 0]))
    assert steps.terminated.tolist()[:2] == [False, True]
    assert not steps.truncated[1]
    assert float(steps.reward[1]) == RUIN_REWARD
    assert np.isfinite(steps.obs).all()


def test_a_ruin_on_the_last_bar_is_not_a_truncation():
    env = trading_env(market_of([100.0, 101, 250]), settings(), training=False)
    _, steps = run(env, jnp.asarray([0, 0]))
    assert steps.terminated.tolist() == [False, True]
    assert steps.truncated.tolist() == [False, False]


@pytest.mark.parametrize(
    ("length", "window", "last"), [(None, 1, 18), (5, 1, 14), (5, 3, 14), (50, 1, 18), (19, 1, 0)]
)
def test_random_starts_leave_a_whole_episode_where_one_fits(length, window, last):
    market = random_market(7, bars=20)
    config = settings(max_steps_per_episode=length, window=window)
    env = trading_env(market, config, training=True)
    states, _ = jax.vmap(env.reset)(jax.random.split(KEY, 2_000))
    assert set(np.asarray(states.time).tolist()) == set(range(window - 1, last + 1))
    assert (states.end > states.time).all()
    fixed = trading_env(market, config, training=False)
    states, _ = jax.vmap(fixed.reset)(jax.random.split(KEY, 10))
    assert set(np.asarray(states.time).tolist()) == {window - 1}


def slow_differential_sharpe(returns, rate):
    """Moody and Saffell's formula as they wrote it, in moments A and B."""
    mean = square = 0.0
    found = []
    for bar, one in enumerate(returns):
        variance = square - mean**2
        if variance > 1e-12:
            raw = (square * (one - mean) - mean * (one**2 - square) / 2) / variance**1.5
            found.append(min(max(raw, -SHARPE_CLIP), SHARPE_CLIP))
        else:
            found.append(0.0)
        weight = max(rate, 1 / (bar + 1))
        mean += weight * (one - mean)
        square += weight * (one**2 - square)
    return found


def test_differential_sharpe_against_a_slow_loop():
    market = random_market(8, bars=300)
    config = settings(reward="differential_sharpe", sharpe_rate=0.02, fee=0.001)
    env = trading_env(market, config, training=False)
    actions = all_actions(env)
    _, steps = run(env, actions)
    values = by_hand(targets_of(actions, config).tolist(), market.close.tolist(), 0.001)
    expected = slow_differential_sharpe(log_returns(values), 0.02)
    np.testing.assert_allclose(steps.reward, expected, rtol=2e-3, atol=2e-3)
    assert np.abs(expected).max() > 1  # it is not all clipped or 0


def test_penalties():
    market = random_market(9)
    plain = trading_env(market, settings(fee=0.001), training=False)
    actions = all_actions(plain)
    _, bare = run(plain, actions)
    costly = settings(fee=0.001, turnover_penalty=0.5, drawdown_penalty=0.25)
    _, steps = run(trading_env(market, costly, training=False), actions)
    found = account(targets_of(actions, costly), fill_returns(market, "same_close"), 0.001, 0.0)
    fall = 1 - np.exp(found.log_value - np.maximum.accumulate(found.log_value))
    deeper = np.maximum(np.diff(fall), 0)
    expected = bare.reward - 0.5 * np.abs(found.traded) - 0.25 * deeper
    np.testing.assert_allclose(steps.reward, expected, atol=1e-5)


def test_continuous_actions_are_clipped_and_discrete_ones_are_positions():
    market = random_market(10)
    config = settings(actions="continuous", positions=(-0.5, 1.0))
    env = trading_env(market, config, training=False)
    assert env.action_space == Box((1,), (-0.5,), (1.0,))
    state, _ = env.reset(KEY)
    state, _ = env.step(state, jnp.asarray([7.0]), KEY)
    assert float(state.target) == 1.0
    state, _ = env.step(state, jnp.asarray([-7.0]), KEY)
    assert float(state.target) == -0.5
    np.testing.assert_allclose(targets_of(np.array([[7.0], [-7.0], [0.2]]), config), [1, -0.5, 0.2])
    assert targets_of(np.array([0, 5]), settings()).tolist() == [-1.0, 2.0]


def test_numbers_are_leaves_so_that_changing_them_compiles_nothing():
    market = random_market(11)
    plain = trading_env(market, settings(), training=True)
    changed = settings(
        fee=0.01, slippage=0.02, borrow_rate=0.1, turnover_penalty=1.0, drawdown_penalty=2.0, sharpe_rate=0.5,
        max_steps_per_episode=3,
    )  # fmt: skip
    other = trading_env(random_market(12), changed, training=False)
    assert jax.tree.structure(plain) == jax.tree.structure(other)
    shapes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(env)] for env in (plain, other)]
    assert shapes[0] == shapes[1]
    state, step = jax.eval_shape(plain.step, plain.reset(KEY)[0], jnp.int32(0), KEY)
    first, _ = jax.eval_shape(plain.reset, KEY)
    assert jax.tree.map(lambda a: (a.shape, a.dtype, a.weak_type), state) == jax.tree.map(
        lambda a: (a.shape, a.dtype, a.weak_type), first
    )
    assert step.reward.dtype == jnp.float32


def test_constant_price_without_costs_rewards_nothing():
    env = trading_env(market_of([100.0] * 30), settings(fee=0.0), training=False)
    _, steps = run(env, all_actions(env))
    np.testing.assert_array_equal(steps.reward, np.zeros(29))


def test_long_paths_stay_exact_in_float32():
    random = np.random.default_rng(0)
    market = market_of(50_000 * np.exp(np.cumsum(random.normal(0, 1e-5, 20_001))))
    config = settings(positions=(-1.0, 0.0, 1.0), fee=1e-5)
    env = trading_env(market, config, training=False)
    actions = all_actions(env)
    _, steps = run(env, actions)
    found = account(targets_of(actions, config), fill_returns(market, "same_close"), 1e-5, 0.0)
    total = float(np.asarray(steps.reward, np.float64).sum())
    assert total == pytest.approx(found.log_value[-1], rel=1e-5)


@pytest.mark.parametrize(
    ("bars", "changes", "message"),
    [
        (5, {"window": 5, "fill": "next_open"}, "env.window: 5 bars"),
        (9, {"positions": (1.0, 1.0)}, "names a position twice"),
        (9, {"positions": (-1.0, 0.0), "fee": 0.6}, "env.fee: at 0.6"),
        (9, {"positions": (0.0, 2.0), "fee": 0.5}, "env.fee: at 0.5"),
        (9, {"positions": (0.0, 2.0), "slippage": 0.5}, "at 0.001 with env.slippage 0.5 a trade"),
    ],
)
def test_impossible_settings_are_told_in_words(bars, changes, message):
    with pytest.raises(ProximaError, match=message):
        trading_env(random_market(0, bars), settings(**changes), training=True)


def test_smallest_stretch_has_one_step():
    env = trading_env(random_market(0, 6), settings(window=4, fill="next_open"), training=True)
    state, _ = env.reset(KEY)
    _, step = env.step(state, jnp.int32(4), KEY)
    assert bool(step.truncated)
    assert math.isfinite(float(step.reward))
