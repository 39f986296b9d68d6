"""When decisions are filled, and at which bars an account decides: the same for one asset and for several.

    decide at the close of bar t  →  filled at price F[t]  →  earns F[t + 1] / F[t]

F is the next bar's open, its close, or bar t's own close. Prices are (bars,) of one asset, (bars, n) of n.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from proxima.core.errors import ProximaError

PRICES = ("features", "returns", "marks")  # arrays of an environment with a row for each bar
OWN = (*PRICES, "bars", "last_start", "max_steps")  # what depends on the stretch of prices

E = TypeVar("E")


class Prices(Protocol):
    """What can be filled at."""

    @property
    def open(self) -> NDArray[np.float64]: ...
    @property
    def close(self) -> NDArray[np.float64]: ...


class Timing(Protocol):
    """Settings that say when an account decides."""

    @property
    def fill(self) -> str: ...
    @property
    def window(self) -> int: ...
    @property
    def random_start(self) -> bool: ...
    @property
    def max_steps_per_episode(self) -> int | None: ...


def fill_prices(prices: Prices, fill: str) -> NDArray[np.float64]:
    """The price at which the decision of each bar is filled; the last bars may have none."""
    if fill == "same_close":
        return prices.close
    return prices.open[1:] if fill == "next_open" else prices.close[1:]


def fill_returns(prices: Prices, fill: str) -> NDArray[np.float64]:
    """What each decision earns, (m, ...): from its own fill price to that of the next."""
    filled = fill_prices(prices, fill)
    return filled[1:] / filled[:-1] - 1


def mark_returns(prices: Prices, fill: str) -> NDArray[np.float64]:
    """From the last fill price to the close at which one decides, (m + 1, ...); nothing before bar 1."""
    filled = fill_prices(prices, fill)
    return np.concatenate(
        [np.zeros_like(filled[:1]), prices.close[1 : len(filled)] / filled[:-1] - 1]
    )


def decisions(prices: Prices, config: Timing) -> slice:
    """The bars of a stretch at which an evaluation decides, first to last."""
    return slice(config.window - 1, len(fill_returns(prices, config.fill)))


def last_start(steps: int, config: Timing, training: bool) -> int:
    """The last bar an episode may start at: one that leaves a whole episode, where any does."""
    first = config.window - 1
    if not (training and config.random_start):
        return first
    whole = steps - (config.max_steps_per_episode or 1)
    return whole if whole >= first else steps - 1


def check_length(prices: Prices, config: Timing) -> None:
    """An error in words where there is no step after a whole window."""
    steps, bars = len(fill_returns(prices, config.fill)), len(prices.close)
    if steps < config.window:
        raise ProximaError(
            f"env.window: {bars} bars with fill {config.fill} leave no step after a window of "
            f"{config.window}; use more rows or a shorter window"
        )


def of_equal_length(envs: Sequence[E]) -> list[E]:
    """The same environments with arrays as long as the longest has them; what is added is never reached."""
    longest = {name: max(len(getattr(env, name)) for env in envs) for name in PRICES}

    def longer(values: Array, length: int) -> Array:
        rest = [(0, length - len(values))] + [(0, 0)] * (values.ndim - 1)
        return jnp.pad(values, rest)

    def lengthened(env: Any) -> Any:
        padded = {name: longer(getattr(env, name), length) for name, length in longest.items()}
        return dataclasses.replace(env, **padded)

    return [lengthened(env) for env in envs]


def own_prices(envs: Sequence[E]) -> E:
    """What lanes with these environments have of their own, lanes first; None for what they share."""
    empty: Any = jax.tree.map(lambda _: None, envs[0])
    own = {name: jnp.stack([getattr(env, name) for env in envs]) for name in OWN}
    lanes: E = dataclasses.replace(empty, **own)
    return lanes
