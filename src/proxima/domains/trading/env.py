"""The trading environment in pure JAX: an account over a stretch of prices, all numbers leaves.

    decide at the close of bar t  →  filled at price F[t]  →  rewarded for F[t + 1] / F[t]

What a fill price is depends on the setting, the accounting does not: F is the next bar's open, its
close, or bar t's own close. The observation is the features of the last `window` bars and the weight
held, valued at the close of bar t: a fill price that lies ahead of the decision is never looked at.

The account is the one of accounting.py, bar by bar and safe in float32: returns come in ready-made,
and every growth factor is kept as its distance from 1.
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
from proxima.core.spaces import Box, Discrete, Space, box
from proxima.core.types import Step
from proxima.domains.trading.accounting import RUIN_GROWTH, RUIN_REWARD, Costs, trade_costs
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.market import Market
from proxima.domains.trading.timing import check_length, fill_returns, last_start, mark_returns

SHARPE_CLIP = 10.0  # bound of the differential Sharpe ratio as a reward
LEAST_VARIANCE = 1e-12  # returns that vary less, as those of cash do, have no Sharpe ratio
# Continuous targets are in steps of 0.01 %. A trade happens when the target changes, so without steps
# the last bit of a float would decide about trades, and a batch's last bits are not a single row's.
WEIGHT_STEPS = 10_000.0
WEIGHT_CLIP = 100.0  # of the weight in an observation: a short shortly before its ruin has any


class Moments(NamedTuple):
    """Mean and variance of the log returns so far, exponentially weighted."""

    bars: Array
    mean: Array
    variance: Array


class TradingState(NamedTuple):
    """An open episode."""

    time: Array  # bar of the next decision
    end: Array  # bar at which the episode is over
    weight: Array  # held, at the next fill price
    target: Array  # last asked for
    height: Array  # the value as a share of its highest
    moments: Moments | None  # where the reward needs them


class TradingEnv(eqx.Module):
    """One account; prices, costs and episode lengths are leaves, so changing them compiles nothing."""

    features: Array  # (n, k)
    returns: Array  # (m,) from each fill price to the next
    marks: Array  # (m + 1,) from the last fill price to the close at which one decides
    positions: Array  # (p,) targets to choose from, or the limits of a continuous one
    costs: Costs  # of buying and of selling
    borrow_rate: Array
    turnover_penalty: Array
    drawdown_penalty: Array
    sharpe_rate: Array
    bars: Array  # how many of the returns there are; what follows them is padding
    last_start: Array  # episodes start between the first bar with a full window and this one
    max_steps: Array
    window: int = eqx.field(static=True)
    sharpe: bool = eqx.field(static=True)  # rewards are differential Sharpe ratios
    observation_space: Box = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[TradingState, Array]:
        first = self.window - 1
        time = jax.random.randint(key, (), first, self.last_start + 1, jnp.int32)
        zero = jnp.zeros(())
        end = time + jnp.minimum(self.max_steps, self.bars - time)
        moments = Moments(zero, zero, zero) if self.sharpe else None
        state = TradingState(time, end, zero, zero, jnp.ones(()), moments)
        return state, self._observe(time, zero)

    def step(self, state: TradingState, action: Array, key: Array) -> tuple[TradingState, Step]:
        target = self._target(action)
        weight = jnp.where(target == state.target, state.weight, target)
        traded = weight - state.weight
        lost = _trade_loss(traded, target, self.costs)
        gain, drifted = _hold(weight, self.returns[state.time], self.borrow_rate)
        growth = gain - lost - lost * gain  # (1 − lost)(1 + gain) − 1
        ruined = 1 + growth <= RUIN_GROWTH
        reward, moments = jnp.log1p(jnp.where(ruined, 0.0, growth)), state.moments
        if moments is not None:
            reward, moments = differential_sharpe(reward, moments, self.sharpe_rate)
        reward -= self.turnover_penalty * jnp.abs(traded)
        height = jnp.minimum(state.height * (1 + growth), 1.0)
        reward -= self.drawdown_penalty * jnp.maximum(state.height - height, 0.0)
        reward = jnp.where(ruined, RUIN_REWARD, reward)
        time = state.time + 1
        _, seen = _hold(weight, self.marks[time], self.borrow_rate)
        obs = self._observe(time, jnp.where(ruined, 0.0, seen))
        drifted = jnp.where(ruined, 0.0, drifted)
        state = TradingState(time, state.end, drifted, target, height, moments)
        return state, Step(obs, reward, ruined, ~ruined & (time >= state.end), {})

    def _target(self, action: Array) -> Array:
        if isinstance(self.action_space, Discrete):
            return self.positions[action]
        limited = jnp.clip(action.reshape(()), self.positions[0], self.positions[-1])
        return jnp.round(limited * WEIGHT_STEPS) / WEIGHT_STEPS

    def _observe(self, time: Array, weight: Array) -> Array:
        start = (time - self.window + 1, jnp.zeros_like(time))
        shape = (self.window, self.features.shape[1])
        seen = jax.lax.dynamic_slice(self.features, start, shape).reshape(-1)
        weight = jnp.clip(weight, -WEIGHT_CLIP, WEIGHT_CLIP)
        return jnp.concatenate([seen, weight[None]])


def differential_sharpe(
    log_return: Array | float, moments: Moments, rate: Array | float, numpy: Any = jnp
) -> tuple[Array, Moments]:
    """How much the return improves the Sharpe ratio so far (Moody, Saffell 1998), and the new moments.

    With deviation σ, z = (R − mean)/σ and S = mean/σ, the derivative of S by the rate is
    z + S(1 − z²)/2. Over the first 1/rate bars the moments are plain averages, so that they start
    from the returns themselves and not from 0; while there is no variance, the reward is 0.
    """
    known = moments.variance > LEAST_VARIANCE
    deviation = numpy.sqrt(numpy.where(known, moments.variance, 1.0))
    distance = log_return - moments.mean
    z = distance / deviation
    gradient = z + moments.mean / deviation * (1 - z * z) / 2
    reward = numpy.where(known, numpy.clip(gradient, -SHARPE_CLIP, SHARPE_CLIP), 0.0)
    rate = numpy.maximum(rate, 1 / (moments.bars + 1))
    mean = moments.mean + rate * distance
    variance = (1 - rate) * (moments.variance + rate * distance * distance)
    return reward, Moments(moments.bars + 1, mean, variance)


def _trade_loss(traded: Array, target: Array, costs: Costs) -> Array:
    """1 − trade_factor."""
    bought = traded > 0
    cost = jnp.where(bought, costs.buying, costs.selling)
    return cost * jnp.abs(traded) / jnp.where(bought, 1 - cost + cost * target, 1 - cost * target)


def _hold(weight: Array, market_return: Array, rate: Array) -> tuple[Array, Array]:
    """What a bar adds per unit of value, and the weight after it."""
    owed = rate * (jnp.maximum(weight - 1, 0.0) + jnp.maximum(-weight, 0.0) * (1 + market_return))
    gain = weight * market_return - owed
    grown = weight * (1 + market_return) * jnp.where(weight < 0, 1 + rate, 1.0)
    return gain, grown / jnp.maximum(1 + gain, RUIN_GROWTH)


def targets_of(actions: NDArray, config: TradingEnvConfig) -> NDArray[np.float64]:
    """The target weights (T,) that recorded actions, (T,) or (T, 1), stand for."""
    actions = np.asarray(actions).reshape(len(actions))
    if config.actions == "discrete":
        return np.asarray(config.positions, np.float64)[actions.astype(int)]
    low, high = allowed(config)
    limited = np.clip(actions.astype(np.float32), low, high)
    return (np.round(limited * np.float32(WEIGHT_STEPS)) / WEIGHT_STEPS).astype(np.float64)


def trading_env(market: Market, config: TradingEnvConfig, training: bool) -> TradingEnv:
    """The environment over a stretch of prices; evaluation runs through all of it from the first bar."""
    check(market, config)
    returns = fill_returns(market, config.fill)
    max_steps = (config.max_steps_per_episode if training else None) or len(returns)
    env = _env(market.features, returns, mark_returns(market, config.fill), config)
    start = jnp.asarray(last_start(len(returns), config, training), jnp.int32)
    return dataclasses.replace(env, last_start=start, max_steps=jnp.asarray(max_steps, jnp.int32))


def one_bar_env(
    features: NDArray[np.float32], market_return: float, mark: float, config: TradingEnvConfig
) -> TradingEnv:
    """The environment of a single step, from bar `window − 1` to the one that features (window, k) end in.

    The step is rewarded for the market's return and observes the weight at the mark; whoever asks for one
    of the two may leave the other 0.
    """
    # The first bar of the window nobody asks for again; NumPy, because JAX takes its time to take arrays.
    before = np.zeros_like(features[:1])
    returns, marks = np.zeros(config.window, np.float32), np.zeros(config.window + 1, np.float32)
    returns[-1], marks[-1] = market_return, mark
    leaves, structure = _one_bar_leaves(config, features.shape[1])
    arrays = np.concatenate([before, features]), returns, marks
    env: TradingEnv = jax.tree.unflatten(structure, [*arrays, *leaves[len(arrays) :]])
    return env


@cache
def _one_bar_leaves(config: TradingEnvConfig, features: int) -> tuple[list[Any], Any]:
    """What all such environments share; the first leaves are features, returns and marks."""
    bars = np.zeros((config.window + 1, features), np.float32)
    return jax.tree.flatten(
        _env(bars, np.zeros(config.window), np.zeros(config.window + 1), config)
    )


def one_bar_state(weight: float, target: float, config: TradingEnvConfig) -> TradingState:
    """An open episode in which that step is next: what is held, and what was asked for last."""
    single: Any = np.float32
    whole: Any = np.int32
    zero = single(0)
    return TradingState(
        time=whole(config.window - 1),
        end=whole(config.window + 1),
        weight=single(weight),
        target=single(target),
        height=single(1),
        moments=Moments(zero, zero, zero) if config.reward == "differential_sharpe" else None,
    )


def _env(
    features: NDArray[np.float32],
    returns: NDArray[np.float64],
    marks: NDArray[np.float64],
    config: TradingEnvConfig,
) -> TradingEnv:
    """An environment whose episodes start at the first bar with a full window and end with the returns."""
    numbers = partial(jnp.asarray, dtype=jnp.float32)
    return TradingEnv(
        features=numbers(features),
        returns=numbers(returns),
        marks=numbers(marks),
        positions=numbers(allowed(config)),
        costs=jax.tree.map(numbers, trade_costs(config.fee, config.slippage)),
        borrow_rate=numbers(config.borrow_rate),
        turnover_penalty=numbers(config.turnover_penalty),
        drawdown_penalty=numbers(config.drawdown_penalty),
        sharpe_rate=numbers(config.sharpe_rate),
        bars=jnp.asarray(len(returns), jnp.int32),
        last_start=jnp.asarray(config.window - 1, jnp.int32),
        max_steps=jnp.asarray(len(returns), jnp.int32),
        window=config.window,
        sharpe=config.reward == "differential_sharpe",
        observation_space=box(-np.inf, np.inf, (config.window * features.shape[1] + 1,)),
        action_space=action_space(config),
    )


def action_space(config: TradingEnvConfig) -> Discrete | Box:
    """The index of a position, or a weight."""
    if config.actions == "discrete":
        return Discrete(len(config.positions))
    return box(min(config.positions), max(config.positions), (1,))


def allowed(config: TradingEnvConfig) -> tuple[float, ...]:
    """The positions in the order of the actions; of a continuous one, its limits."""
    if config.actions == "discrete":
        return config.positions
    return min(config.positions), max(config.positions)


def check(market: Market, config: TradingEnvConfig) -> None:
    """An error in words where prices or settings leave nothing to trade."""
    check_length(market, config)
    if len(set(config.positions)) < len(config.positions):
        raise ProximaError(f"env.positions: {list(config.positions)} names a position twice")
    low, high = min(config.positions), max(config.positions)
    costs = trade_costs(config.fee, config.slippage)
    if 1 - costs.buying + costs.buying * low <= 0 or 1 - costs.selling * high <= 0:
        slips = f" with env.slippage {config.slippage}" if config.slippage else ""
        raise ProximaError(
            f"env.fee: at {config.fee}{slips} a trade to a position of {low} or {high} would cost more "
            f"than there is; use a smaller fee{', less slippage' if slips else ''} or smaller positions"
        )
