"""Gymnasium's spaces as ours, and observations and actions from the one to the other, in NumPy or JAX.

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
from proxima.domains.interface import Description, Interface, described_box, described_choices

ONE_HOT = 1_000  # values of a Discrete observation up to which it becomes flags
# Compiled programs have no more than 32 bits, and no fewer of a float.
NARROW = {"float16": "float32", "float64": "float32", "int64": "int32", "uint64": "uint32"}

Path = tuple[str, ...]  # of keys in Gymnasium's observation; none where that is no Dict
# Both compute with NumPy, or with its like if that is given them after the values.
Encode = Callable[..., Any]  # Gymnasium's value of a field → ours, over any leading axes
ToEnv = Callable[..., Any]  # an agent's rows of actions → the environment's


class Part(NamedTuple):
    """One array of an observation: where Gymnasium has it, its space there and here, and how it is made."""

    path: Path
    given: Any
    space: ours.Box
    encode: Encode


class Translation(NamedTuple):
    """An environment's spaces as an agent sees them, and how to get from the one to the other."""

    observation_space: ObservationSpace
    action_space: Space
    # (store of rows, index, one observation): writes the row; plain assignment where that is enough
    put: Callable[[Any, int, Any], None]
    rows: Callable[[Any], Any]  # a batch of observations as ours; may be the same memory
    to_env: ToEnv
    interface: Interface  # the same as a policy meets it outside, a Dict's entries as named fields


def translate(name: str, observation_space: Any, action_space: Any) -> Translation:
    """How to deal with an environment of these spaces, or in words why there is no way."""
    actions, to_env = _actions(name, action_space)
    parts = {
        ".".join(path): Part(path, space, *_field(name, space, path, actions))
        for path, space in _leaves(observation_space)
    }
    if len(parts) < sum(1 for _ in _leaves(observation_space)):
        raise ProximaError(
            f"{name}: two fields of its observation space have the same name when nested keys are joined "
            "by dots; rename a key that has a dot in it"
        )
    if isinstance(observation_space, spaces.Dict):

        def rows(obs: Any) -> dict[str, np.ndarray]:
            return {
                key: part.encode(reduce(getitem, part.path, obs)) for key, part in parts.items()
            }

        def encode(obs: Any, numpy: Any) -> dict[str, Any]:
            return {key: part.encode(obs[key], numpy) for key, part in parts.items()}

        def put_fields(store: dict[str, np.ndarray], index: int, obs: Any) -> None:
            for key, row in rows(obs).items():
                store[key][index] = row

        fields = {key: _described(part.given) for key, part in sorted(parts.items())}
        interface = Interface({"fields": fields}, _described(action_space), encode, to_env)
        space = ours.fields({key: part.space for key, part in parts.items()})
        return Translation(space, actions, put_fields, rows, to_env, interface)
    only = parts[""]

    def put(store: np.ndarray, index: int, obs: Any) -> None:
        store[index] = only.encode(obs)

    plain = isinstance(observation_space, spaces.Box)
    interface = Interface(
        _described(observation_space), _described(action_space), only.encode, to_env
    )
    return Translation(
        only.space, actions, setitem if plain else put, only.encode, to_env, interface
    )


def _described(space: Any) -> Description:
    """A space of Gymnasium's as JSON has it."""
    shape, dtype = tuple(space.shape), str(space.dtype)
    if isinstance(space, spaces.Discrete):
        return described_choices(int(space.n), int(space.start), shape, dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return described_choices(space.nvec.tolist(), space.start.tolist(), shape, dtype)
    low, high = (0, 1) if isinstance(space, spaces.MultiBinary) else (space.low, space.high)
    return described_box(ours.box(low, high, shape, dtype))


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
        if count <= ONE_HOT:
            values = np.arange(first, first + count)

            def flags(obs: Any, numpy: Any = np) -> Any:
                numbers = numpy.asarray(obs)[..., None]
                return numbers == values.reshape(*(1,) * (numbers.ndim - 1), count)

            return ours.box(0, 1, (count,), "bool"), flags
        kind = _narrowed("int64", first, first + count - 1)
        whole = ours.box(first, first + count - 1, (), str(kind))
        return whole, lambda obs, numpy=np: numpy.asarray(obs, kind)
    if isinstance(space, spaces.MultiBinary):
        binary = ours.box(0, 1, space.shape, "bool")
        return binary, lambda obs, numpy=np: numpy.asarray(obs, bool)
    if isinstance(space, spaces.Box):
        dtype = _narrowed(str(space.dtype), space.low, space.high)
        numbers = ours.box(space.low, space.high, space.shape, str(dtype))
        return numbers, lambda obs, numpy=np: numpy.asarray(obs, dtype)
    where = f"field {'.'.join(path)!r} of the " if path else ""
    raise ProximaError(
        f"{name}: its {where}observation space is {space}, and only Box, Discrete, MultiBinary and Dict "
        "spaces of these can be learnt from; a wrapper of gymnasium.wrappers, such as "
        "FlattenObservation, may turn it into one"
    )


def _narrowed(dtype: str, low: Any, high: Any) -> np.dtype:
    """A dtype of at most 32 bits; whole numbers that need more become floats rather than wrap around."""
    narrow = np.dtype(NARROW.get(dtype, dtype))
    if narrow.kind in "iu":
        limits = np.iinfo(narrow)
        if np.any(np.less(low, limits.min)) or np.any(np.greater(high, limits.max)):
            return np.dtype("float32")
    return narrow


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

    def encode(obs: Any, numpy: Any = np) -> Any:
        flags = numpy.asarray(obs, bool)
        return flags.reshape(*flags.shape[: flags.ndim - len(given)], *wanted.shape)

    return wanted, encode


def _actions(name: str, space: Any) -> tuple[Space, ToEnv]:
    """The actions an agent takes, and how they become the environment's: shifted by its start, or clipped."""

    def shaped(actions: Any, numpy: Any) -> Any:
        return numpy.asarray(actions, space.dtype).reshape(actions.shape[0], *space.shape)

    if isinstance(space, spaces.Discrete):
        start = space.start
        return ours.Discrete(int(space.n)), lambda rows, numpy=np: shaped(rows, numpy) + start
    if isinstance(space, spaces.MultiDiscrete) and len(np.unique(space.nvec)) == 1:
        first = space.start[None]
        choices = ours.MultiDiscrete(int(space.nvec.flat[0]), int(space.nvec.size))
        return choices, lambda rows, numpy=np: shaped(rows, numpy) + first
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = space.low[None], space.high[None]
        numbers = ours.box(space.low, space.high, space.shape)
        return numbers, lambda rows, numpy=np: numpy.clip(shaped(rows, numpy), low, high)
    raise ProximaError(
        f"{name}: its action space is {space}, and only Discrete, MultiDiscrete with choices among equally "
        "many, and Box spaces of floats can be acted in; a gymnasium.ActionWrapper may turn it into one"
    )
