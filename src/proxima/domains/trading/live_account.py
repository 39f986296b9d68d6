"""The account of accounting.py, bar by bar as prices become known, with the same bits.

    fill at F₀ ── held ── fill at F₁ ── held ── fill at F₂      each fill settles what was held since the last

`accounting.account` sees a whole stretch at once; here only the last fill is remembered. Between two trades
both take the same closed form in the price, and sums run from the first bar on, so they round alike.
"""

from typing import NamedTuple

import numpy as np

from proxima.domains.trading.accounting import (
    RUIN_GROWTH,
    RUIN_REWARD,
    Floats,
    grown,
    trade_factor,
)
from proxima.domains.trading.config import TradingEnvConfig


class Books(NamedTuple):
    """Where an account stands at a fill price, before what is traded there; it starts flat."""

    target: float = 0.0  # of the last holding
    log_price: float = 0.0  # since the first fill
    traded_at: float = 0.0  # the log price of the last trade
    bars: int = 0  # since that trade
    weight: float = 0.0  # that is held
    log_value: float = 0.0
    highest: float = 0.0  # log value so far
    ruined: bool = False


class Settled(NamedTuple):
    """A decision whose holding is over, as an evaluation reports it."""

    target: float
    weight: float  # held, after any trade
    log_return: float
    log_value: float  # after it
    drawdown: float
    ruined: bool  # by this holding, or before


class Holding(NamedTuple):
    """What is held after a fill, per unit of the value at the start."""

    weight: float
    value: float
    cost: float  # of the trade, if there was one


def settle(
    books: Books, target: float, market_return: float, env: TradingEnvConfig
) -> tuple[Books, Settled]:
    """The books at the next fill price, after a holding at this target that began at the last one."""
    log_price = books.log_price + np.log1p(market_return).item()
    if books.ruined:
        gone = books._replace(log_price=log_price, target=0.0, weight=0.0)
        return gone, Settled(0.0, 0.0, 0.0, books.log_value, _drawdown(books), True)
    changed = target != books.target
    traded_at, bars = (books.log_price, 0) if changed else (books.traded_at, books.bars)
    stock, cash = _grown(target, books.log_price - traded_at, bars, env)
    later_stock, later_cash = _grown(target, log_price - traded_at, bars + 1, env)
    with np.errstate(divide="ignore", invalid="ignore"):  # of a ruin, which is told below
        weight = (stock / (stock + cash)).item()
        drifted = (later_stock / (later_stock + later_cash)).item()
        growth = (later_stock + later_cash) / (stock + cash)
        if changed:
            growth = growth * _factor(books.weight, target, env)
    ruined = not bool(growth > RUIN_GROWTH)
    log_return = RUIN_REWARD if ruined else np.log(growth).item()
    log_value = books.log_value + log_return
    after = Books(
        target=target,
        log_price=log_price,
        traded_at=traded_at,
        bars=bars + 1,
        weight=0.0 if ruined else drifted,
        log_value=log_value,
        highest=max(books.highest, log_value),
        ruined=ruined,
    )
    return after, Settled(target, weight, log_return, log_value, _drawdown(after), ruined)


def hold(books: Books, target: float, env: TradingEnvConfig) -> Holding:
    """What is held from this fill price on, at this target."""
    value = float(np.exp(books.log_value))
    if books.ruined or target == books.target:
        return Holding(0.0 if books.ruined else books.weight, value, 0.0)
    left = value * _factor(books.weight, target, env).item()
    return Holding(target, left, value - left)


def _drawdown(books: Books) -> float:
    return float(np.expm1(books.log_value - books.highest))


def _factor(weight: float, target: float, env: TradingEnvConfig) -> Floats:
    return trade_factor(np.array([weight]), np.array([target]), env.fee, env.slippage)


def _grown(
    target: float, log_growth: float, bars: int, env: TradingEnvConfig
) -> tuple[Floats, Floats]:
    """As arrays of one number, for which NumPy takes the same way as for longer ones."""
    return grown(np.array([target]), np.array([log_growth]), np.array([bars]), env.borrow_rate)
