"""What an environment itself observes and takes, where that is not what agents see and choose.

An exported policy goes all the way, from the environment's own observations to its own actions:

    own observations ─► encode ─► agent ─► decode ─► own actions

Both functions take a batch (n, ...) and the module to compute with, NumPy or `jax.numpy`: the pools that
train and evaluate and the program that is exported do the same. Worker processes import this file too, so
JAX is not imported here.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from proxima.core.spaces import Box, Fields, MultiDiscrete, ObservationSpace, Space

Description = Mapping[str, Any]  # of a space, as strict JSON has it


class Interface(NamedTuple):
    """An environment's own observations and actions, and how to get to an agent's and back."""

    observation: Description  # shape and dtype, or those of its `fields` by name
    action: Description
    encode: Callable[[Any, Any], Any]  # own observations, NumPy or its like → an agent's
    decode: Callable[[Any, Any], Any]  # an agent's actions, NumPy or its like → own


def interface_of(observation_space: ObservationSpace, action_space: Space) -> Interface:
    """Of an environment that observes and takes what its agents see and choose, within its bounds."""
    return Interface(
        described_observation(observation_space),
        described_array(action_space),
        lambda obs, numpy: obs,
        lambda actions, numpy: within(action_space, actions, numpy, leading=1),
    )


def within(space: Space, actions: Any, numpy: Any, leading: int = 0) -> Any:
    """Actions over so many leading axes in the shape of the space; numbers are clipped to its bounds."""
    if not isinstance(space, Box):
        return actions
    low, high = (
        np.asarray(bound, space.dtype).reshape((*(1,) * leading, *space.shape))
        for bound in (space.low, space.high)
    )
    # Agents choose numbers side by side, whatever the shape.
    return numpy.clip(actions.reshape((*actions.shape[:leading], *space.shape)), low, high)


def described_observation(space: Space | Fields) -> Description:
    """Shape, dtype and bounds, of every field where there are fields."""
    if isinstance(space, Fields):
        return {"fields": {name: described_array(part) for name, part in space.items()}}
    return described_array(space)


def described_array(space: Space) -> Description:
    """What is seen or chosen: a number of a few, several such, or numbers within bounds."""
    if isinstance(space, Box):
        return described_box(space)
    choices = space.n if not isinstance(space, MultiDiscrete) else list(space.sizes)
    return described_choices(choices, 0, space.shape, space.dtype)


def described_box(space: Box) -> Description:
    """Shape, dtype and bounds; no bound is null."""
    low, high = (_bounds(values, space.shape) for values in (space.low, space.high))
    return {"shape": list(space.shape), "dtype": space.dtype, "low": low, "high": high}


def described_choices(
    n: int | list[Any], start: int | list[Any], shape: tuple[int, ...], dtype: str
) -> Description:
    """Choices among `n` whole numbers from `start` on, each the number or, shaped like a choice, a list."""
    return {"shape": list(shape), "dtype": dtype, "n": n, "start": start}


def _bounds(values: Any, shape: tuple[int, ...]) -> Any:
    """Bounds as nested lists; a single number where all are the same."""
    plain = [value if math.isfinite(value) else None for value in values]
    if len(set(plain)) == 1:
        return plain[0]
    nested = np.array(plain, object).reshape(shape)
    return nested.tolist()
