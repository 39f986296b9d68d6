"""What a trader does with a bar that arrives, whether it trades one asset or several.

    a bar arrives ─► the order of the bar before is filled in it ─► what was held until then is settled
                  ─► the account at its close, features ─► observation ─► policy ─► target, order

Amounts (`P`) are numbers of one asset, tuples with a number for each of several.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

# Observations and what the policy remembers → its actions and what it remembers then; nothing at the start.
Act = Callable[[Any, dict[str, np.ndarray]], tuple[Any, dict[str, np.ndarray]]]
Memory = Mapping[str, tuple[Any, ...]]  # what a policy with memory remembers, float32

P = TypeVar("P")
F = TypeVar("F")


class Bar(NamedTuple, Generic[P]):
    """What is traded at, of one bar."""

    time: np.datetime64
    open: P
    close: P


class Decision(NamedTuple, Generic[P]):
    """What was decided at the close of a bar."""

    time: str
    target: P
    action: P  # as the policy gave it


class Order(NamedTuple, Generic[P]):
    """What is to be bought (units above 0) or sold, at prices that are known or, of an order, the close."""

    units: P
    price: P
    cost: P  # fee and slippage


class Standing(NamedTuple, Generic[P]):
    """An account at a close."""

    cash: float
    units: P
    equity: float
    weight: P
    log_return: float  # since the start


class Answer(NamedTuple, Generic[P, F]):
    """What is said of a bar."""

    time: str
    close: P
    target: P | None  # None: the features warm up
    order: Order[P] | None  # None: nothing is to be traded
    fill: Order[P] | None  # of the order before, in this bar
    account: Standing[P]
    settled: tuple[Decision[P], F] | None  # the decision whose holding this bar ends
    ruined: bool


class AnyTrader(Protocol):
    """Where a trading stands between two bars."""

    @property
    def capital(self) -> float: ...
    @property
    def ordered(self) -> Decision[Any] | None: ...
    @property
    def memory(self) -> Memory: ...


T = TypeVar("T", bound=AnyTrader)
# Trader, what is settled, the fill.
Filled = tuple[T, tuple[Decision[P], F] | None, Order[P] | None]


class Steps(NamedTuple, Generic[T, P, F]):
    """What differs between traders."""

    fill: str  # when an order is filled
    # The trader once its order is filled at a price, which ends what was held.
    filled: Callable[[T, P], Filled[T, P, F]]
    standing: Callable[[T, P], Standing[P]]  # the account at a close
    # The trader who has ordered what the policy decides at a close; the features end there.
    decide: Callable[[T, Bar[P], NDArray[np.float32]], T]
    # What takes the account to what was ordered, estimated at the close; None: it stays as it is.
    order: Callable[[T, Standing[P], P], Order[P] | None]
    is_ruined: Callable[[T], bool]


def follow_bar(
    steps: Steps[T, P, F], trader: T, bar: Bar[P], features: NDArray[np.float32] | None
) -> tuple[T, Answer[P, F]]:
    """The trader after a bar and what to do now; the features (window, ...) end in it, None: not yet."""
    settled, fill = None, None
    if trader.ordered is not None and steps.fill != "same_close":
        price = bar.open if steps.fill == "next_open" else bar.close
        trader, settled, fill = steps.filled(trader, price)
    standing = steps.standing(trader, bar.close)
    if features is None:
        return trader, Answer(
            stamp(bar.time), bar.close, None, None, fill, standing, settled, False
        )
    trader = steps.decide(trader, bar, features)
    decision = trader.ordered
    assert decision is not None
    order = steps.order(trader, standing, bar.close)
    if steps.fill == "same_close":
        trader, settled, fill = steps.filled(trader, bar.close)
        standing = steps.standing(trader, bar.close)
    answer = Answer(
        time=decision.time,
        close=bar.close,
        target=decision.target,
        order=order,
        fill=fill,
        account=standing,
        settled=settled,
        ruined=steps.is_ruined(trader),
    )
    return trader, answer


def recalled(memory: Memory) -> dict[str, np.ndarray]:
    """What a policy remembers, as it takes it."""
    return {name: np.asarray([part], np.float32) for name, part in memory.items()}


def remembered(memory: Mapping[str, np.ndarray]) -> dict[str, tuple[Any, ...]]:
    """What a policy gave to remember, as a trader keeps it."""
    return {name: tuple(part[0].tolist()) for name, part in memory.items()}


def stamp(time: np.datetime64) -> str:
    """A time as answers have it."""
    return f"{time.astype('datetime64[us]')}Z".replace(".000000Z", "Z")
