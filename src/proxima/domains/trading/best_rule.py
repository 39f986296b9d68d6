"""The best rule for one who knows how synthetic prices are made, and the prices so far.

Its targets have the largest expected log value at the end of the stretch, costs included. Nothing that
does not look ahead is better in expectation; in a single stretch anything may be luckier.

What matters of the past is the process's state (processes.py), the last target, and the weight that has
become of it. Backwards from the last bar, with k decisions to go:

    value of holding weight w in state s    H(s, w) = E[ln g(w, r) + V'(s', w')]
    value before the decision               V(s, w) = max(H(s, w), max over b: ln trade(w, b) + H(s, b))

Decisions that are filled a bar later (next_close) are taken before the bar's return r is known:

    V(s, w) = E[ln g(w, r)] + max(E V'(s', w'), max over b: E[ln trade(w', b) + V'(s', b)])

States, weights and returns are on grids, between whose points values are interpolated. Far from the end
the values of all states grow alike; from there on decisions no longer change.

Where that is not the best, or cannot be said to be, there is no rule:

    continuous weights with a fee or slippage    the best is a band of weights at which not to trade
    a hidden variance                            heston with a drift; garch, jump_diffusion without position 0
    a known future                               sine_wave, or no noise at all: perfect foresight is the rule
    a state that changes too slowly              the grid would have to be finer than can be computed
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.domains.trading.accounting import (
    RUIN_GROWTH,
    RUIN_REWARD,
    Floats,
    hold,
    trade_factor,
)
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.env import WEIGHT_STEPS
from proxima.domains.trading.market import Market
from proxima.domains.trading.processes import KNOWN, Params, Process, is_martingale
from proxima.domains.trading.timing import decisions, fill_returns

Integers = NDArray[np.int64]

REACH = 1.2  # log price since the entry up to which drifted weights are told apart
LEAST_WORTH = 0.1  # of the value at entry: below it all weights count alike
POINTS = 20  # of weights to each side of the entry
BEND = 4.0  # how much denser they are near the entry
WEIGHTS = 41  # from the smallest to the largest continuous weight
MOST_CELLS = 2_000_000  # states times weights times returns
MOST_BYTES = 100_000_000  # of all tables
SETTLED = 1e-7  # what states' values may differ by in growth, a bar, where decisions stay
EQUAL = 1e-12  # what a trade must at least gain
NO_TRADE = -1e9  # for what cannot be chosen: less than anything, but a number that can be mixed


class Weights(NamedTuple):
    """All weights n that may be held, those of a target in a row, and the m of them that may be entered."""

    weight: Floats  # (n,) ascending within a row
    row: Integers  # (n,) which weights one drifts among
    entry: Integers  # (m,) by their distance from 0, so that equals go to the smaller one
    flat: int  # where an account starts
    brink: Integers  # shortly before ruin, where a rule always trades: the grid says nothing beyond


class Table(NamedTuple):
    """What the choices are worth with so many decisions to go."""

    keep: Floats  # (s, n) to leave the weight as it is
    enter: Floats  # (s, m) to have an entry's weight after the trade


class Rule(NamedTuple):
    """The best decisions on prices that a process makes, over at most so many bars."""

    process: Process
    config: TradingEnvConfig
    weights: Weights
    costs: Floats  # (n, m) logs of trades; (s, n, m) expected where the fill is a bar later
    tables: tuple[Table, ...]  # with 1, 2, … decisions to go; the last is also for more

    def follow(self, states: Floats, returns: Floats) -> Floats:
        """Its targets (T,), given the state at each decision and what each turned out to earn."""
        return _followed(self, states, returns)


class BestRule(NamedTuple):
    """The best rule for a synthetic pattern."""

    pattern: str
    params: Params
    config: TradingEnvConfig
    rule: Rule | None  # None: nothing can be earned, so it stays out

    def targets(self, market: Market, first_row: int) -> Floats:
        """Its targets (T,) on a market whose first bar is that row of the file."""
        bars = decisions(market, self.config)
        returns = fill_returns(market, self.config.fill)[bars]
        if self.rule is None:
            return np.zeros(len(returns))
        states = KNOWN[self.pattern].states(self.params, market, first_row)[bars]
        return self.rule.follow(states, returns)


def best_rule(
    pattern: str | None, params: Params, config: TradingEnvConfig, bars: int
) -> BestRule | None:
    """The best rule over at most so many bars, or None where none is known."""
    if pattern is None:
        return None
    low, high = min(config.positions), max(config.positions)
    may_stay_out = low <= 0 <= high if config.actions == "continuous" else 0 in config.positions
    if is_martingale(pattern, params) and may_stay_out:
        return BestRule(pattern, params, config, None)
    process = KNOWN[pattern].process(params) if pattern in KNOWN else None
    rule = None if process is None else solve(process, config, bars)
    return None if rule is None else BestRule(pattern, params, config, rule)


def solve(process: Process, config: TradingEnvConfig, bars: int) -> Rule | None:
    """The best decisions over at most so many bars; None where they cannot be computed."""
    if config.actions == "discrete":
        weights = _discrete(config.positions)
    elif config.fee == config.slippage == 0:
        weights = _continuous(min(config.positions), max(config.positions))
    else:
        return None
    if process.chance.size * len(weights.weight) > MOST_CELLS:
        return None
    costs, tables = _tables(process, weights, config, bars)
    return Rule(process, config, weights, costs, tables) if tables else None


def _discrete(positions: tuple[float, ...]) -> Weights:
    """A row of weights for each position, and one for having none."""
    targets = sorted({0.0, *positions})
    rows = [np.array([target]) if target in (0, 1) else _drifts(target) for target in targets]
    weight, row = np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    fresh = {t: int(np.flatnonzero((row == i) & (weight == t))[0]) for i, t in enumerate(targets)}
    entry = np.array([fresh[target] for target in sorted(positions, key=abs)])
    brink = [
        np.flatnonzero(row == i)[0 if t < 0 else -1]
        for i, t in enumerate(targets)
        if t * (t - 1) > 0
    ]
    return Weights(weight, row, entry, fresh[0.0], np.array(brink, np.int64))


def _continuous(low: float, high: float) -> Weights:
    """One row of weights: the allowed ones, and what the outermost drift to."""
    inside = {*np.linspace(low, high, WEIGHTS).tolist()}
    inside |= {kink for kink in (0.0, 1.0) if low < kink < high}
    below, above = _drifts(low), _drifts(high)
    weight = np.concatenate([below[below < low], sorted(inside), above[above > high]])
    entry = np.flatnonzero((weight >= low) & (weight <= high))
    entry = entry[np.argsort(np.abs(weight[entry]), kind="stable")]
    row, last = np.zeros(len(weight), np.int64), len(weight) - 1
    brink = np.array([0] * (low < 0) + [last] * (high > 1), np.int64)
    if low <= 0 <= high:
        return Weights(weight, row, entry, int(np.flatnonzero(weight == 0)[0]), brink)
    return Weights(np.append(weight, 0.0), np.append(row, 1), entry, last + 1, brink)


def _drifts(target: float) -> Floats:
    """What a target's weight becomes as the price moves, ascending; dense around the target itself."""
    if target in (0, 1):
        return np.array([target])
    steps = np.sinh(BEND * np.arange(1, POINTS + 1) / POINTS) / np.sinh(BEND)
    # Shorts are ruined when the price rises that far, credits when it falls.
    least = (target - 1 + LEAST_WORTH) / target
    ruin = abs(math.log(least)) if least > 0 else REACH
    rise, fall = (min(REACH, ruin) if danger else REACH for danger in (target < 0, target > 1))
    moves = np.concatenate([-fall * steps[::-1], [0.0], rise * steps])
    stock = target * np.exp(moves)
    weight = stock / (stock + 1 - target)
    weight[POINTS] = target
    return np.sort(weight)


def _tables(
    process: Process, weights: Weights, config: TradingEnvConfig, bars: int
) -> tuple[Floats, tuple[Table, ...]]:
    """The logs of what trades cost, and the tables; none where they do not settle within their memory."""
    late = config.fill == "next_close"
    moves = np.expm1(process.log_return)[:, None, :]
    growth, drifted = _held(weights.weight, moves, config.borrow_rate)
    alive = growth > RUIN_GROWTH
    logs = np.where(alive, np.log(np.where(alive, growth, 1.0)), RUIN_REWARD)
    chance = process.chance[:, None, :] * alive
    gain = (process.chance[:, None, :] * logs).sum(axis=-1)
    ahead, costs = _ahead(process, weights, drifted, chance), _trade_costs(weights, config)
    if late:
        expected = [
            (chance * _log_factor(drifted, target, config)).sum(axis=-1)
            for target in weights.weight[weights.entry].tolist()
        ]
        costs = np.where(costs == NO_TRADE, NO_TRADE, np.stack(expected, axis=-1))
    value = gain if late else np.zeros_like(gain)
    most = MOST_BYTES // (8 * len(process.state) * (len(weights.weight) + len(weights.entry)))
    tables: list[Table] = []
    while len(tables) < min(bars, most):
        keep = _expected(ahead, value)
        if late:
            enter = _entered(ahead, value[:, weights.entry], process.chance)
        else:
            keep += gain
            enter = keep[:, weights.entry]
        keep[:, weights.brink] = NO_TRADE
        tables.append(Table(keep, enter))
        best = np.maximum(keep, (enter[:, None, :] + costs).max(axis=-1))
        before, value = value, best + gain if late else best
        if np.ptp(value - before) < SETTLED:
            return costs, tuple(tables)
    return costs, tuple(tables) if len(tables) == bars else ()


def _held(weight: Floats, moves: Floats, rate: float) -> tuple[Floats, Floats]:
    """`accounting.hold` of weights (n,) over returns (s, 1, k): growth and weight after it, (s, n, k)."""
    weight = weight[:, None]
    owed = rate * (np.maximum(weight - 1, 0) + np.maximum(-weight, 0) * (1 + moves))
    growth = 1 + weight * moves - owed
    grown = weight * (1 + moves) * np.where(weight < 0, 1 + rate, 1.0)
    return growth, grown / np.maximum(growth, RUIN_GROWTH)


def _trade_costs(weights: Weights, config: TradingEnvConfig) -> Floats:
    """Logs of what trades from each weight to each entry leave, NO_TRADE where none is, (n, m)."""
    entered = weights.weight[weights.entry]
    logs = _log_factor(weights.weight[:, None], entered, config)
    if config.actions == "discrete":  # a position that is asked for again is kept as it is
        logs[weights.row[:, None] == weights.row[weights.entry]] = NO_TRADE
    return logs


def _log_factor(weight: ArrayLike, target: ArrayLike, config: TradingEnvConfig) -> Floats:
    left = trade_factor(weight, target, config.fee, config.slippage)
    return np.log(np.maximum(left, RUIN_GROWTH))


class _Ahead(NamedTuple):
    """Where each state and weight lead to: neighbours on the grid, with their probabilities."""

    cells: Integers  # (s, n, 4k) of values (s, n), made flat
    chance: Floats  # (s, n, 4k)
    states: Integers  # (s, k) the state below
    share: Floats  # (s, k) of the state above it


def _ahead(process: Process, weights: Weights, drifted: Floats, chance: Floats) -> _Ahead:
    """The neighbours of the weights (s, n, k) that follow, each with its probability."""
    states, share = _between(process.state, process.following)
    lower, part = np.zeros(drifted.shape, np.int64), np.zeros(drifted.shape)
    for row in np.unique(weights.row):
        (own,) = np.nonzero(weights.row == row)
        lower[:, own] = own[0]
        if len(own) > 1:
            found, part[:, own] = _between(weights.weight[own], drifted[:, own])
            lower[:, own] += found
    upper = np.minimum(lower + 1, len(weights.weight) - 1)
    size, above = len(weights.weight), share[:, None, :]
    base = states[:, None, :] * size
    cells = [base + lower, base + upper, base + size + lower, base + size + upper]
    parts = [(1 - above) * (1 - part), (1 - above) * part, above * (1 - part), above * part]
    shares = [chance * part for part in parts]
    return _Ahead(np.concatenate(cells, -1), np.concatenate(shares, -1), states, share)


def _expected(ahead: _Ahead, value: Floats) -> Floats:
    """The next value of each state and weight, (s, n)."""
    return np.einsum("snc,snc->sn", value.ravel()[ahead.cells], ahead.chance)


def _entered(ahead: _Ahead, value: Floats, chance: Floats) -> Floats:
    """The next value of each state with an entry's weight, (s, m), of values (s, m)."""
    share = ahead.share[..., None]
    between = value[ahead.states] * (1 - share) + value[ahead.states + 1] * share
    return np.einsum("skm,sk->sm", between, chance)


def _between(grid: Floats, values: Floats) -> tuple[Integers, Floats]:
    """The grid point below each value, and how far it is to the next; beyond the ends, the ends."""
    lower = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
    share = (values - grid[lower]) / (grid[lower + 1] - grid[lower])
    return lower, np.clip(share, 0.0, 1.0)


def _followed(rule: Rule, states: Floats, returns: Floats) -> Floats:
    """The rule's targets (T,), decision after decision; after a ruin there are none."""
    config, weights = rule.config, rule.weights
    late = config.fill == "next_close"
    cells, shares = _between(rule.process.state, states)
    targets = np.zeros(len(returns))
    at, weight, asked = (
        weights.flat,
        0.0,
        0.0,
    )  # a weight of the row that is held, and what it is by now
    for bar, (cell, share) in enumerate(zip(cells.tolist(), shares.tolist(), strict=True)):
        table = rule.tables[min(len(returns) - bar, len(rule.tables)) - 1]
        chosen = _choice(rule, table, (cell, share), at, weight)
        growth = 1.0
        if late and bar:  # what is asked for now is filled after the bar
            growth, weight = hold(weight, float(returns[bar - 1]), config.borrow_rate)
        if chosen is not None:
            at, target = chosen
            # The same target again would be no trade; one step of weights further inside is one.
            middle = (min(config.positions) + max(config.positions)) / 2
            again = target == asked != weight
            asked = target + math.copysign(1 / WEIGHT_STEPS, middle - target) if again else target
            weight = asked
        targets[bar] = asked
        if not late:
            growth, weight = hold(weight, float(returns[bar]), config.borrow_rate)
        if growth <= RUIN_GROWTH:
            return targets
    return targets


def _choice(
    rule: Rule, table: Table, state: tuple[int, float], at: int, weight: float
) -> tuple[int, float] | None:
    """The entry to trade to and its target, or None where the weight is best left as it is."""
    config, weights, (cell, share) = rule.config, rule.weights, state
    row = weights.row[at]
    lower, above = np.searchsorted(weights.row, [row, row + 1]).tolist()
    part = 0.0
    if above - lower > 1:
        found, near = _between(weights.weight[lower:above], np.array(weight))
        lower, part = lower + int(found), float(near)
    keep = _mixed(table.keep, cell, share, lower, part)
    enter = (1 - share) * table.enter[cell] + share * table.enter[cell + 1]
    if config.fill == "next_close":
        enter = enter + _mixed(rule.costs, cell, share, lower, part)
    else:
        logs = _log_factor(weight, weights.weight[weights.entry], config)
        enter = enter + np.where(rule.costs[lower] == NO_TRADE, NO_TRADE, logs)
    best = int(np.argmax(enter))
    if enter[best] <= keep + EQUAL:
        return None
    chosen = int(weights.entry[best])
    if config.actions == "discrete":
        return chosen, float(weights.weight[chosen])
    return chosen, _refined(weights.weight[weights.entry], enter, best)


def _mixed(values: Floats, cell: int, share: float, lower: int, part: float) -> Floats:
    """Values (s, n, ...) between two states and two weights."""
    upper = min(lower + 1, values.shape[1] - 1)
    below, above = values[cell], values[cell + 1]
    one = (1 - part) * below[lower] + part * below[upper]
    other = (1 - part) * above[lower] + part * above[upper]
    return (1 - share) * one + share * other


def _refined(weight: Floats, value: Floats, best: int) -> float:
    """The weight at the top of the parabola through the best and its two neighbours, in whole steps."""
    order = np.argsort(weight)
    rank = int(np.flatnonzero(order == best)[0])
    top = float(weight[best])
    if 0 < rank < len(order) - 1:
        near = order[rank - 1 : rank + 2]
        curve, slope, _ = np.polyfit(weight[near] - top, value[near] - value[best], 2)
        if curve < 0:
            low, high = weight[near[[0, 2]]]
            top = float(np.clip(top - slope / (2 * curve), low, high))
    return round(top * WEIGHT_STEPS) / WEIGHT_STEPS
