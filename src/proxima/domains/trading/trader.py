"""A trained policy stepped over bars as they arrive: what an evaluation does with a stretch, bar by bar.

    a bar arrives ─► the order of the bar before is filled in it ─► what was held until then is settled
                  ─► the account at its close, features ─► observation ─► policy ─► target, order

The observation comes from the environment's own step, the figures from the books of live_account.py: weights,
log returns and equity are those of an evaluation on the same bars, to the bit.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading.accounting import trade_factor
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import one_bar_env, one_bar_state, targets_of
from proxima.domains.trading.live_account import Books, Settled, hold, settle
from proxima.domains.trading.recipe import Reader
from proxima.domains.trading.stepping import (
    Act,
    Answer,
    Bar,
    Decision,
    Filled,
    Order,
    Standing,
    Steps,
    follow_bar,
    recalled,
    remembered,
    stamp,
)
from proxima.train.compiled.episodes import step_once


class Trader(NamedTuple):
    """Where the trading stands between two bars; a new one is flat."""

    capital: float
    books: Books = Books()
    weight: float = 0.0  # held at the last fill price, float32 as the environment has it
    target: float = 0.0  # that the environment was asked for last
    fill_price: float | None = None
    held: Decision[float] | None = None  # filled
    ordered: Decision[float] | None = None  # to be filled in the next bar
    memory: Mapping[str, tuple[float, ...]] = {}  # what a policy with memory remembers, float32


def arrive(
    reader: Reader,
    act: Act,
    trader: Trader,
    bar: Bar[float],
    features: NDArray[np.float32] | None,
) -> tuple[Trader, Answer[float, Settled]]:
    """The trader after a bar and what to do now; the features (window, k) end in it, None: not yet."""
    env = reader.account
    steps = Steps(
        fill=env.fill,
        filled=partial(_filled, reader),
        standing=partial(_standing, env),
        decide=partial(_decide, env, act),
        order=partial(_order, env),
        is_ruined=lambda after: after.books.ruined,
    )
    return follow_bar(steps, trader, bar, features)


def _decide(
    env: TradingEnvConfig, act: Act, trader: Trader, bar: Bar[float], features: NDArray[np.float32]
) -> Trader:
    """The trader who has ordered what the policy decides at a close; who is ruined stays in cash."""
    if trader.books.ruined:
        return trader._replace(ordered=Decision(stamp(bar.time), 0.0, 0.0))
    observed = _observe(env, trader, bar.close, features)[None]
    actions, memory = act(observed, recalled(trader.memory))
    (target,) = targets_of(np.asarray(actions[0]).reshape(1), env)
    action = float(np.asarray(actions[0]).reshape(()))
    decision = Decision(stamp(bar.time), float(target), action)
    return trader._replace(memory=remembered(memory), ordered=decision)


def _observe(
    env: TradingEnvConfig, trader: Trader, close: float, features: NDArray[np.float32]
) -> NDArray[np.float32]:
    """What the environment shows at a close: the features, and the weight held as it is worth there."""
    if trader.held is None or trader.fill_price is None:
        return np.concatenate([features.reshape(-1), np.zeros(1, np.float32)])
    mark = close / trader.fill_price - 1
    return np.asarray(_step(env, trader, trader.held, features, 0.0, mark)[1].obs)


def _step(
    env: TradingEnvConfig,
    trader: Trader,
    decision: Decision[float],
    features: NDArray[np.float32],
    market_return: float,
    mark: float,
) -> tuple[Any, Any]:
    """The environment's own step with a decision that was filled."""
    state = one_bar_state(trader.weight, trader.target, env)
    discrete = env.actions == "discrete"
    action = np.int32(decision.action) if discrete else np.array([decision.action], np.float32)
    return step_once(one_bar_env(features, market_return, mark, env), state, action)


def _filled(reader: Reader, trader: Trader, price: float) -> Filled[Trader, float, Settled]:
    """The trader once the order is filled at a price, which ends what was held."""
    env, settled = reader.account, None
    if trader.held is not None and trader.fill_price is not None:
        market_return = price / trader.fill_price - 1
        books, figures = settle(trader.books, trader.held.target, market_return, env)
        settled = trader.held._replace(target=figures.target), figures
        unseen = np.zeros((env.window, len(reader.columns)), np.float32)
        state, _ = _step(env, trader, trader.held, unseen, market_return, 0.0)
        trader = trader._replace(
            books=books, weight=float(state.weight), target=float(state.target)
        )
    if trader.books.ruined and trader.ordered is not None:  # there is nothing left to trade with
        trader = trader._replace(ordered=trader.ordered._replace(target=0.0))
    before = _units(trader, price, trader.books.weight, float(np.exp(trader.books.log_value)))
    trader = trader._replace(held=trader.ordered, ordered=None, fill_price=price)
    target = 0.0 if trader.held is None else trader.held.target
    holding = hold(trader.books, target, env)
    bought = _units(trader, price, holding.weight, holding.value) - before
    traded = target != trader.books.target and not trader.books.ruined
    fill = Order(bought, price, trader.capital * holding.cost) if traded else None
    return trader, settled, fill


def _units(trader: Trader, price: float, weight: float, value: float) -> float:
    return trader.capital * value * weight / price


def _standing(env: TradingEnvConfig, trader: Trader, close: float) -> Standing[float]:
    """The account at a close; interest on what is borrowed is taken at the next fill."""
    if trader.held is None or trader.fill_price is None:
        return Standing(trader.capital, 0.0, trader.capital, 0.0, 0.0)
    holding = hold(trader.books, trader.held.target, env)
    units = _units(trader, trader.fill_price, holding.weight, holding.value)
    cash = trader.capital * holding.value * (1 - holding.weight)
    equity = cash + units * close
    log_return = float(np.log(equity / trader.capital)) if equity > 0 else float("-inf")
    weight = units * close / equity if equity > 0 else 0.0
    return Standing(cash, units, equity, weight, log_return)


def _order(
    env: TradingEnvConfig, trader: Trader, standing: Standing[float], close: float
) -> Order[float] | None:
    """What takes the account to the target, estimated at the close; None: it stays as it is."""
    current = 0.0 if trader.held is None else trader.held.target
    target = current if trader.ordered is None else trader.ordered.target
    if target == current or standing.equity <= 0:
        return None
    left = standing.equity * float(trade_factor(standing.weight, target, env.fee, env.slippage))
    return Order(target * left / close - standing.units, close, standing.equity - left)
