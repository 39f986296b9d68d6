"""Gymnasium's spaces as ours, and observations and actions from the one to the other.

    Box                 as it is, at most 32 bits wide
    Discrete            one of n as n flags; beyond ONE_HOT values the number itself
    MultiBinary         flags
    Dict                a field of its own for each entry, also of a Dict within: "outer.inner"
    its `action_mask`   the valid actions, flags shaped like the actions

Left out on purpose: Tuple, Text, Graph and Sequence spaces, which a wrapper can turn into one of these.
"""

import math
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem, setitem
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proxima.core import spaces as ours
from proxima.core.errors import ProximaError
from proxima.core.spaces import ACTION_MASK, ObservationSpace, Space

ONE_HOT = 1_000  # values of a Discrete observation up to which it becomes flags
# Compiled programs have no more than 32 bits, and no fewer of a float.
NARROW = {"float16": "float32", "float64": "float32", "int64": "int32", "uint64": "uint32"}

Path = tuple[str, ...]  # of keys in Gymnasium's observation; none where that is no Dict
Encode = Callable[[Any], np.ndarray]  # Gymnasium's value of a field → ours, over any leading axes
ToEnv = Callable[[np.ndarray], np.ndarray]  # an agent's rows of actions → the environment's


class Translation(NamedTuple):
    """An environment's spaces as an agent sees them, and how to get from the one to the other."""

    observation_space: ObservationSpace
    action_space: Space
    # (store of rows, index, one observation): writes the row; plain assignment where that is enough
    put: Callable[[Any, int, Any], None]
    rows: Callable[[Any], Any]  # a batch of observations as ours; may be the same memory
    to_env: ToEnv


def translate(name: str, observation_space: Any, action_space: Any) -> Translation:
    """How to deal with an environment of these spaces, or in words why there is no way."""
    actions, to_env = _actions(name, action_space)
    parts = {
        ".".join(path): (path, *_field(name, space, path, actions))
        for path, space in _leaves(observation_space)
    }
    if isinstance(observation_space, spaces.Dict):

        def rows(obs: Any) -> dict[str, np.ndarray]:
            return {
                key: encode(reduce(getitem, path, obs)) for key, (path, _, encode) in parts.items()
            }

        def put_fields(store: dict[str, np.ndarray], index: int, obs: Any) -> None:
            for key, row in rows(obs).items():
                store[key][index] = row

        space = ours.fields({key: part for key, (_, part, _) in parts.items()})
        return Translation(space, actions, put_fields, rows, to_env)
    _, field, encode = parts[""]

    def put(store: np.ndarray, index: int, obs: Any) -> None:
        store[index] = encode(obs)

    plain = isinstance(observation_space, spaces.Box)
    return Translation(field, actions, setitem if plain else put, encode, to_env)


def notes(observation_space: Any, action_space: Any) -> dict[str, Any]:
    """What a program must know to go from the environment's own values to ours and back, as JSON has it.

    `one_hot`: by field ("" where there are none) the first number and how many; `action_start`: what is
    added to an action. Nothing where the values are the same.
    """
    one_hot = {
        ".".join(path): [int(space.start), int(space.n)]
        for path, space in _leaves(observation_space)
        if isinstance(space, spaces.Discrete) and int(space.n) <= ONE_HOT
    }
    discrete = spaces.Discrete | spaces.MultiDiscrete
    start = np.ravel(action_space.start) if isinstance(action_space, discrete) else np.zeros(1)
    shifted = {"action_start": start.tolist()} if np.any(start) else {}
    return ({"one_hot": one_hot} if one_hot else {}) | shifted


def by_field(function: Callable[..., Any], obs: Any, *others: Any) -> Any:
    """The function of the observations, and of others like them; field by field where they have fields."""
    if isinstance(obs, dict):
        return {key: function(obs[key], *(other[key] for other in others)) for key in obs}
    return function(obs, *others)


def _leaves(space: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if not isinstance(space, spaces.Dict):
        yield path, space
        return
    for key, inner in space.spaces.items():
        yield from _leaves(inner, (*path, str(key)))


def _field(name: str, space: Any, path: Path, actions: Space) -> tuple[ours.Box, Encode]:
    """The space of one array of an observation, and how it is made."""
    if path == (ACTION_MASK,):
        return _mask(name, space, actions)
    if isinstance(space, spaces.Discrete):
        first, count = int(space.start), int(space.n)
        values = np.arange(first, first + count)
        if count <= ONE_HOT:
            flags = ours.box(0, 1, (count,), "bool")
            return flags, lambda obs: np.asarray(obs)[..., None] == values
        whole = ours.box(first, first + count - 1, (), "int32")
        return whole, lambda obs: np.asarray(obs, np.int32)
    if isinstance(space, spaces.MultiBinary):
        return ours.box(0, 1, space.shape, "bool"), lambda obs: np.asarray(obs, bool)
    if isinstance(space, spaces.Box):
        dtype = np.dtype(NARROW.get(str(space.dtype), space.dtype))
        numbers = ours.box(space.low, space.high, space.shape, str(dtype))
        return numbers, lambda obs: np.asarray(obs, dtype)
    where = f"field {'.'.join(path)!r} of the " if path else ""
    raise ProximaError(
        f"{name}: its {where}observation space is {space}, and only Box, Discrete, MultiBinary and Dict "
        "spaces of these can be learnt from; a wrapper of gymnasium.wrappers, such as "
        "FlattenObservation, may turn it into one"
    )


def _mask(name: str, space: Any, actions: Space) -> tuple[ours.Box, Encode]:
    """The field of valid actions, whose flags may come flat or as numbers 0 and 1."""
    if isinstance(actions, ours.Box):
        raise ProximaError(
            f"{name}: it observes an {ACTION_MASK!r}, and its actions are continuous: a mask is for "
            "choices; rename that field"
        )
    wanted = ours.mask_space(actions)
    given = tuple(space.shape or ())
    if given not in (wanted.shape, (math.prod(wanted.shape),)):
        raise ProximaError(
            f"{name}: its {ACTION_MASK!r} has the shape {given}, and its actions need {wanted.shape}"
        )

    def encode(obs: Any) -> np.ndarray:
        flags = np.asarray(obs, bool)
        return flags.reshape(*flags.shape[: flags.ndim - len(given)], *wanted.shape)

    return wanted, encode


def _actions(name: str, space: Any) -> tuple[Space, ToEnv]:
    """The actions an agent takes, and how they become the environment's: shifted by its start, or clipped."""

    def typed(actions: np.ndarray) -> np.ndarray:
        return np.asarray(actions, space.dtype)

    if isinstance(space, spaces.Discrete):
        return ours.Discrete(int(space.n)), lambda actions: typed(actions) + space.start
    if isinstance(space, spaces.MultiDiscrete) and len(np.unique(space.nvec)) == 1:
        form, start = space.nvec.shape, space.start
        choices = ours.MultiDiscrete(int(space.nvec.flat[0]), int(space.nvec.size))
        return choices, lambda actions: typed(actions).reshape(-1, *form) + start
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        shape, low, high = space.shape, space.low, space.high
        numbers = ours.box(low, high, shape)
        return numbers, lambda actions: np.clip(typed(actions).reshape(-1, *shape), low, high)
    raise ProximaError(
        f"{name}: its action space is {space}, and only Discrete, MultiDiscrete with choices among equally "
        "many, and Box spaces of floats can be acted in; a gymnasium.ActionWrapper may turn it into one"
    )
