"""A loaded policy on raw bars: what its `predict` and `step` do.

    predict    bars, what is held ─► the target at the last close
    step       bars, where the trading stands ─► the target at the last close, where it stands then

`step` is `proxima trade` without a disk: the same answers to the same bars, to the bit. What a policy with a
memory remembers depends on what it held, so `predict` has it trade the bars before the last one too.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.arriving import Batch
from proxima.domains.trading.recipe import Seen
from proxima.domains.trading.stepping import T, recalled
from proxima.domains.trading.tables import WHERE
from proxima.domains.trading.use import (
    CAPITAL,
    Bars,
    Operations,
    amount_of_money,
    moment_given,
)

ANY_GAP = "state._replace(any_gap=True) goes on all the same"
START = {"from", "capital", "any_gap"}  # what may be said of how a trading begins

Memory = dict[str, np.ndarray]


class BarPolicy(NamedTuple, Generic[T]):
    """An exported policy that decides on bars, of one asset or of several."""

    operations: Operations[T]
    read: Callable[[Any, bool], Batch]  # bars in any form; True: each needs a time
    # Bars, what somebody says is held, and what is remembered → the target at the last close.
    decide: Callable[[pl.DataFrame, Any, Memory], Any]
    target: str  # what an answer calls it
    held: str  # what may be said of what is held, in words
    has_memory: bool
    weights: str  # their SHA-256


class TradeState(NamedTuple, Generic[T]):
    """Where the trading of a policy stands after some bars: `step` gives it, and goes on from it."""

    policy: str  # SHA-256 of its weights
    trader: T  # account and memory
    bars: pl.DataFrame  # all that came
    begin: np.datetime64 | None = None  # bars before this time are looked at and not traded on
    answer: Mapping[str, Any] | None = None  # to the last bar, as `proxima trade --json` has it
    any_gap: bool = False  # bars may be further apart, or closer, than those trained on


def step(policy: BarPolicy[T], raw: Any, state: Any = None) -> tuple[Any, TradeState[T]]:
    """The target at the last close, None while features warm up, and where the trading stands then.

    Bars that the state knows are left out, so they may be all there are, or only the new ones.
    """
    before = _state(policy, state)
    batch = policy.read(raw, not before.bars.is_empty())
    after = _advanced(policy, before, batch)
    return (after.answer or {})[policy.target], after


def _advanced(policy: BarPolicy[T], before: TradeState[T], batch: Batch) -> TradeState[T]:
    """Where the trading stands after the bars of a batch that are new."""
    operations = policy.operations
    # The first bars are history, whose times may have been made up here.
    any_gap = before.any_gap or before.bars.is_empty()
    spacing = None if any_gap else operations.recipe.data.spacing
    new = operations.new_bars(before.bars, batch, spacing, ANY_GAP)
    if new.is_empty() and before.answer is not None:
        return before
    known, first = batch.frame.height - new.height, before.bars.height
    frame = pl.concat([before.bars, new]).rechunk()
    bars = Bars(frame, first, lambda row: batch.bar(known + row), before.begin)
    trader, answer = deque(operations.answers(before.trader, bars), maxlen=1).pop()
    return before._replace(trader=trader, bars=bars.frame, answer=answer)


def predict(policy: BarPolicy[T], raw: Any, state: Any = None) -> Any:
    """The target at the close of the last of some bars, for who holds this or stands there.

    Who says nothing holds nothing, but of a policy with a memory what it has bought in these bars.
    """
    if not _is_held(state) and (policy.has_memory or state is not None):
        target, after = step(policy, raw, state)
        if target is None:
            raise _undecided(policy, after)
        return target
    frame = policy.read(raw, False).frame
    return policy.decide(frame, state, _memory_of(policy, frame.head(frame.height - 1)))


def _memory_of(policy: BarPolicy[T], frame: pl.DataFrame) -> Memory:
    """What the policy remembers after trading these bars."""
    if not policy.has_memory or frame.is_empty():
        return {}
    after = _advanced(policy, _state(policy, None), Batch(WHERE, 0, frame, True))
    return recalled(after.trader.memory)


def last_window(
    seen: Seen, bad: tuple[int, str] | None, bars: tuple[int, int, int]
) -> NDArray[np.float32]:
    """What is seen at the last of some bars; `bars` are how many there are, in a window, and needed."""
    count, window, needed = bars
    if seen.ready > count - 1:
        raise too_few(count, needed)
    if bad is not None:
        raise ProximaError(
            f"{WHERE}: row {bad[0] + 1:,}: the feature {bad[1]} is no finite number there"
        )
    return seen.window(count - 1, window)


def _state(policy: BarPolicy[T], state: Any) -> TradeState[T]:
    """The state that somebody gave back, or a new one that begins as they say."""
    if isinstance(state, TradeState):
        if state.policy != policy.weights:
            raise ProximaError("state: is of another policy; give back what this one's step gave")
        return state
    start = {} if state is None else state
    if not isinstance(start, Mapping) or not set(start) <= START:
        raise unknown_state(policy.held, state)
    begin = moment_given(str(start["from"]), "from") if "from" in start else None
    try:
        capital = amount_of_money(float(start.get("capital", CAPITAL)), "capital")
    except (TypeError, ValueError) as error:
        raise unknown_state(policy.held, state) from error
    any_gap = start.get("any_gap", False)
    if not isinstance(any_gap, bool):
        raise unknown_state(policy.held, state)
    operations = policy.operations
    trader = operations.new_trader(capital)
    return TradeState(policy.weights, trader, operations.no_bars, begin=begin, any_gap=any_gap)


def _is_held(state: Any) -> bool:
    """Whether this says what is held, and not where a trading stands or how it begins."""
    return state is not None and not (
        isinstance(state, TradeState) or (isinstance(state, Mapping) and set(state) & START)
    )


def _undecided(policy: BarPolicy[T], state: TradeState[T]) -> ProximaError:
    """Why there is no decision at the last bar."""
    last = state.bars["time"][-1].replace(tzinfo=None)
    if state.begin is not None and np.datetime64(last) < state.begin:
        return ProximaError(
            f"{WHERE}: the last is of {last.isoformat()}Z, before the trading begins ({state.begin}Z); give "
            "later ones, or an earlier `from`"
        )
    return too_few(state.bars.height, policy.operations.recipe.bars)


def too_few(count: int, needed: int) -> ProximaError:
    """That so many bars are not enough."""
    return ProximaError(
        f"{WHERE}: {count:,} bars are too few; this policy needs {needed:,} for its "
        "features, the more the better for those that remember longer than their window"
    )


def unknown_state(held: str, state: Any) -> ProximaError:
    """That this says neither what is held, as these words have it, nor where a trading stands or begins."""
    shown = repr(dict(state) if isinstance(state, Mapping) else state)[:60]
    return ProximaError(
        f"state: expected {held}, as finite numbers; or from, capital and any_gap, to "
        f"begin; or what step gave; got {shown}"
    )
