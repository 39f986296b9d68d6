"""A loaded policy on raw bars of one asset."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.arriving import Batch
from proxima.domains.trading.decide import BarPolicy, Memory, last_window, unknown_state
from proxima.domains.trading.env import WEIGHT_CLIP, targets_of
from proxima.domains.trading.one_asset import operations
from proxima.domains.trading.recipe import Reader, bad_value, see
from proxima.domains.trading.stepping import Act
from proxima.domains.trading.tables import WHERE, bars_of
from proxima.domains.trading.trader import Trader

HELD = ({"weight"}, {"cash", "units"})  # what may be said of what is held
IN_WORDS = "cash and units, or weight"


def bar_policy(reader: Reader, act: Act, has_memory: bool, weights: str) -> BarPolicy[Trader]:
    """A policy that decides on bars of one asset."""
    return BarPolicy(
        operations=operations(reader, act),
        read=partial(_read, reader),
        decide=partial(_decide, reader, act),
        target="target",
        held=IN_WORDS,
        has_memory=has_memory,
        weights=weights,
    )


def _read(reader: Reader, raw: Any, timed: bool) -> Batch:
    needed = (*reader.recipe.columns, *(("time",) if timed else ()))
    return Batch(WHERE, 0, bars_of(raw, needed), True)


def _decide(reader: Reader, act: Act, frame: pl.DataFrame, state: Any, memory: Memory) -> float:
    """The target weight at the last close, for who holds this."""
    account, recipe = reader.account, reader.recipe
    seen = see(reader, frame, frame.height - 1)
    bad = bad_value(reader, seen, seen.first)
    features = last_window(seen, bad, (frame.height, account.window, recipe.bars))
    weight = held_weight(state, float(frame["close"][-1]))
    actions, _ = act(observation(features, weight)[None], memory)
    return float(targets_of(np.asarray(actions).reshape(1), account)[0])


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
        raise unknown_state(IN_WORDS, state) from error
    if set(amounts) not in HELD or not all(map(math.isfinite, amounts.values())):
        raise unknown_state(IN_WORDS, state)
    if "weight" in amounts:
        return amounts["weight"]
    worth = amounts["units"] * close
    value = worth + amounts["cash"]
    if value <= 0:
        raise ProximaError("state: cash and units are worth nothing together")
    return worth / value
