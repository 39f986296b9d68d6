"""Perfect foresight: the targets that end with the most, fees and interest included, by exact search.

Between two trades a portfolio is cash C and stock S, and only prices and interest change them. What a
holding was entered with scales everything after it, so of all ways to enter target b at bar t only the
richest counts. The search goes forward in time over open holdings, each with its entry:

    for every bar:
        for every target b: the richest exit of any holding of another target becomes a holding of b
        every holding goes through the bar; what has no value left is ruined and stays so

An exit to b is worth min(((1 − f)C + S)/(1 − f + fb), (C + (1 − f)S)/(1 − fb)): of buying and selling, the
one that applies is the one that leaves less. With slippage each has an f of its own.

Now and then holdings are dropped that another of the same target beats for as long as they live. Exits
are lines C + Sx in a price x between the lowest and the highest ahead (give or take the fee), and a line
above another at both ends is above it in between; a holding that will be ruined on the way need only
be beaten up to its ruin. This is exact for any set of positions, ruin included, and few holdings are left.

With continuous weights the best targets are the limits and, because interest begins there, 0 and 1: what a
trade leads to is linear in its amount. But then a weight that has drifted may be traded back.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.accounting import Costs, Floats, log_value, trade_costs
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import WEIGHT_STEPS

Integers = NDArray[np.int64]

BARS_BETWEEN_PRUNING = 64
LARGEST_EXPONENT = 600.0  # of exp: far enough from float64's overflow to multiply with

# Rows of the table of holdings, one column each: what cash and stock are worth, by what interest lets
# them grow in a bar, the target's index, the bar of the entry, and then a row per target: −∞ where an
# exit to it would be no trade.
CASH, STOCK, CASH_GROWTH, STOCK_GROWTH, TARGET, ENTRY, BARRED = range(7)


class Foresight(NamedTuple):
    """The best targets (T,) and the log value they end with."""

    targets: Floats
    log_value: float


def foresight_targets(returns: ArrayLike, config: TradingEnvConfig) -> Floats:
    """The best targets that the settings allow for known returns, (T,)."""
    positions, rebalance = config.positions, config.actions == "continuous"
    if rebalance:
        low, high = min(positions), max(positions)
        corners = {low, high, *(kink for kink in (0.0, 1.0) if low < kink < high)}
        positions = tuple(sorted(corners))
    costs = trade_costs(config.fee, config.slippage)
    return search(returns, positions, costs, config.borrow_rate, rebalance).targets


def search(
    returns: ArrayLike,
    positions: tuple[float, ...],
    costs: Costs,
    borrow_rate: float,
    rebalance: bool = False,
) -> Foresight:
    """The best targets and their log value; with `rebalance` a drifted weight may be traded back."""
    returns, weights = np.asarray(returns, np.float64), np.asarray(positions, np.float64)
    rules = _rules(weights, costs, borrow_rate, rebalance)
    ranges = _prices_ahead(returns, weights, costs, borrow_rate)
    origins = np.full((len(returns), 2, len(weights)), -1, np.int64)
    shares = np.stack([1 - weights, weights])
    kinds, every, scale = np.arange(len(weights)), BARS_BETWEEN_PRUNING, 0.0
    table, count = _with_room(np.empty((BARRED + len(weights), 0)), rules.column), 0
    value = np.minimum(*_traded(np.ones(1), np.zeros(1), rules))[:, 0]
    for bar, market_return in enumerate(returns.tolist()):
        if bar:
            exits = _exits(table[:, :count], rules)
            best = exits.argmax(axis=1)
            value = exits[kinds, best]
            origins[bar] = table[TARGET : ENTRY + 1, best]
        entered = slice(count, count := count + len(weights))
        table[: STOCK + 1, entered] = shares * np.maximum(value, 0.0)
        table[ENTRY, entered] = bar
        holdings = table[:, :count]
        holdings[: STOCK + 1] *= holdings[CASH_GROWTH : STOCK_GROWTH + 1]
        holdings[STOCK] *= 1 + market_return
        worth = holdings[CASH] + holdings[STOCK]
        if worth.min() <= 0:
            holdings[CASH, worth <= 0] = -np.inf
            if worth.max() <= 0:
                raise ProximaError(
                    f"env.positions: with none of them does an account survive bar {bar} of the "
                    "stretch; add 0"
                )
        if bar % every == every - 1:
            scale += float(np.log(worth.max()))
            holdings[: STOCK + 1] /= worth.max()
            kept = _pruned(holdings, weights, ranges[bar // every])
            table, count = _with_room(kept, rules.column), kept.shape[1]
    worth = table[CASH, :count] + table[STOCK, :count]
    last = table[:, worth.argmax()]
    targets = _targets(origins, weights, int(last[TARGET]), int(last[ENTRY]))
    return Foresight(targets, scale + float(np.log(worth.max())))


class _Rules(NamedTuple):
    """What does not change from bar to bar."""

    kept: Costs  # of what is spent, and of what is sold
    bought: Floats  # (k, 1) what buying to each target divides by, inverted
    sold: Floats  # (k, 1)
    column: Floats  # (rows, k) the constant part of a holding of each target


def _rules(weights: Floats, costs: Costs, borrow_rate: float, rebalance: bool) -> _Rules:
    size = len(weights)
    column = np.zeros((BARRED + size, size))
    column[CASH_GROWTH] = np.where(weights > 1, 1 + borrow_rate, 1.0)
    column[STOCK_GROWTH] = np.where(weights < 0, 1 + borrow_rate, 1.0)
    column[TARGET] = np.arange(size)
    drifts = (weights != 0) & (weights != 1)
    column[BARRED:][np.diag(~(rebalance & drifts))] = -np.inf
    bought = 1 / (1 - costs.buying + costs.buying * weights)
    sold = 1 / (1 - costs.selling * weights)
    kept = Costs(1 - costs.buying, 1 - costs.selling)
    return _Rules(kept, bought[:, None], sold[:, None], column)


def _with_room(holdings: Floats, column: Floats) -> Floats:
    """The holdings and the columns of those that will be entered until the next pruning."""
    return np.concatenate([holdings, np.tile(column, BARS_BETWEEN_PRUNING)], axis=1)


def _exits(holdings: Floats, rules: _Rules) -> Floats:
    """What each holding is worth after a trade to each target, (k, n)."""
    bought, sold = _traded(holdings[CASH], holdings[STOCK], rules)
    np.minimum(bought, sold, out=bought)
    bought += holdings[BARRED:]
    return bought


def _traded(cash: Floats, stock: Floats, rules: _Rules) -> tuple[Floats, Floats]:
    """What cash and stock are worth after buying, and after selling, to each target, (k, n)."""
    bought = (rules.kept.buying * cash + stock) * rules.bought
    sold = (cash + rules.kept.selling * stock) * rules.sold
    return bought, sold


def _prices_ahead(returns: Floats, weights: Floats, costs: Costs, borrow_rate: float) -> Floats:
    """Lowest and highest x ahead of the bars at which is pruned, as shares of the price, (P, 2, k).

    What is borrowed grows: for a short it is as if the price did, for borrowed cash as if it fell.
    """
    log_price = log_value(np.log1p(returns))
    interest = np.log1p(borrow_rate) * np.arange(len(log_price))
    bars = np.arange(BARS_BETWEEN_PRUNING, len(log_price), BARS_BETWEEN_PRUNING)
    ends = np.empty((len(bars), 2, len(weights)))
    for kind, weight in enumerate(weights):
        path = log_price + interest * (float(weight < 0) - float(weight > 1))
        backwards = path[::-1]
        ends[:, 0, kind] = np.minimum.accumulate(backwards)[::-1][bars] - path[bars]
        ends[:, 1, kind] = np.maximum.accumulate(backwards)[::-1][bars] - path[bars]
    limits = np.exp(np.clip(ends, -LARGEST_EXPONENT, LARGEST_EXPONENT))
    return limits * np.array([1 - costs.selling, 1 / (1 - costs.buying)])[:, None]


def _pruned(holdings: Floats, weights: Floats, limits: Floats) -> Floats:
    """The holdings that no other of the same target beats for as long as they live."""
    cash, stock, target = holdings[CASH], holdings[STOCK], holdings[TARGET].astype(int)
    low, high = cash + stock * limits[0, target], cash + stock * limits[1, target]
    weight = weights[target]
    # Where a short lives, and where one who borrowed cash does: the doomed are ranked by how long, below
    # all who live through it. −1/ruin for shorts and −ruin for the others grow with the life.
    best = np.where(weight > 1, high, low)
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing is doomed
        doomed = np.where(weight > 1, cash / stock, stock / cash)
    worst = np.where(weight > 1, low, high)
    worst = np.where(worst > 0, worst, doomed)
    kept = []
    for kind in range(len(weights)):
        own = np.flatnonzero((target == kind) & (cash + stock > 0))
        order = own[np.lexsort((-worst[own], -best[own]))]
        before = np.maximum.accumulate(np.concatenate([[-np.inf], worst[order]]))[:-1]
        kept.append(order[worst[order] > before])
    return holdings[:, np.sort(np.concatenate(kept))]


def _targets(origins: Integers, weights: Floats, target: int, entry: int) -> Floats:
    """The targets (T,) of the holding of `target` since `entry` and of all that led to it."""
    segments = [(entry, target)]
    while entry > 0:
        target, entry = origins[entry, :, target]
        segments.append((int(entry), int(target)))
    targets = np.empty(len(origins))
    asked = 0.0
    for entry, target in reversed(segments):
        weight = float(weights[target])
        # The same target again would be no trade; one step of weights nearer to 0 is one.
        again = asked == weight != 0
        asked = weight - np.sign(weight) / WEIGHT_STEPS if again else weight
        targets[entry:] = asked
    return targets
