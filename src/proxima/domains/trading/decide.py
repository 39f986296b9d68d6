"""A loaded policy on raw bars: what its `predict` and `step` do.

    predict    bars, what is held ─► the target at the last close
    step       bars, where the trading stands ─► the target at the last close, where it stands then

`step` is `proxima trade` without a disk: the same answers to the same bars, to the bit. What a policy with a
memory remembers depends on what it held, so `predict` has it trade the bars before the last one too.
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.arriving import Batch, new_bars
from proxima.domains.trading.env import WEIGHT_CLIP, targets_of
from proxima.domains.trading.recipe import Reader, bad_value, see
from proxima.domains.trading.tables import WHERE, bars_of
from proxima.domains.trading.trade_state import NO_BARS
from proxima.domains.trading.trader import Act, Trader, recalled
from proxima.domains.trading.use import (
    CAPITAL,
    Bars,
    amount_of_money,
    answers,
    as_json,
    moment_given,
)

HELD = ({"weight"}, {"cash", "units"})  # what may be said of what is held
ANY_GAP = "state._replace(any_gap=True) goes on all the same"
START = {"from", "capital", "any_gap"}  # and of how a trading begins


class BarPolicy(NamedTuple):
    """An exported policy that decides on bars."""

    reader: Reader
    act: Act
    has_memory: bool
    weights: str  # their SHA-256


class TradeState(NamedTuple):
    """Where the trading of a policy stands after some bars: `step` gives it, and goes on from it."""

    policy: str  # SHA-256 of its weights
    trader: Trader  # account and memory
    bars: pl.DataFrame = NO_BARS  # all that came
    begin: np.datetime64 | None = None  # bars before this time are looked at and not traded on
    answer: Mapping[str, Any] | None = None  # to the last bar, as `proxima trade --json` has it
    any_gap: bool = False  # bars may be further apart, or closer, than those trained on


def step(policy: BarPolicy, raw: Any, state: Any = None) -> tuple[float | None, TradeState]:
    """The target at the last close, None while features warm up, and where the trading stands then.

    Bars that the state knows are left out, so they may be all there are, or only the new ones.
    """
    before, reader = _state(policy, state), policy.reader
    timed = () if before.bars.is_empty() else ("time",)
    frame = bars_of(raw, (*reader.recipe.columns, *timed))
    # The first bars are history, whose times may have been made up here.
    any_gap = before.any_gap or before.bars.is_empty()
    spacing = None if any_gap else reader.recipe.data.spacing
    batch = Batch(WHERE, 0, frame, True)
    new = new_bars(before.bars, batch, spacing, reader.needs_volume, ANY_GAP)
    if new.is_empty() and before.answer is not None:
        return before.answer["target"], before
    known, first = frame.height - new.height, before.bars.height
    bars = Bars(pl.concat([before.bars, new]).rechunk(), first, WHERE, known, before.begin)
    every = answers(reader, policy.act, before.trader, bars)
    trader, last = deque(every, maxlen=1).pop()
    answer = as_json(last, trader.capital)
    return last.target, before._replace(trader=trader, bars=bars.frame, answer=answer)


def predict(policy: BarPolicy, raw: Any, state: Any = None) -> float:
    """The target weight at the close of the last of some bars, for who holds this or stands there.

    Who says nothing holds nothing, but of a policy with a memory what it has bought in these bars.
    """
    reader = policy.reader
    if not _is_held(state) and (policy.has_memory or state is not None):
        target, after = step(policy, raw, state)
        if target is None:
            raise _undecided(reader, after)
        return target
    frame = bars_of(raw, reader.recipe.columns)
    last = frame.height - 1
    seen = see(reader, frame, last)
    if seen.ready > last:
        raise _too_few(reader, frame)
    bad = bad_value(reader, seen, seen.first)
    if bad is not None:
        raise ProximaError(
            f"{WHERE}: row {bad[0] + 1:,}: the feature {bad[1]} is no finite number there"
        )
    weight = held_weight(state, float(frame["close"][-1]))
    observed = observation(seen.window(last, reader.account.window), weight)
    actions, _ = policy.act(observed[None], _memory_of(policy, frame.head(last)))
    return float(targets_of(np.asarray(actions).reshape(1), reader.account)[0])


def _memory_of(policy: BarPolicy, frame: pl.DataFrame) -> dict[str, np.ndarray]:
    """What the policy remembers after trading these bars."""
    if not policy.has_memory or frame.is_empty():
        return {}
    return recalled(step(policy, frame)[1].trader)


def _state(policy: BarPolicy, state: Any) -> TradeState:
    """The state that somebody gave back, or a new one that begins as they say."""
    if isinstance(state, TradeState):
        if state.policy != policy.weights:
            raise ProximaError("state: is of another policy; give back what this one's step gave")
        return state
    start = {} if state is None else state
    if not isinstance(start, Mapping) or not set(start) <= START:
        raise _unknown_state(state)
    begin = moment_given(str(start["from"]), "from") if "from" in start else None
    try:
        capital = amount_of_money(float(start.get("capital", CAPITAL)), "capital")
    except (TypeError, ValueError) as error:
        raise _unknown_state(state) from error
    any_gap = start.get("any_gap", False)
    if not isinstance(any_gap, bool):
        raise _unknown_state(state)
    return TradeState(policy.weights, Trader(capital), begin=begin, any_gap=any_gap)


def _is_held(state: Any) -> bool:
    """Whether this says what is held, and not where a trading stands or how it begins."""
    return state is not None and not (
        isinstance(state, TradeState) or (isinstance(state, Mapping) and set(state) & START)
    )


def _undecided(reader: Reader, state: TradeState) -> ProximaError:
    """Why there is no decision at the last bar."""
    last = state.bars["time"][-1].replace(tzinfo=None)
    if state.begin is not None and np.datetime64(last) < state.begin:
        return ProximaError(
            f"{WHERE}: the last is of {last.isoformat()}Z, before the trading begins ({state.begin}Z); give "
            "later ones, or an earlier `from`"
        )
    return _too_few(reader, state.bars)


def _too_few(reader: Reader, frame: pl.DataFrame) -> ProximaError:
    return ProximaError(
        f"{WHERE}: {frame.height:,} bars are too few; this policy needs {reader.recipe.bars:,} for its "
        "features, the more the better for those that remember longer than their window"
    )


def observation(features: NDArray[np.float32], weight: float) -> NDArray[np.float32]:
    """What a policy sees: the features of the last bars, and the weight held at the close."""
    limited = np.clip(np.float32(weight), -WEIGHT_CLIP, WEIGHT_CLIP)
    return np.concatenate([features.reshape(-1), [limited]]).astype(np.float32)


def held_weight(state: Any, close: float) -> float:
    """The weight of what is held: none, as a number, or of cash and units at a close."""
    if state is None:
        return 0.0
    content = state if isinstance(state, Mapping) else {"weight": state}
    try:
        amounts = {name: float(value) for name, value in content.items()}
    except (TypeError, ValueError) as error:
        raise _unknown_state(state) from error
    if set(amounts) not in HELD or not all(map(math.isfinite, amounts.values())):
        raise _unknown_state(state)
    if "weight" in amounts:
        return amounts["weight"]
    worth = amounts["units"] * close
    value = worth + amounts["cash"]
    if value <= 0:
        raise ProximaError("state: cash and units are worth nothing together")
    return worth / value


def _unknown_state(state: Any) -> ProximaError:
    shown = repr(dict(state) if isinstance(state, Mapping) else state)[:60]
    return ProximaError(
        "state: expected cash and units, or weight, as finite numbers; or from, capital and any_gap, to "
        f"begin; or what step gave; got {shown}"
    )
