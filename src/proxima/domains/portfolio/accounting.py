"""What a portfolio of several assets is worth after every bar, in float64: the truth for all others.

    trade   from weights w to targets a at a cost c on every amount traded. What is left, ν per unit of
            value, pays for its own trade: ν = 1 − c·Σ|νa − w|
    hold    over returns ρ: every holding grows by 1 + ρ, what is borrowed (cash or shares) also by 1 + r

Weights are shares of the value; what they leave of 1 is cash. ν is the root of a convex function that is
made of straight lines: Newton's method from 1 comes down to it and ends on its line, so it is exact.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.core.errors import ProximaError

Floats = NDArray[np.float64]

RUIN_REWARD = -10.0
"""The log return of a bar that ruins: a value that fell below e⁻¹⁰ of itself, or to 0 and less."""
RUIN_GROWTH = float(np.exp(RUIN_REWARD))


class Account(NamedTuple):
    """A portfolio of n assets over T bars; after a ruin nothing is held."""

    target: Floats  # (T, n) what was asked for
    traded: (
        Floats  # (T, n) bought (+) or sold (−) before the bar, per unit of value before the trade
    )
    cost: Floats  # (T,) share of the value that the trade took
    contribution: (
        Floats  # (T, n) what each asset's holding added, per unit of value before the trade
    )
    log_return: Floats  # (T,) of the bar, its costs and interest included
    log_value: Floats  # (T + 1,) starts at 0
    ruined: NDArray[np.bool_]  # (T,) the bar that did it


def kept_value(weights: Floats, target: Floats, cost: float) -> float:
    """What a trade from one vector of weights (n,) to another leaves of each unit of value."""
    kept = 1.0
    for _ in range(len(weights) + 1):  # every step passes at least one of the n kinks
        moved = kept * target - weights
        excess = kept - 1 + cost * np.abs(moved).sum()
        slope = 1 + cost * (target * np.sign(moved)).sum()
        step = float(excess / slope)
        if step <= 0:
            break
        kept -= step
    return kept


def account(
    targets: ArrayLike, returns: ArrayLike, cost: float = 0.0, borrow_rate: float = 0.0
) -> Account:
    """The account of targets (T, n), traded to at every bar, over the assets' returns (T, n).

    It starts with cash alone. A row of NaN does not trade: what is held drifts on.
    """
    targets, returns = np.asarray(targets, np.float64), np.asarray(returns, np.float64)
    _check(targets, returns, cost)
    bars, assets = returns.shape
    traded, contribution = np.zeros((bars, assets)), np.zeros((bars, assets))
    paid, log_return = np.zeros(bars), np.zeros(bars)
    ruined = np.zeros(bars, np.bool_)
    weights = np.zeros(assets)
    for bar in range(bars):
        kept, held = 1.0, weights
        if not np.isnan(targets[bar, 0]):
            kept, held = kept_value(weights, targets[bar], cost), targets[bar]
        gain, grown = hold(held, returns[bar], borrow_rate)
        growth = kept * (1 + gain.sum() + interest(held, borrow_rate))
        traded[bar], paid[bar], contribution[bar] = kept * held - weights, 1 - kept, kept * gain
        if growth <= RUIN_GROWTH:
            ruined[bar], log_return[bar] = True, RUIN_REWARD
            break
        log_return[bar] = np.log(growth)
        weights = kept * grown / growth
    log_value = np.concatenate([[0.0], np.cumsum(log_return)])
    return Account(targets, traded, paid, contribution, log_return, log_value, ruined)


def hold(weights: Floats, returns: Floats, borrow_rate: float) -> tuple[Floats, Floats]:
    """What each asset adds over a bar, and what each holding is worth after it, (n,) both."""
    grown = weights * (1 + returns) * np.where(weights < 0, 1 + borrow_rate, 1.0)
    return grown - weights, grown


def interest(weights: Floats, borrow_rate: float) -> float:
    """What borrowed cash costs over a bar, as a number of at most 0."""
    return borrow_rate * min(0.0, 1 - float(weights.sum()))


def _check(targets: Floats, returns: Floats, cost: float) -> None:
    if targets.shape != returns.shape:
        raise ProximaError(
            f"targets {targets.shape} and returns {returns.shape} of a portfolio: both are (bars, assets)"
        )
    largest = float(np.nansum(np.abs(targets), axis=1).max(initial=0.0))
    if cost * largest >= 1:
        raise ProximaError(
            f"env.cost: at {cost} a trade to weights of {largest:g} in all would cost more than there "
            "is; use a smaller cost or less leverage"
        )
