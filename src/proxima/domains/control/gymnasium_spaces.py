"""Gymnasium's spaces as ours, and observations and actions from the one to the other.

    Box                 as it is, at most 32 bits wide
    Discrete            one of n as n flags; beyond ONE_HOT values the number itself
    MultiBinary         flags
    Dict                a field of its own for each entry, also of a Dict within: "outer.inner"
    its `action_mask`   the valid actions, flags shaped like the actions

Left out on purpose: Tuple, Text, Graph and Sequence spaces, which a wrapper can turn into one of these.
"""

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.spaces import (
    ACTION_MASK,
    Box,
    Discrete,
    Fields,
    MultiDiscrete,
    ObservationSpace,
    Space,
    box,
    fields,
    mask_space,
)

ONE_HOT = 1_000  # values of a Discrete observation up to which it becomes flags

Encode = Callable[[Any], np.ndarray]  # Gymnasium's value of a field → ours, over any leading axes


class Field(NamedTuple):
    """One array of an observation."""

    path: tuple[str, ...]  # of keys in Gymnasium's observation; none where that is no Dict
    space: Box
    encode: Encode


class Translation(NamedTuple):
    """An environment's spaces as an agent sees them, and how to get from the one to the other."""

    observation_space: ObservationSpace
    action_space: Space
    # (store of rows, index, one observation): writes the row; plain assignment where that is enough
    put: Callable[[Any, int, Any], None]
    rows: Callable[[Any], Any]  # a batch of observations as ours; may be the same memory
    to_env: Callable[[np.ndarray], np.ndarray]  # an agent's rows of actions → the environment's


def translate(name: str, observation_space: Any, action_space: Any) -> Translation:
    """How to deal with an environment of these spaces, or in words why there is no way."""
    import gymnasium

    ours = _action_space(name, action_space)
    to_env = _action_converter(action_space)
    if isinstance(observation_space, gymnasium.spaces.Dict):
        parts = {
            ".".join(field.path): field for field in _fields(name, observation_space, (), ours)
        }
        space = fields({key: field.space for key, field in parts.items()})
        return Translation(space, ours, _put_fields(parts), _rows_of_fields(parts), to_env)
    field = _field(name, observation_space, (), ours)
    plain = isinstance(observation_space, gymnasium.spaces.Box)
    put = operator.setitem if plain else _put_encoded(field.encode)
    return Translation(field.space, ours, put, field.encode, to_env)


def notes(observation_space: Any, action_space: Any) -> dict[str, Any]:
    """What a program must know to go from the environment's own values to ours and back, as JSON has it.

    `one_hot`: by field ("" where there are none) the first number and how many; `action_start`: what is
    added to an action. Nothing where the values are the same.
    """
    import gymnasium

    one_hot = {
        ".".join(path): [int(space.start), int(space.n)]
        for path, space in _leaves(observation_space, ())
        if isinstance(space, gymnasium.spaces.Discrete) and int(space.n) <= ONE_HOT
    }
    discrete = gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete
    start = np.ravel(action_space.start) if isinstance(action_space, discrete) else np.zeros(1)
    shifted = {"action_start": start.tolist()} if np.any(start) else {}
    return ({"one_hot": one_hot} if one_hot else {}) | shifted


def _leaves(space: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    import gymnasium

    if not isinstance(space, gymnasium.spaces.Dict):
        yield path, space
        return
    for key, inner in space.spaces.items():
        yield from _leaves(inner, (*path, str(key)))


def empty(space: ObservationSpace, count: int) -> Any:
    """Room for so many observations."""
    if isinstance(space, Fields):
        return {key: empty(each, count) for key, each in space.items()}
    return np.empty((count, *space.shape), space.dtype)


def copied(obs: Any) -> Any:
    """The same observations in memory of their own."""
    if isinstance(obs, dict):
        return {key: np.array(rows) for key, rows in obs.items()}
    return np.array(obs)


def put_row(obs: Any, index: int, source: Any) -> None:
    """One row of observations over the same row of others."""
    if isinstance(obs, dict):
        for key, rows in obs.items():
            rows[index] = source[key][index]
    else:
        obs[index] = source[index]


def _put_fields(parts: dict[str, Field]) -> Callable[[Any, int, Any], None]:
    def put(store: dict[str, np.ndarray], index: int, obs: Any) -> None:
        for key, field in parts.items():
            store[key][index] = field.encode(_at(obs, field.path))

    return put


def _put_encoded(encode: Encode) -> Callable[[Any, int, Any], None]:
    def put(store: np.ndarray, index: int, obs: Any) -> None:
        store[index] = encode(obs)

    return put


def _rows_of_fields(parts: dict[str, Field]) -> Callable[[Any], Any]:
    def rows(obs: Any) -> dict[str, np.ndarray]:
        return {key: field.encode(_at(obs, field.path)) for key, field in parts.items()}

    return rows


def _at(obs: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        obs = obs[key]
    return obs


def _fields(name: str, space: Any, path: tuple[str, ...], actions: Space) -> Iterator[Field]:
    import gymnasium

    for key, inner in space.spaces.items():
        place = (*path, str(key))
        if isinstance(inner, gymnasium.spaces.Dict):
            yield from _fields(name, inner, place, actions)
        else:
            yield _field(name, inner, place, actions)


def _field(name: str, space: Any, path: tuple[str, ...], actions: Space) -> Field:
    import gymnasium

    if path == (ACTION_MASK,):
        return _mask(name, space, actions)
    if isinstance(space, gymnasium.spaces.Discrete):
        first, count = int(space.start), int(space.n)
        values = np.arange(first, first + count)
        if count <= ONE_HOT:
            return Field(path, box(0, 1, (count,), "bool"), lambda obs: _flags(obs, values))
        whole = box(first, first + count - 1, (), "int32")
        return Field(path, whole, lambda obs: np.asarray(obs, np.int32))
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return Field(path, box(0, 1, space.shape, "bool"), lambda obs: np.asarray(obs, bool))
    if isinstance(space, gymnasium.spaces.Box):
        dtype = _narrow(space.dtype)
        bounds = space.low, space.high, space.shape
        return Field(path, box(*bounds, str(dtype)), lambda obs: np.asarray(obs, dtype))
    where = f" field {'.'.join(path)!r} of the" if path else ""
    raise _unsupported(name, f"{where} observation space".strip(), space)


def _flags(obs: Any, values: np.ndarray) -> np.ndarray:
    return np.asarray(obs)[..., None] == values


def _mask(name: str, space: Any, actions: Space) -> Field:
    """The field of valid actions, whose flags may come flat or as numbers 0 and 1."""
    if isinstance(actions, Box):
        raise ProximaError(
            f"{name}: it observes an {ACTION_MASK!r}, and its actions are continuous: a mask is for "
            "choices; rename that field"
        )
    wanted = mask_space(actions)
    shape, size = wanted.shape, math.prod(wanted.shape)
    found = tuple(space.shape or ())
    if found not in (shape, (size,)):
        raise ProximaError(
            f"{name}: its {ACTION_MASK!r} has the shape {found}, and its actions need {shape}"
        )

    def encode(obs: Any) -> np.ndarray:
        flags = np.asarray(obs, bool)
        return flags.reshape(*flags.shape[: flags.ndim - len(found)], *shape)

    return Field((ACTION_MASK,), wanted, encode)


def _action_space(name: str, space: Any) -> Space:
    import gymnasium

    if isinstance(space, gymnasium.spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        sizes = np.unique(space.nvec)
        if len(sizes) == 1:
            return MultiDiscrete(int(sizes[0]), int(space.nvec.size))
        raise _unsupported(name, "action space", space)
    if isinstance(space, gymnasium.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return box(space.low, space.high, space.shape)
    raise _unsupported(name, "action space", space)


def _unsupported(name: str, what: str, space: Any) -> ProximaError:
    fitting = (
        "only Discrete, MultiDiscrete with choices among equally many, and Box spaces of floats can be "
        "acted in; a gymnasium.ActionWrapper may turn it into one"
        if what.startswith("action")
        else "only Box, Discrete, MultiBinary and Dict spaces of these can be learnt from; a wrapper of "
        "gymnasium.wrappers, such as FlattenObservation, may turn it into one"
    )
    return ProximaError(f"{name}: its {what} is {space}, and {fitting}")


def _narrow(dtype: Any) -> np.dtype:
    """A dtype of no more than 32 bits, as compiled programs have it."""
    narrow = {"float16": "float32", "float64": "float32", "int64": "int32", "uint64": "uint32"}
    own = str(np.dtype(dtype))
    return np.dtype(narrow.get(own, own))


def _action_converter(space: Any) -> Callable[[np.ndarray], np.ndarray]:
    """From an agent's rows of actions to the environment's: shifted by its start, or clipped."""
    import gymnasium

    if isinstance(space, gymnasium.spaces.Discrete):
        return lambda actions: np.asarray(actions, space.dtype) + space.start
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        form, start = space.nvec.shape, space.start
        return lambda actions: np.asarray(actions, space.dtype).reshape(-1, *form) + start
    shape, low, high = space.shape, space.low, space.high
    return lambda actions: np.clip(np.asarray(actions, space.dtype).reshape(-1, *shape), low, high)
