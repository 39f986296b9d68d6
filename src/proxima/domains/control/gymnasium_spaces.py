"""Gymnasium's observation spaces as ours, and observations from the one to the other, in NumPy or JAX.

    Box                 as it is, at most 32 bits wide
    Discrete            one of n as n flags; beyond ONE_HOT values the number itself
    MultiDiscrete       the flags of all its numbers side by side; beyond ONE_HOT of them the numbers
    MultiBinary         flags
    Dict, Tuple         a field of its own for each entry, also of one within: "outer.inner", "0", "1.inner"
    its `action_mask`   the valid actions, flags shaped like the actions

Actions are in `gymnasium_actions.py`. Left out on purpose: Text, Graph, Sequence and OneOf spaces, which a
wrapper can turn into one of these.
"""

import math
from collections.abc import Callable, Iterable
from functools import reduce
from operator import getitem, setitem
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proxima.core import spaces as ours
from proxima.core.errors import ProximaError
from proxima.core.spaces import ACTION_MASK, ObservationSpace, Space, valid_choices
from proxima.domains.control.choices import Encode, choices, narrowed
from proxima.domains.control.gymnasium_actions import Actions, Singles, ToEnv, actions_of
from proxima.domains.control.gymnasium_trees import (
    Path,
    described,
    has_tuple,
    layout_of,
    leaves,
    name_of,
)
from proxima.domains.interface import Interface


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
    to_env: ToEnv  # a batch of actions; arrays by name where the environment's are nested
    singles: Singles  # the same one by one, each as `step` takes it
    interface: Interface  # the same as a policy meets it outside, nested entries as named fields


def translate(name: str, observation_space: Any, action_space: Any) -> Translation:
    """How to deal with an environment of these spaces, or in words why there is no way."""
    actions = actions_of(name, action_space)
    parts = {
        name_of(path): Part(path, space, *_field(name, observation_space, path, space, actions))
        for path, space in leaves(name, "observation", observation_space)
    }
    if isinstance(observation_space, spaces.Dict | spaces.Tuple):
        return _structured(observation_space, parts, actions)
    only = parts[""]

    def put(store: np.ndarray, index: int, obs: Any) -> None:
        store[index] = only.encode(obs)

    plain = isinstance(observation_space, spaces.Box)
    interface = Interface(
        described(observation_space), actions.description, only.encode, actions.to_env
    )
    return Translation(
        only.space,
        actions.space,
        setitem if plain else put,
        only.encode,
        actions.to_env,
        actions.singles,
        interface,
    )


def _structured(observation_space: Any, parts: dict[str, Part], actions: Actions) -> Translation:
    """A field for each entry of a Dict or a Tuple."""

    def rows(obs: Any) -> dict[str, np.ndarray]:
        return {key: part.encode(reduce(getitem, part.path, obs)) for key, part in parts.items()}

    def encode(obs: Any, numpy: Any) -> dict[str, Any]:
        return {key: part.encode(obs[key], numpy) for key, part in parts.items()}

    def put(store: dict[str, np.ndarray], index: int, obs: Any) -> None:
        for key, row in rows(obs).items():
            store[key][index] = row

    description: dict[str, Any] = {
        "fields": {key: described(part.given) for key, part in sorted(parts.items())}
    }
    if has_tuple(observation_space):  # else the names say it all
        description["layout"] = layout_of(observation_space)
    return Translation(
        ours.fields({key: part.space for key, part in parts.items()}),
        actions.space,
        put,
        rows,
        actions.to_env,
        actions.singles,
        Interface(description, actions.description, encode, actions.to_env),
    )


def by_field(function: Callable[..., Any], obs: Any, *others: Any) -> Any:
    """The function of the observations, and of others like them; field by field where they have fields."""
    if isinstance(obs, dict):
        return {key: function(obs[key], *(other[key] for other in others)) for key in obs}
    return function(obs, *others)


def _field(
    name: str, whole: Any, path: Path, space: Any, actions: Actions
) -> tuple[ours.Box, Encode]:
    """The space of one array of an observation, and how it is made."""
    if path[:1] == (ACTION_MASK,):
        return _mask(name, path, space, actions.space)
    if isinstance(space, spaces.Discrete):
        return choices((), np.asarray([space.n]), np.asarray([space.start]))
    if isinstance(space, spaces.MultiDiscrete):
        return choices(space.shape, space.nvec.ravel(), space.start.ravel())
    if isinstance(space, spaces.MultiBinary):
        binary = ours.box(0, 1, space.shape, "bool")
        return binary, lambda obs, numpy=np: numpy.asarray(obs, bool)
    if isinstance(space, spaces.Box):
        dtype = narrowed(str(space.dtype), space.low, space.high)
        numbers = ours.box(space.low, space.high, space.shape, str(dtype))
        return numbers, lambda obs, numpy=np: numpy.asarray(obs, dtype)
    where = f"field {name_of(path)!r} of the " if path else ""
    raise ProximaError(
        f"{name}: its {where}observation space is {space}, and only Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple spaces of these can be learnt from; wrap it: "
        f"{_remedy(whole, path)}"
    )


def _remedy(whole: Any, path: Path) -> str:
    """Which wrapper makes an observation space one that can be learnt from, as env.wrappers names it."""
    if isinstance(whole, spaces.Dict) and ACTION_MASK in whole.spaces:
        # Flattened, the mask would be lost.
        others = [key for key in whole.spaces if key != path[0]]
        leave_out = (
            f'{{path: "gymnasium.wrappers:FilterObservation", params: {{filter_keys: {others}}}}}'
        )
        return f"env.wrappers: [{leave_out}] leaves it out"
    if whole.is_np_flattenable:
        return 'env.wrappers: ["gymnasium.wrappers:FlattenObservation"] makes one Box of it all'
    return (
        "a gymnasium.ObservationWrapper of your own, named in env.wrappers as "
        '"my_module:MyWrapper", can turn it into one'
    )


def _mask(name: str, path: Path, space: Any, actions: Space) -> tuple[ours.Box, Encode]:
    """The field of valid actions, whose flags may come flat or as numbers 0 and 1."""
    if isinstance(actions, ours.Box):
        raise ProximaError(
            f"{name}: it observes an {ACTION_MASK!r}, and its actions are continuous: a mask is for "
            "choices; rename that field"
        )
    wanted = ours.mask_space(actions)
    sizes = (actions.n,) if isinstance(actions, ours.Discrete) else actions.sizes
    flat = (sum(sizes),)  # without flags for what a part with fewer choices has not
    shapes = dict.fromkeys((wanted.shape, (math.prod(wanted.shape),), flat))
    if len(path) > 1:
        raise ProximaError(
            f"{name}: its {ACTION_MASK!r} has entries of its own ({name_of(path)}), and here the flags of "
            f"all choices stand in one array; give it one of the shapes {_either(shapes)}"
        )
    given = tuple(space.shape or ())
    if given not in shapes:
        raise ProximaError(
            f"{name}: its {ACTION_MASK!r} has the shape {given}, and its actions need {_either(shapes)}"
        )
    # Where each flag of the wanted shape is among those given side by side.
    starts = np.cumsum([0, *sizes[:-1]])[:, None]
    order = np.minimum(starts + np.arange(actions.n), flat[0] - 1)

    def encode(obs: Any, numpy: Any = np) -> Any:
        flags = numpy.asarray(obs, bool)
        leading = flags.shape[: flags.ndim - len(given)]
        if given == flat != (math.prod(wanted.shape),):
            flags = flags[..., order]
        return valid_choices(actions, flags.reshape(*leading, *wanted.shape), len(leading))

    return wanted, encode


def _either(shapes: Iterable[tuple[int, ...]]) -> str:
    return " or ".join(map(str, shapes))
