"""What a portfolio is worth after every bar, in float64: the truth that environments and oracles answer to.

    trade   from weight w to target a, when the target changes (fee f on what is traded):
            value × (1 − f + fw)/(1 − f + fa) when buying, × (1 − fw)/(1 − fa) when selling; then w = a
            with slippage s, one buys at (1 + s) times the price and sells at (1 − s) times it: f becomes
            (f + s)/(1 + s) when buying and f + s(1 − f) when selling
    hold    over a return ρ: value × g, g = 1 + wρ − r·max(0, w − 1) − r·max(0, −w)(1 + ρ)
            and w becomes w(1 + ρ)(1 + r·[w < 0]) / g, with the interest r settled every bar

While a target stays, cash and stock each only grow by themselves: between two trades the value is a line
in the price, and no loop over time is needed. Borrowed cash grows by 1 + r a bar, borrowed stock too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
A = TypeVar("A")  # an account

RUIN_REWARD = -10.0
"""The log return of a bar that ruins: a value that fell below e⁻¹⁰ of itself, or to 0 and less."""
RUIN_GROWTH = float(np.exp(RUIN_REWARD))
NUMBERS_AT_ONCE = 200_000  # bars of rows that are worked on together; more no longer fit the cache


class Account(NamedTuple):
    """A portfolio over T bars; whoever is ruined keeps what the ruin left, in cash."""

    target: Floats  # (..., T) what was asked for
    weight: Floats  # (..., T) what was held over the bar, after any trade
    traded: Floats  # (..., T) weight bought (+) or sold (−) before the bar
    log_return: Floats  # (..., T) of the bar, its fees and interest included
    log_value: Floats  # (..., T + 1) starts at 0
    ruined: NDArray[np.bool_]  # (..., T) the bar that did it


class Costs(NamedTuple):
    """What a trade loses: of the cash that is spent on buying, and of the worth of what is sold."""

    buying: float
    selling: float


def trade_costs(fee: float, slippage: float) -> Costs:
    """The fee and the slippage as one share each way; without slippage both are the fee, to the bit."""
    return Costs((fee + slippage) / (1 + slippage), fee + slippage * (1 - fee))


def trade_factor(weight: ArrayLike, target: ArrayLike, fee: float, slippage: float = 0.0) -> Floats:
    """What a trade from one weight to another leaves of each unit of value."""
    weight, target = np.asarray(weight, np.float64), np.asarray(target, np.float64)
    buying, selling = trade_costs(fee, slippage)
    bought = (1 - buying + buying * weight) / (1 - buying + buying * target)
    sold = (1 - selling * weight) / (1 - selling * target)
    return np.where(target > weight, bought, sold)


def hold(weight: float, market_return: float, borrow_rate: float) -> tuple[float, float]:
    """What a bar makes of each unit of value, and the weight after it (0 where nothing is left)."""
    owed = borrow_rate * (max(0.0, weight - 1) + max(0.0, -weight) * (1 + market_return))
    growth = 1 + weight * market_return - owed
    grown = weight * (1 + market_return) * (1 + borrow_rate if weight < 0 else 1.0)
    return growth, grown / growth if growth > RUIN_GROWTH else 0.0


def log_value(log_returns: ArrayLike) -> Floats:
    """ln(value / first value) before the first bar and after every bar, (T + 1, ...) of (T, ...)."""
    earned = np.asarray(log_returns, np.float64)
    return np.concatenate([np.zeros((1, *earned.shape[1:])), np.cumsum(earned, axis=0)])


def joined(accounts: Sequence[A]) -> A:
    """Accounts one after the other, each with what the last one left, in cash; of one asset or several."""
    first: Any = accounts[0]
    names = [name for name in first._fields if name != "log_value"]
    bars = {name: np.concatenate([getattr(done, name) for done in accounts]) for name in names}
    whole: A = first._replace(**bars, log_value=log_value(bars["log_return"]))
    return whole


def account(
    targets: ArrayLike,
    returns: ArrayLike,
    fee: float,
    borrow_rate: float,
    slippage: float = 0.0,
) -> Account:
    """The account of each row of targets (..., T) over the returns (T,), started flat."""
    targets, returns = np.asarray(targets, np.float64), np.asarray(returns, np.float64)
    log_price = log_value(np.log1p(returns))
    rows = targets.reshape(-1, targets.shape[-1])
    at_once = max(1, NUMBERS_AT_ONCE // max(1, rows.shape[1]))
    accounts = [
        _account(rows[first : first + at_once], log_price, fee, borrow_rate, slippage)
        for first in range(0, len(rows), at_once)
    ]
    shape = targets.shape[:-1]
    fields = (np.concatenate(field) for field in zip(*accounts, strict=True))
    return Account(*(field.reshape(*shape, field.shape[-1]) for field in fields))


def _account(
    target: Floats, log_price: Floats, fee: float, borrow_rate: float, slippage: float
) -> Account:
    bar = np.arange(target.shape[-1])
    changed = np.diff(target, prepend=0.0) != 0
    entry = np.maximum.accumulate(np.where(changed, bar, 0), axis=-1)  # the bar of the last trade
    # Worth of stock and cash per unit of value at the last trade, at each bar's start and end.
    stock, cash = grown(target, log_price[:-1] - log_price[entry], bar - entry, borrow_rate)
    grown_stock, grown_cash = grown(
        target, log_price[1:] - log_price[entry], bar + 1 - entry, borrow_rate
    )
    with np.errstate(divide="ignore", invalid="ignore"):  # after a ruin; overwritten below
        weight = stock / (stock + cash)
        drifted = _shifted(grown_stock / (grown_stock + grown_cash))
        growth = (grown_stock + grown_cash) / (stock + cash)
        factor = trade_factor(drifted, target, fee, slippage)
        growth = growth * np.where(changed, factor, 1.0)
    failed = np.cumsum(~(growth > RUIN_GROWTH), axis=-1)
    over = _shifted(failed) > 0  # whatever comes after the first failure
    ruined = (failed > 0) & ~over
    log_return = np.where(ruined, RUIN_REWARD, np.log(np.where(failed > 0, 1.0, growth)))
    return Account(
        target=target,
        weight=np.where(over, 0.0, weight),
        traded=np.where(changed & ~over, target - drifted, 0.0),
        log_return=log_return,
        log_value=np.concatenate(
            [np.zeros_like(log_return[..., :1]), np.cumsum(log_return, axis=-1)], axis=-1
        ),
        ruined=ruined,
    )


def _shifted(values: NDArray) -> NDArray:
    """The value of the bar before, 0 for the first."""
    return np.concatenate([np.zeros_like(values[..., :1]), values[..., :-1]], axis=-1)


def grown(
    target: Floats, log_growth: Floats, bars: NDArray[np.int_], borrow_rate: float
) -> tuple[Floats, Floats]:
    """Stock and cash some bars after a trade to the target, per unit of value at the trade."""
    with np.errstate(over="ignore"):  # of a debt that ruined long before
        interest = (1 + borrow_rate) ** bars
    stock = target * np.exp(log_growth) * np.where(target < 0, interest, 1.0)
    return stock, (1 - target) * np.where(target > 1, interest, 1.0)
