"""Gymnasium's spaces as ours, and observations and actions from the one to the other.

Left out on purpose: structured spaces (Dict, Tuple, MultiDiscrete).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.spaces import Discrete, Space, box


class Translation(NamedTuple):
    """An environment's spaces as an agent sees them, and how to get from the one to the other."""

    observation_space: Space
    action_space: Space
    dtype: np.dtype  # of observations
    start: int  # what discrete observations count from; 0 for a Box
    to_env: Callable[[np.ndarray], np.ndarray]  # an agent's rows of actions → the environment's


def translate(name: str, observation_space: Any, action_space: Any) -> Translation:
    """How to deal with an environment of these spaces, or in words why there is no way."""
    return Translation(
        observation_space=_observation_space(name, observation_space),
        action_space=_action_space(name, action_space),
        dtype=_observation_dtype(observation_space),
        start=_first_value(observation_space),
        to_env=_action_converter(action_space),
    )


def _observation_space(name: str, space: Any) -> Space:
    import gymnasium

    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, gymnasium.spaces.Box):
        return box(space.low, space.high, space.shape, str(_observation_dtype(space)))
    raise _unsupported(name, "observation", space)


def _action_space(name: str, space: Any) -> Space:
    import gymnasium

    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, gymnasium.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return box(space.low, space.high, space.shape)
    raise _unsupported(name, "action", space)


def _unsupported(name: str, kind: str, space: Any) -> ProximaError:
    return ProximaError(
        f"{name}: its {kind} space is {space}, and only Discrete and Box spaces"
        f"{' of floats' if kind == 'action' else ''} can be learnt from; a wrapper of "
        "gymnasium.wrappers, such as FlattenObservation, may turn it into one"
    )


def _observation_dtype(space: Any) -> np.dtype:
    """The space's own dtype, but no more than 32 bits, as compiled programs have it."""
    narrow = {"float16": "float32", "float64": "float32", "int64": "int32", "uint64": "uint32"}
    own = str(np.dtype(space.dtype))
    return np.dtype(narrow.get(own, own))


def _first_value(space: Any) -> int:
    """What a Discrete space counts from; 0 for a Box."""
    import gymnasium

    return int(space.start) if isinstance(space, gymnasium.spaces.Discrete) else 0


def _action_converter(space: Any) -> Callable[[np.ndarray], np.ndarray]:
    """From an agent's rows of actions to the environment's: shifted by its start, or clipped."""
    import gymnasium

    if isinstance(space, gymnasium.spaces.Discrete):
        return lambda actions: np.asarray(actions, space.dtype) + space.start
    shape, low, high = space.shape, space.low, space.high
    return lambda actions: np.clip(np.asarray(actions, space.dtype).reshape(-1, *shape), low, high)
