"""What a portfolio of several assets is worth after every bar, in float64: the truth for all others.

    trade   from weights w to targets a at a fee f on every amount traded. What is left, ν per unit of
            value, pays for its own trade: ν = 1 − f·Σ|νa − w|
    hold    over returns ρ: every holding grows by 1 + ρ, what is borrowed (cash or shares) also by 1 + r

Weights are shares of the value; what they leave of 1 is cash. ν is the root of a convex function that is
made of straight lines: Newton's method from 1 comes down to it and ends on its line, so it is exact.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.accounting import RUIN_GROWTH, RUIN_REWARD, Floats, log_value

ROUNDING = 1e-15  # of a value: smaller steps are none


class Bar(NamedTuple):
    """One bar of an account, per unit of value before its trade; leading axes are accounts side by side."""

    held: Floats  # (..., n) weights over the bar, after its trade
    traded: Floats  # (..., n) bought (+) or sold (−) before the bar
    cost: Floats  # (...) share of the value that the trade took
    contribution: Floats  # (..., n) what each asset's holding added
    log_return: Floats  # (...) its costs and interest included
    ruined: NDArray[np.bool_]  # (...) by this bar
    weights: Floats  # (..., n) what the holdings have become; nothing after a ruin


class Account(NamedTuple):
    """A portfolio of n assets over T bars; after a ruin nothing is held."""

    target: Floats  # (T, ..., n) what was asked for; NaN: nothing was traded
    held: Floats  # (T, ..., n) weights over the bar, after its trade
    traded: Floats  # (T, ..., n) bought (+) or sold (−) before the bar, per unit of value before the trade
    cost: Floats  # (T, ...) share of the value that the trade took
    contribution: Floats  # (T, ..., n) what each asset added, per unit of value before the trade
    log_return: Floats  # (T, ...) of the bar, its costs and interest included
    log_value: Floats  # (T + 1, ...) starts at 0
    ruined: NDArray[np.bool_]  # (T, ...) the bar that did it


def kept_value(weights: Floats, target: Floats, fee: float) -> Floats:
    """What a trade from some weights (..., n) to others leaves of each unit of value, (...)."""
    kept = np.ones(target.shape[:-1])
    for _ in range(weights.shape[-1] + 1):  # every step passes at least one of the n kinks
        moved = kept[..., None] * target - weights
        excess = kept - 1 + fee * np.abs(moved).sum(-1)
        slope = 1 + fee * (target * np.sign(moved)).sum(-1)
        step = excess / slope
        goes_on = step > ROUNDING  # each by itself: its bits do not depend on those beside it
        if not goes_on.any():
            break
        kept = np.where(goes_on, kept - step, kept)
    return kept


def settle(weights: Floats, target: Floats, returns: Floats, fee: float, borrow_rate: float) -> Bar:
    """A bar that trades from weights to targets, both (..., n), and holds them over returns (n,).

    A target of NaN does not trade: what is held drifts on.
    """
    stays = np.isnan(target[..., :1])
    held = np.where(stays, weights, target)
    kept = np.where(stays[..., 0], 1.0, kept_value(weights, held, fee))
    grown = held * (1 + returns) * np.where(held < 0, 1 + borrow_rate, 1.0)
    gain = grown - held
    interest = borrow_rate * np.minimum(0.0, 1 - held.sum(-1))  # on borrowed cash
    growth = kept * (1 + gain.sum(-1) + interest)
    ruined = growth <= RUIN_GROWTH
    safe = np.where(ruined, 1.0, growth)
    kept_each = kept[..., None]
    return Bar(
        held=held,
        traded=kept_each * held - weights,
        cost=1 - kept,
        contribution=kept_each * gain,
        log_return=np.where(ruined, RUIN_REWARD, np.log(safe)),
        ruined=ruined,
        weights=np.where(ruined[..., None], 0.0, kept_each * grown / safe[..., None]),
    )


def account(
    targets: ArrayLike, returns: ArrayLike, fee: float = 0.0, borrow_rate: float = 0.0
) -> Account:
    """The account of targets (T, ..., n), traded to at every bar, over the assets' returns (T, n).

    It starts with cash alone. A row of NaN does not trade: what is held drifts on.
    """
    targets, returns = np.asarray(targets, np.float64), np.asarray(returns, np.float64)
    _check(targets, returns, fee)
    bars = list(bar_by_bar(targets, returns, fee, borrow_rate))
    columns = {
        name: np.stack([getattr(bar, name) for bar in bars])
        for name in ("held", "traded", "cost", "contribution", "log_return", "ruined")
    }
    return Account(target=targets, log_value=log_value(columns["log_return"]), **columns)


def bar_by_bar(
    targets: Iterable[Floats], returns: Floats, fee: float, borrow_rate: float
) -> Iterator[Bar]:
    """The bars of accounts that start with cash alone; targets (..., n) come one bar after the other."""
    weights: Floats | None = None
    ended: NDArray[np.bool_] = np.zeros((), np.bool_)
    for target, moves in zip(targets, returns, strict=True):
        held = np.zeros(target.shape) if weights is None else weights
        bar = settle(held, np.where(ended[..., None], 0.0, target), moves, fee, borrow_rate)
        yield bar
        weights, ended = bar.weights, ended | bar.ruined


def held_log_value(returns: Floats, fee: float) -> Floats:
    """The log values (T + 1,) of as much of each asset, bought at the first bar and held; without a loop."""
    assets = returns.shape[1]
    weights = np.full(assets, 1 / assets)
    kept = kept_value(np.zeros(assets), weights, fee)
    grown = kept * (np.cumprod(1 + returns, axis=0) @ weights)
    return np.concatenate([[0.0], np.log(grown)])


def side_by_side(together: Account) -> list[Account]:
    """Each of the accounts along the second axis by itself."""
    count = together.log_return.shape[1]
    return [Account._make(column[:, index] for column in together) for index in range(count)]


def _check(targets: Floats, returns: Floats, fee: float) -> None:
    if targets.ndim < 2 or (targets.shape[0], targets.shape[-1]) != returns.shape:
        raise ProximaError(
            f"targets {targets.shape} and returns {returns.shape} of a portfolio: both are (bars, assets)"
        )
    if targets.size:
        check_fee(fee, float(np.nansum(np.abs(targets), axis=-1).max()))


def check_fee(fee: float, gross: float) -> None:
    """An error where a trade to weights of that much in all would cost more than there is."""
    if fee * gross >= 1:
        raise ProximaError(
            f"env.fee: at {fee} a trade to weights of {gross:g} in all would cost more than there is; use "
            "a smaller fee or less leverage"
        )
