"""The environment of portfolios in pure JAX: several assets in one account, all numbers leaves.

    decide at the close of bar t  →  rebalanced at prices F[t]  →  rewarded for what is held to F[t + 1]

An action has a number between −1 and 1 for every asset. Long only, there is one more for cash, and the
weights are their softmax, so that all of them at 0 is the uniform portfolio. Long and short, a number is a
weight as a share of the leverage, and all are shrunk where together they would exceed it.

The observation has two fields: `features` of every asset in the last `window` bars, the oldest first, and the
`weights` held, valued at the close of bar t. The account is the one of accounting.py, safe in float32: every
growth factor is kept as its distance from 1.
"""

import dataclasses
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Fields, box, fields
from proxima.core.types import Step
from proxima.domains.trading.accounting import RUIN_GROWTH, RUIN_REWARD
from proxima.domains.trading.env import WEIGHT_CLIP, Moments, differential_sharpe
from proxima.domains.trading.portfolio.accounting import check_fee
from proxima.domains.trading.portfolio.config import PortfolioEnvConfig
from proxima.domains.trading.portfolio.data import Stretch
from proxima.domains.trading.timing import check_length, fill_returns, last_start, mark_returns

# Of the softmax: one asset can have 99 % of a portfolio of 36, and 1 in 3,000 is the least.
SHARPNESS = 4.0
# Of a trade's cost; more change no bit of float32 at usual fees (tests/…/test_env.py).
NEWTON_STEPS = 4


Observation = dict[str, Any]


class PortfolioState(NamedTuple):
    """An open episode."""

    time: Array  # bar of the next decision
    end: Array  # bar at which the episode is over
    weights: Array  # held, at the next fill prices (n,)
    height: Array  # the value as a share of its highest
    moments: Moments | None  # where the reward needs them


class PortfolioEnv(eqx.Module):
    """One account; prices, costs and episode lengths are leaves, so changing them compiles nothing."""

    features: Array  # (T, n, k)
    returns: Array  # (m, n) from each fill price to the next
    marks: Array  # (m + 1, n) from the last fill price to the close at which one decides
    leverage: Array
    fee: Array
    borrow_rate: Array
    turnover_penalty: Array
    drawdown_penalty: Array
    sharpe_rate: Array
    bars: Array  # how many of the returns there are; what follows them is padding
    last_start: Array  # episodes start between the first bar with a full window and this one
    max_steps: Array
    window: int = eqx.field(static=True)
    long_only: bool = eqx.field(static=True)
    sharpe: bool = eqx.field(static=True)  # rewards are differential Sharpe ratios
    observation_space: Fields = eqx.field(static=True)
    action_space: Box = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[PortfolioState, Observation]:
        time = jax.random.randint(key, (), self.window - 1, self.last_start + 1, jnp.int32)
        end = time + jnp.minimum(self.max_steps, self.bars - time)
        zero, nothing = jnp.zeros(()), jnp.zeros(self.returns.shape[1])
        moments = Moments(zero, zero, zero) if self.sharpe else None
        state = PortfolioState(time, end, nothing, jnp.ones(()), moments)
        return state, self._observe(time, nothing)

    def step(self, state: PortfolioState, action: Array, key: Array) -> tuple[PortfolioState, Step]:
        target = target_weights(action, self.long_only, self.leverage, jnp)
        lost = trade_loss(state.weights, target, self.fee)
        gain, drifted = _hold(target, self.returns[state.time], self.borrow_rate)
        growth = gain - lost - lost * gain  # (1 − lost)(1 + gain) − 1
        ruined = 1 + growth <= RUIN_GROWTH
        reward, moments = jnp.log1p(jnp.where(ruined, 0.0, growth)), state.moments
        if moments is not None:
            reward, moments = differential_sharpe(reward, moments, self.sharpe_rate)
        reward -= self.turnover_penalty * jnp.sum(jnp.abs(target - state.weights))
        height = jnp.minimum(state.height * (1 + growth), 1.0)
        reward -= self.drawdown_penalty * jnp.maximum(state.height - height, 0.0)
        reward = jnp.where(ruined, RUIN_REWARD, reward)
        time = state.time + 1
        _, seen = _hold(target, self.marks[time], self.borrow_rate)
        obs = self._observe(time, jnp.where(ruined, 0.0, seen))
        drifted = jnp.where(ruined, 0.0, drifted)
        state = PortfolioState(time, state.end, drifted, height, moments)
        return state, Step(obs, reward, ruined, ~ruined & (time >= state.end), {})

    def _observe(self, time: Array, weights: Array) -> Observation:
        start = (time - self.window + 1, jnp.zeros_like(time), jnp.zeros_like(time))
        bars = jax.lax.dynamic_slice(self.features, start, (self.window, *self.features.shape[1:]))
        return observation(bars, weights, jnp)


def observation(bars: Any, weights: Any, numpy: Any = np) -> Observation:
    """What is seen of the features of some bars (window, n, k) and of weights (n,)."""
    by_asset = numpy.moveaxis(bars, 0, 1)
    return {
        "features": by_asset.reshape(by_asset.shape[0], -1),
        "weights": numpy.clip(weights, -WEIGHT_CLIP, WEIGHT_CLIP),
    }


def target_weights(action: Any, long_only: bool, leverage: Any, numpy: Any = np) -> Any:
    """The weights (..., n) that actions stand for: (..., 1 + n) long only, the first cash; else (..., n)."""
    limited = numpy.clip(action, -1.0, 1.0)
    if not long_only:
        size = numpy.sum(numpy.abs(limited), axis=-1, keepdims=True)
        return leverage * limited / numpy.maximum(size, 1.0)
    shares = numpy.exp(SHARPNESS * (limited - 1.0))
    return (shares / numpy.sum(shares, axis=-1, keepdims=True))[..., 1:]


def trade_loss(weights: Array, target: Array, fee: Array) -> Array:
    """1 − kept_value: the share of the value that a trade from weights to targets (n,) takes."""
    lost = jnp.zeros(())
    for _ in range(NEWTON_STEPS):
        moved = (target - weights) - lost * target
        missing = fee * jnp.sum(jnp.abs(moved)) - lost
        lost += missing / (1 + fee * jnp.sum(target * jnp.sign(moved)))
    return lost


def _hold(weights: Array, returns: Array, rate: Array) -> tuple[Array, Array]:
    """What a bar adds per unit of value, and the weights after it."""
    short = jnp.where(weights < 0, rate, 0.0)
    moved = weights * (returns + short * (1 + returns))
    gain = jnp.sum(moved) + rate * jnp.minimum(0.0, 1 - jnp.sum(weights))
    return gain, (weights + moved) / jnp.maximum(1 + gain, RUIN_GROWTH)


def targets_of(actions: NDArray, config: PortfolioEnvConfig) -> NDArray[np.float64]:
    """The target weights (T, n) that recorded actions stand for."""
    exact = np.asarray(actions, np.float64)
    targets: NDArray[np.float64] = target_weights(
        exact, config.weights == "long_only", config.leverage
    )
    return targets


def portfolio_env(stretch: Stretch, config: PortfolioEnvConfig, training: bool) -> PortfolioEnv:
    """The environment over a stretch of prices; evaluation runs through all of it from the first bar."""
    check_length(stretch, config)
    check_fee(config.fee, config.gross)
    returns, marks = (part(stretch, config.fill) for part in (fill_returns, mark_returns))
    max_steps = (config.max_steps_per_episode if training else None) or len(returns)
    env = _env(stretch.features, returns, marks, config)
    start = jnp.asarray(last_start(len(returns), config, training), jnp.int32)
    return dataclasses.replace(env, last_start=start, max_steps=jnp.asarray(max_steps, jnp.int32))


def check_fill(closes_only: bool, config: PortfolioEnvConfig, source: str) -> None:
    """An error where decisions are to be filled at opens that the file does not have."""
    if closes_only and config.fill == "next_open":
        raise ProximaError(
            f"env.fill: next_open, and {source} has closing prices only; set it to next_close, or to "
            "same_close if a decision at a close can still be filled there"
        )


def one_bar_env(
    features: NDArray[np.float32],
    returns: NDArray[np.float64],
    marks: NDArray[np.float64],
    config: PortfolioEnvConfig,
) -> PortfolioEnv:
    """The environment of a single step, from bar `window − 1` to the one that features (window, n, k) end in.

    The step is rewarded for the returns (n,) and observes the weights at the marks (n,); whoever asks for
    one of the two may leave the other 0.
    """
    assets, kinds = features.shape[1:]
    before = np.zeros((1, assets, kinds), np.float32)
    rows = np.concatenate([before, features])
    earned = np.zeros((config.window, assets), np.float32)
    marked = np.zeros((config.window + 1, assets), np.float32)
    earned[-1], marked[-1] = returns, marks
    leaves, structure = _one_bar_leaves(config, assets, kinds)
    arrays = rows, earned, marked
    env: PortfolioEnv = jax.tree.unflatten(structure, [*arrays, *leaves[len(arrays) :]])
    return env


@cache
def _one_bar_leaves(config: PortfolioEnvConfig, assets: int, kinds: int) -> tuple[list[Any], Any]:
    """What all such environments share; the first leaves are features, returns and marks."""
    bars = np.zeros((config.window + 1, assets, kinds), np.float32)
    returns = np.zeros((config.window, assets))
    return jax.tree.flatten(_env(bars, returns, np.zeros((config.window + 1, assets)), config))


def one_bar_state(weights: NDArray[np.float32], config: PortfolioEnvConfig) -> PortfolioState:
    """An open episode in which that step is next: what is held."""
    whole: Any = np.int32
    zero: Any = np.float32(0)
    return PortfolioState(
        time=whole(config.window - 1),
        end=whole(config.window + 1),
        weights=weights,  # type: ignore[arg-type]
        height=zero + np.float32(1),
        moments=Moments(zero, zero, zero) if config.reward == "differential_sharpe" else None,
    )


def _env(
    features: NDArray[np.float32],
    returns: NDArray[np.float64],
    marks: NDArray[np.float64],
    config: PortfolioEnvConfig,
) -> PortfolioEnv:
    """An environment whose episodes start at the first bar with a full window and end with the returns."""
    numbers = partial(jnp.asarray, dtype=jnp.float32)
    _, assets, kinds = features.shape
    seen = box(-np.inf, np.inf, (assets, config.window * kinds))
    held = box(-WEIGHT_CLIP, WEIGHT_CLIP, (assets,))
    long_only = config.weights == "long_only"
    return PortfolioEnv(
        features=numbers(features),
        returns=numbers(returns),
        marks=numbers(marks),
        leverage=numbers(config.leverage),
        fee=numbers(config.fee),
        borrow_rate=numbers(config.borrow_rate),
        turnover_penalty=numbers(config.turnover_penalty),
        drawdown_penalty=numbers(config.drawdown_penalty),
        sharpe_rate=numbers(config.sharpe_rate),
        bars=jnp.asarray(len(returns), jnp.int32),
        last_start=jnp.asarray(config.window - 1, jnp.int32),
        max_steps=jnp.asarray(len(returns), jnp.int32),
        window=config.window,
        long_only=long_only,
        sharpe=config.reward == "differential_sharpe",
        observation_space=fields({"features": seen, "weights": held}),
        action_space=box(-1.0, 1.0, (assets + int(long_only),)),
    )
