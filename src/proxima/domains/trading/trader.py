"""A trained policy stepped over bars as they arrive: what an evaluation does with a stretch, bar by bar.

    a bar arrives ─► the order of the bar before is filled in it ─► what was held until then is settled
                  ─► the account at its close, features ─► observation ─► policy ─► target, order

The observation comes from the environment's own step, the figures from the books of live_account.py: weights,
log returns and equity are those of an evaluation on the same bars, to the bit.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading.accounting import trade_factor
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import one_bar_env, one_bar_state, targets_of
from proxima.domains.trading.live_account import Books, Settled, hold, settle
from proxima.domains.trading.recipe import Reader
from proxima.train.compiled.episodes import step_once

# Observations and what the policy remembers → its actions and what it remembers then; nothing at the start.
Act = Callable[[Any, dict[str, np.ndarray]], tuple[Any, dict[str, np.ndarray]]]


class Bar(NamedTuple):
    """What is traded at, of one bar."""

    time: np.datetime64
    open: float
    close: float


class Decision(NamedTuple):
    """What was decided at the close of a bar."""

    time: str
    target: float
    action: float  # as the policy gave it


class Trader(NamedTuple):
    """Where the trading stands between two bars; a new one is flat."""

    capital: float
    books: Books = Books()
    weight: float = 0.0  # held at the last fill price, float32 as the environment has it
    target: float = 0.0  # that the environment was asked for last
    fill_price: float | None = None
    held: Decision | None = None  # filled
    ordered: Decision | None = None  # to be filled in the next bar
    memory: Mapping[str, tuple[float, ...]] = {}  # what a policy with memory remembers, float32


class Order(NamedTuple):
    """What is to be bought (units above 0) or sold, at prices that are known or, of an order, the close."""

    units: float
    price: float
    cost: float  # fee and slippage


class Standing(NamedTuple):
    """An account at a close."""

    cash: float
    units: float
    equity: float
    weight: float
    log_return: float  # since the start


class Answer(NamedTuple):
    """What is said of a bar."""

    time: str
    close: float
    target: float | None  # None: the features warm up
    order: Order | None  # None: nothing is to be traded
    fill: Order | None  # of the order before, in this bar
    account: Standing
    settled: tuple[Decision, Settled] | None  # the decision whose holding this bar ends
    ruined: bool


def arrive(
    reader: Reader, act: Act, trader: Trader, bar: Bar, features: NDArray[np.float32] | None
) -> tuple[Trader, Answer]:
    """The trader after a bar and what to do now; the features (window, k) end in it, None: not yet."""
    env, settled, fill = reader.account, None, None
    if trader.ordered is not None and env.fill != "same_close":
        price = bar.open if env.fill == "next_open" else bar.close
        trader, settled, fill = _filled(reader, trader, price)
    standing = _standing(trader, bar.close, env)
    if features is None:
        return trader, Answer(
            _stamp(bar.time), bar.close, None, None, fill, standing, settled, False
        )
    trader, decision = _decide(env, act, trader, bar, features)
    order = _order(trader, standing, decision.target, bar.close, env)
    trader = trader._replace(ordered=decision)
    if env.fill == "same_close":
        trader, settled, fill = _filled(reader, trader, bar.close)
        standing = _standing(trader, bar.close, env)
    answer = Answer(
        time=decision.time,
        close=bar.close,
        target=decision.target,
        order=order,
        fill=fill,
        account=standing,
        settled=settled,
        ruined=trader.books.ruined,
    )
    return trader, answer


def _decide(
    env: TradingEnvConfig, act: Act, trader: Trader, bar: Bar, features: NDArray[np.float32]
) -> tuple[Trader, Decision]:
    """The policy's decision at a close, and the trader who remembers it; who is ruined stays in cash."""
    if trader.books.ruined:
        return trader, Decision(_stamp(bar.time), 0.0, 0.0)
    actions, memory = act(_observe(env, trader, bar.close, features)[None], recalled(trader))
    kept = {name: tuple(part[0].tolist()) for name, part in memory.items()}
    (target,) = targets_of(np.asarray(actions[0]).reshape(1), env)
    action = float(np.asarray(actions[0]).reshape(()))
    return trader._replace(memory=kept), Decision(_stamp(bar.time), float(target), action)


def recalled(trader: Trader) -> dict[str, np.ndarray]:
    """What the policy remembers, as it takes it."""
    return {name: np.asarray([part], np.float32) for name, part in trader.memory.items()}


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
    decision: Decision,
    features: NDArray[np.float32],
    market_return: float,
    mark: float,
) -> tuple[Any, Any]:
    """The environment's own step with a decision that was filled."""
    state = one_bar_state(trader.weight, trader.target, env)
    discrete = env.actions == "discrete"
    action = np.int32(decision.action) if discrete else np.array([decision.action], np.float32)
    return step_once(one_bar_env(features, market_return, mark, env), state, action)


def _filled(
    reader: Reader, trader: Trader, price: float
) -> tuple[Trader, tuple[Decision, Settled] | None, Order | None]:
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


def _standing(trader: Trader, close: float, env: TradingEnvConfig) -> Standing:
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
    trader: Trader, standing: Standing, target: float, close: float, env: TradingEnvConfig
) -> Order | None:
    """What takes the account to the target, estimated at the close; None: it stays as it is."""
    current = 0.0 if trader.held is None else trader.held.target
    if target == current or standing.equity <= 0:
        return None
    left = standing.equity * float(trade_factor(standing.weight, target, env.fee, env.slippage))
    return Order(target * left / close - standing.units, close, standing.equity - left)


def _stamp(time: np.datetime64) -> str:
    return f"{time.astype('datetime64[us]')}Z".replace(".000000Z", "Z")
