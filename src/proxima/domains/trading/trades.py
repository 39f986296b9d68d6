"""The trades of an account, from entry to exit, by average cost.

What is bought of a long position, or sold of a short one, is added to it at the mean of the prices paid.
Whatever reduces a position closes that part of it, and is a trade; a flip closes all of it and opens the
other side. Fees and interest of the open part go with the part that is closed. So a weight that is
rebalanced at every bar makes many trades of one position, all with its entry.

    profit    at the prices of the fills, slippage included; fee and interest are apart
    net       profit − fee − interest; over all trades exactly what the account gained

Interest on a short is paid in units that are borrowed as well, at the price of the bar, which count as sold
at it. A trade that is open at the end is valued at the last fill price; a ruin closes at what it left.
"""

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.domains.trading.accounting import Account, Floats, trade_factor
from proxima.domains.trading.config import TradingEnvConfig

if TYPE_CHECKING:
    import polars as pl

# More is counted in units of what lies above it, or a float would not hold it.
LARGEST_LOG_VALUE = 600.0


class Trade(NamedTuple):
    """A part of a position that was closed together; values are in units of the account's first."""

    side: str  # long or short
    status: str  # closed, open at the end, or ruined
    entry_bar: int  # when the position was opened: the decision's number, from 0
    exit_bar: int
    size: float  # units of what is traded
    entry_price: float  # their mean
    exit_price: float
    profit: float
    fee: float
    interest: float

    @property
    def net(self) -> float:
        """What it earned after all costs."""
        return self.profit - self.fee - self.interest


class _Open(NamedTuple):
    """A position: signed units, what they were bought or sold for, and its costs so far."""

    entry_bar: int = 0
    units: float = 0.0
    worth: float = 0.0
    fee: float = 0.0
    interest: float = 0.0


def trades_of(done: Account, prices: Floats, config: TradingEnvConfig) -> list[Trade]:
    """Every trade of an account (T,) whose decisions were filled at prices (T + 1,), by exit."""
    shift = max(0.0, float(done.log_value.max()) - LARGEST_LOG_VALUE)
    value = np.exp(done.log_value - shift)
    bars, last = np.flatnonzero(done.traded), len(done.traded)
    if done.ruined.any():
        last = int(np.argmax(done.ruined)) + 1
    held, trades = _Open(), list[Trade]()
    for bar, until in pairwise([*bars.tolist(), last]):
        target, weight = float(done.target[bar]), float(done.target[bar] - done.traded[bar])
        left = float(value[bar] * trade_factor(weight, target, config.fee, config.slippage))
        price = float(prices[bar])
        held, closed = _filled(held, bar, price, target * left / price, config)
        trades += closed
        if config.borrow_rate:
            stretch = prices[bar + 1 : until + 1]
            held = _charged(held, left * (1 - target), stretch, config.borrow_rate)
    if held.units:
        ruined = bool(done.ruined.any())
        final = _closed(held, last, float(prices[last]), 1.0, "ruined" if ruined else "open")
        if ruined:  # what a ruin leaves is not what the price says
            earned = float(value[last] - value[0]) - sum(trade.net for trade in trades)
            final = final._replace(profit=earned + final.fee + final.interest)
        trades.append(final)
    return trades


def _filled(
    held: _Open, bar: int, price: float, units: float, config: TradingEnvConfig
) -> tuple[_Open, list[Trade]]:
    """The position after a fill that leaves so many units, and the trade that it closed, if any."""
    moved = units - held.units
    price *= 1 + math.copysign(config.slippage, moved)
    # A buyer's fee is a share of the cash that is spent, fee included.
    share = config.fee / (1 - config.fee) if moved > 0 else config.fee
    fee = abs(moved) * price * share
    ended = min(abs(moved), abs(held.units)) if moved * held.units < 0 else 0.0
    closed = []
    if ended:
        part, cost = ended / abs(held.units), fee * ended / abs(moved)
        closed.append(
            _closed(held._replace(fee=held.fee + cost / part), bar, price, part, "closed")
        )
        fee -= cost
        left = 1 - part
        held = _Open(
            held.entry_bar,
            held.units * left,
            held.worth * left,
            held.fee * left,
            held.interest * left,
        )
    opened = abs(moved) - ended
    if opened:
        if not held.units:
            held = _Open(bar)
        held = held._replace(units=units, worth=held.worth + opened * price, fee=held.fee + fee)
    return held, closed


def _closed(held: _Open, bar: int, price: float, part: float, status: str) -> Trade:
    size, worth = abs(held.units) * part, held.worth * part
    return Trade(
        side="long" if held.units > 0 else "short",
        status=status,
        entry_bar=held.entry_bar,
        exit_bar=bar,
        size=size,
        entry_price=worth / size,
        exit_price=price,
        profit=math.copysign(1.0, held.units) * (size * price - worth),
        fee=held.fee * part,
        interest=held.interest * part,
    )


def _charged(held: _Open, cash: float, prices: Floats, rate: float) -> _Open:
    """The position after the interest of bars that end at these prices."""
    if held.units < 0:
        growth = (1 + rate) ** np.arange(len(prices))
        owed = float((rate * -held.units * growth * prices).sum())
        units = held.units * (1 + rate) ** len(prices)
        return held._replace(units=units, worth=held.worth + owed, interest=held.interest + owed)
    if cash < 0:
        owed = -cash * ((1 + rate) ** len(prices) - 1)
        return held._replace(interest=held.interest + owed)
    return held


def trades_frame(trades: list[Trade], time: NDArray[np.datetime64]) -> "pl.DataFrame":
    """A row for each trade; `time` (T + 1,) is of the bars at which was decided, and one after."""
    import polars as pl

    columns = {
        name: np.array([getattr(trade, name) for trade in trades]) for name in Trade._fields[2:]
    }
    entry, exit_ = (columns[name].astype(np.int64) for name in ("entry_bar", "exit_bar"))
    net = columns["profit"] - columns["fee"] - columns["interest"]
    paid = columns["size"] * columns["entry_price"]
    return pl.DataFrame(
        {
            "side": pl.Series([trade.side for trade in trades], dtype=pl.String),
            "status": pl.Series([trade.status for trade in trades], dtype=pl.String),
            "entry_time": time[entry],
            "exit_time": time[exit_],
            "entry_bar": entry,
            "exit_bar": exit_,
            "bars": exit_ - entry,
            **{name: columns[name].astype(np.float64) for name in Trade._fields[4:]},
            "net": net.astype(np.float64),
            "return": (net / paid).astype(np.float64),
        }
    )
