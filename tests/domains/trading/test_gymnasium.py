"""The Gymnasium environment: registered, accepted by Gymnasium's checker, equal to the compiled one."""

import subprocess
import sys
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from markets import market_of, random_market

import proxima
from proxima.core.errors import ProximaError
from proxima.domains.trading.accounting import RUIN_REWARD
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import trading_env
from proxima.domains.trading.gymnasium import config_of

assert proxima.__version__  # its import registers the environment
NAME = "proxima/Trading-v0"
MIXED = (-1.0, -0.5, 0.0, 0.5, 1.0, 2.0)


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
@pytest.mark.parametrize("reward", ["log_return", "differential_sharpe"])
def test_passes_the_checker_without_a_warning(actions, reward):
    env = gymnasium.make(NAME, market=random_market(), actions=actions, reward=reward, window=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


@pytest.mark.parametrize("first", ["gymnasium, proxima", "proxima, gymnasium"])
def test_is_registered_whichever_is_imported_first(first):
    code = f"import {first}; assert {NAME!r} in gymnasium.registry"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_proxima_does_not_import_gymnasium():
    code = (
        "import sys, proxima; assert 'gymnasium' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("fill", ["same_close", "next_open", "next_close"])
@pytest.mark.parametrize(
    "changes",
    [
        {"actions": "discrete", "positions": MIXED, "fee": 0.002, "borrow_rate": 0.001},
        {"actions": "continuous", "positions": (-1.0, 1.0), "window": 4, "slippage": 0.003},
        {
            "reward": "differential_sharpe", "sharpe_rate": 0.05, "turnover_penalty": 0.1,
            "drawdown_penalty": 0.3,
        },
    ],
)  # fmt: skip
def test_equals_the_compiled_environment_step_by_step(fill, changes):
    market = random_market(3, bars=60)
    config = TradingEnvConfig(**changes, fill=fill)
    compiled = trading_env(market, config, training=False)
    host = gymnasium.make(NAME, market=market, training=False, fill=fill, **changes)
    key = jax.random.key(0)
    state, obs = compiled.reset(key)
    seen, _ = host.reset(seed=0)
    np.testing.assert_allclose(seen, obs, atol=1e-6)
    step = jax.jit(lambda state, action: compiled.step(state, action, key))
    host.action_space.seed(0)
    over = False
    while not over:
        action = host.action_space.sample()
        state, expected = step(state, jnp.asarray(action))
        seen, reward, terminated, truncated, _ = host.step(action)
        np.testing.assert_allclose(seen, expected.obs, rtol=1e-4, atol=1e-5)
        assert reward == pytest.approx(float(expected.reward), rel=2e-3, abs=2e-5)
        assert (terminated, truncated) == (bool(expected.terminated), bool(expected.truncated))
        over = terminated or truncated


def test_ruin_and_what_info_tells():
    env = gymnasium.make(
        NAME, market=market_of([100.0, 101, 250, 90]), fill="same_close", training=False
    )
    env.reset(seed=0)
    _, _, terminated, _, info = env.step(0)
    assert not terminated
    assert info["target"] == -1.0
    assert info["weight"] == pytest.approx(-1.01 / (1 - 0.01), rel=0.01)
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated) == (RUIN_REWARD, True, False)
    assert info["log_value"] < RUIN_REWARD


def test_random_starts_follow_the_seed():
    env = gymnasium.make(NAME, market=random_market(bars=500), max_steps_per_episode=10)
    starts = [env.reset(seed=seed)[1]["bar"] for seed in (1, 1, 2, 3, 4)]
    assert starts[0] == starts[1]
    assert len(set(starts)) > 2
    length = 0
    over = False
    while not over:
        *_, over, _ = env.step(1)
        length += 1
    assert length == 10


def test_reads_a_file(tmp_path):
    from proxima.domains.trading.synthetic import generate

    path = tmp_path / "prices.parquet"
    generate("sine_wave", 400, 0, {}).write_parquet(path)
    env = gymnasium.make(NAME, path=str(path), split="test")
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fees": 0.1}, "no setting 'fees'; did you mean fee?"),
        ({"num_envs": 3}, "no setting 'num_envs'"),
        ({"fee": -1.0}, "fee: -1.0 is not allowed"),
        ({"fee": "much"}, "fee: 'much' is not allowed"),
        ({"fill": "never"}, "fill: 'never' is not allowed"),
        ({"positions": [1.0]}, "positions: .* is not allowed"),
        ({"window": 2.5}, "window: 2.5 is not allowed"),
        ({"window": np.arange(3)}, "settings are plain values"),
    ],
)
def test_wrong_settings_are_told_in_words(settings, message):
    with pytest.raises(ProximaError, match=message):
        config_of(settings)


def test_needs_prices_once():
    with pytest.raises(ProximaError, match="give either market=, or path="):
        gymnasium.make(NAME)
    with pytest.raises(ProximaError, match="give either market=, or path="):
        gymnasium.make(NAME, market=random_market(), path="x.parquet")
