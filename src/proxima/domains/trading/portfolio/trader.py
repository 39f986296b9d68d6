"""A trained policy stepped over the bars of several assets as they arrive, with the bits of an evaluation.

The observation comes from the environment's own step, and every holding is settled by accounting.py, one bar
after the other, as an evaluation settles it: weights, log returns and equity are the same, to the bit.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.portfolio.accounting import kept_value, settle
from proxima.domains.trading.portfolio.config import PortfolioEnvConfig
from proxima.domains.trading.portfolio.env import (
    Observation,
    observation,
    one_bar_env,
    one_bar_state,
    targets_of,
)
from proxima.domains.trading.portfolio.recipe import PanelReader
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

Amounts = tuple[float, ...]  # one for each asset


class PanelBooks(NamedTuple):
    """Where an account stands at fill prices, before what is traded there; it starts with cash alone."""

    weights: Amounts
    log_value: float = 0.0
    highest: float = 0.0  # log value so far
    ruined: bool = False


class PanelSettled(NamedTuple):
    """A decision whose holding is over, as an evaluation reports it."""

    weight: Amounts  # held, after its trade
    contribution: Amounts  # what each asset added, per unit of value before the trade
    cost: float  # share of the value that the trade took
    turnover: float  # weight bought and sold
    log_return: float
    log_value: float  # after it
    drawdown: float
    ruined: bool  # by this holding, or before


class PanelTrader(NamedTuple):
    """Where the trading stands between two bars."""

    capital: float
    books: PanelBooks
    weights: Amounts  # held at the last fill prices, float32 as the environment has it
    fill_price: Amounts | None = None
    held: Decision[Amounts] | None = None  # filled
    ordered: Decision[Amounts] | None = None  # to be filled in the next bar
    memory: Mapping[str, tuple[float, ...]] = {}  # what a policy with memory remembers, float32


def new_trader(capital: float, assets: int) -> PanelTrader:
    """A trader who holds cash alone."""
    nothing = (0.0,) * assets
    return PanelTrader(capital, PanelBooks(nothing), nothing)


def arrive(
    reader: PanelReader,
    act: Act,
    trader: PanelTrader,
    bar: Bar[Amounts],
    features: NDArray[np.float32] | None,
) -> tuple[PanelTrader, Answer[Amounts, PanelSettled]]:
    """The trader after a bar and what to do now; the features (window, n, k) end in it, None: not yet."""
    env = reader.account
    steps = Steps(
        fill=env.fill,
        filled=partial(_filled, env, len(reader.columns)),
        standing=partial(_standing, env),
        decide=partial(_decide, env, act),
        order=partial(_order, env),
        is_ruined=lambda after: after.books.ruined,
    )
    return follow_bar(steps, trader, bar, features)


def _decide(
    env: PortfolioEnvConfig,
    act: Act,
    trader: PanelTrader,
    bar: Bar[Amounts],
    features: NDArray[np.float32],
) -> PanelTrader:
    """The trader who has ordered what the policy decides at a close; who is ruined stays in cash."""
    nothing = (0.0,) * len(bar.close)
    if trader.books.ruined:
        return trader._replace(ordered=Decision(stamp(bar.time), nothing, nothing))
    observed = _observe(env, trader, bar.close, features)
    rows = {name: np.asarray(values)[None] for name, values in observed.items()}
    actions, memory = act(rows, recalled(trader.memory))
    action = np.asarray(actions)[0]
    (target,) = targets_of(action[None], env)
    decision = Decision(stamp(bar.time), tuple(target.tolist()), tuple(action.tolist()))
    return trader._replace(memory=remembered(memory), ordered=decision)


def _observe(
    env: PortfolioEnvConfig, trader: PanelTrader, close: Amounts, features: NDArray[np.float32]
) -> Observation:
    """What the environment shows at a close: the features, and the weights held as they are worth there."""
    if trader.held is None or trader.fill_price is None:
        return observation(features, np.zeros(len(close), np.float32))
    marks = np.array(close) / np.array(trader.fill_price) - 1
    seen: Observation = _step(env, trader, trader.held, features, (np.zeros(len(close)), marks))[
        1
    ].obs
    return seen


def _step(
    env: PortfolioEnvConfig,
    trader: PanelTrader,
    decision: Decision[Amounts],
    features: NDArray[np.float32],
    moves: tuple[Floats, Floats],
) -> tuple[Any, Any]:
    """The environment's own step with a decision that was filled; `moves` are returns and marks."""
    state = one_bar_state(np.array(trader.weights, np.float32), env)
    action = np.array(decision.action, np.float32)
    return step_once(one_bar_env(features, *moves, env), state, action)


def _filled(
    env: PortfolioEnvConfig, kinds: int, trader: PanelTrader, price: Amounts
) -> Filled[PanelTrader, Amounts, PanelSettled]:
    """The trader once the order is filled at these prices, which ends what was held."""
    settled = None
    if trader.held is not None and trader.fill_price is not None:
        returns = np.array(price) / np.array(trader.fill_price) - 1
        books, figures = settle_bar(trader.books, trader.held.target, returns, env)
        settled = trader.held, figures
        unseen = np.zeros((env.window, len(price), kinds), np.float32)
        state, _ = _step(env, trader, trader.held, unseen, (returns, np.zeros(len(price))))
        trader = trader._replace(books=books, weights=tuple(np.asarray(state.weights).tolist()))
    ordered = trader.ordered
    assert ordered is not None
    if trader.books.ruined:  # there is nothing left to trade with
        ordered = ordered._replace(target=(0.0,) * len(price))
    _, traded = _trade(trader.books.weights, ordered.target, env)
    value = trader.capital * float(np.exp(trader.books.log_value))
    fill = _as_order(value * traded / np.array(price), price, env)
    return trader._replace(held=ordered, ordered=None, fill_price=price), settled, fill


def settle_bar(
    books: PanelBooks, target: Amounts, returns: Floats, env: PortfolioEnvConfig
) -> tuple[PanelBooks, PanelSettled]:
    """The books at the next fill prices, after a holding of these targets that began at the last ones."""
    asked = np.zeros(len(returns)) if books.ruined else np.array(target)
    bar = settle(np.array(books.weights), asked, returns, env.fee, env.borrow_rate)
    log_return = float(bar.log_return)
    log_value = books.log_value + log_return
    after = PanelBooks(
        weights=tuple(bar.weights.tolist()),
        log_value=log_value,
        highest=max(books.highest, log_value),
        ruined=books.ruined or bool(bar.ruined),
    )
    figures = PanelSettled(
        weight=tuple(bar.held.tolist()),
        contribution=tuple(bar.contribution.tolist()),
        cost=float(bar.cost),
        turnover=float(np.abs(bar.traded).sum()),
        log_return=log_return,
        log_value=log_value,
        drawdown=float(np.expm1(log_value - after.highest)),
        ruined=after.ruined,
    )
    return after, figures


def _trade(weights: Amounts, target: Amounts, env: PortfolioEnvConfig) -> tuple[float, Floats]:
    """What a trade leaves of each unit of value, and what it buys (+) and sells (−)."""
    before, after = np.array(weights), np.array(target)
    kept = float(kept_value(before, after, env.fee))
    return kept, kept * after - before


def _as_order(units: Floats, price: Amounts, env: PortfolioEnvConfig) -> Order[Amounts] | None:
    """An order for these units; None: nothing is to be traded."""
    if not units.any():
        return None
    cost = env.fee * np.abs(units * np.array(price))
    return Order(tuple(units.tolist()), price, tuple(cost.tolist()))


def _standing(env: PortfolioEnvConfig, trader: PanelTrader, close: Amounts) -> Standing[Amounts]:
    """The account at a close; interest on what is borrowed is taken at the next fill."""
    if trader.held is None or trader.fill_price is None:
        nothing = (0.0,) * len(close)
        return Standing(trader.capital, nothing, trader.capital, nothing, 0.0)
    kept, _ = _trade(trader.books.weights, trader.held.target, env)
    value = trader.capital * float(np.exp(trader.books.log_value)) * kept
    target = np.array(trader.held.target)
    units = value * target / np.array(trader.fill_price)
    cash = value * float(1 - target.sum())
    worth = units * np.array(close)
    equity = cash + float(worth.sum())
    weight = worth / equity if equity > 0 else np.zeros(len(close))
    log_return = float(np.log(equity / trader.capital)) if equity > 0 else float("-inf")
    return Standing(cash, tuple(units.tolist()), equity, tuple(weight.tolist()), log_return)


def _order(
    env: PortfolioEnvConfig, trader: PanelTrader, standing: Standing[Amounts], close: Amounts
) -> Order[Amounts] | None:
    """What takes the account to the targets, estimated at the close; None: it stays as it is."""
    if trader.ordered is None or standing.equity <= 0:
        return None
    _, traded = _trade(standing.weight, trader.ordered.target, env)
    return _as_order(standing.equity * traded / np.array(close), close, env)
