"""Gymnasium's action spaces as ours, and an agent's actions as the environment takes them, in NumPy or JAX.

    Discrete            as it is, counted from 0
    MultiDiscrete       one choice for each of its numbers, of any shape, among equally many or not
    MultiBinary         a choice between 0 and 1 for each flag
    Box of floats       numbers, clipped to its bounds
    Box of whole numbers, each among at most MOST_VALUES    choices among them
    Dict, Tuple         of choices: all of them side by side; of Boxes: one Box of all their numbers

A policy that is exported gives the actions of a Dict or a Tuple by name, "outer.inner" and "0", "1"; its
description says how they nest.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from proxima.core import spaces as ours
from proxima.core.errors import ProximaError
from proxima.core.spaces import Space
from proxima.domains.control.gymnasium_trees import described, layout_of, leaves, name_of, nested
from proxima.domains.interface import Description

# Computes with NumPy, or with its like if that is given after the rows.
ToEnv = Callable[..., Any]  # an agent's rows of actions → the environment's
Singles = Callable[[np.ndarray], Iterable[Any]]
MOST_VALUES = 1_000  # up to which whole numbers are choices: each has a logit of its own
WRAPPER = 'a gymnasium.ActionWrapper of your own, named in env.wrappers as "my_module:MyWrapper"'


class Actions(NamedTuple):
    """The actions that an agent takes, and how they become the environment's."""

    space: Space
    to_env: ToEnv  # a batch; of a Dict or a Tuple, arrays by name
    singles: Singles  # the rows one by one, each as `step` takes it
    description: Description


class Leaf(NamedTuple):
    """One array of an action: how many choices there are for each of its numbers, or its bounds."""

    counts: tuple[int, ...]  # empty where it is a Box
    low: np.ndarray
    high: np.ndarray
    to_env: ToEnv


def actions_of(name: str, space: Any) -> Actions:
    """The actions of an environment with this action space, or in words why an agent cannot take them."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _structured(name, space)
    leaf = _leaf(name, space, "")
    if not leaf.counts:
        chosen: Space = ours.box(space.low, space.high, space.shape)
    elif isinstance(space, spaces.Discrete):
        chosen = ours.Discrete(*leaf.counts)
    else:
        chosen = ours.multi_discrete(leaf.counts)
    return Actions(chosen, leaf.to_env, leaf.to_env, described(space))


def _structured(name: str, space: Any) -> Actions:
    """The leaves' actions side by side."""
    given = {name_of(path): inner for path, inner in leaves(name, "action", space)}
    parts = {key: _leaf(name, inner, key) for key, inner in given.items()}
    if len({bool(part.counts) for part in parts.values()}) > 1:
        choices = ", ".join(key for key, part in parts.items() if part.counts)
        numbers = ", ".join(key for key, part in parts.items() if not part.counts)
        raise ProximaError(
            f"{name}: its action space mixes choices ({choices}) with numbers ({numbers}), and a policy here "
            f"takes the one or the other; wrap it: {WRAPPER}, can turn the numbers into choices or fix them"
        )
    sizes = [len(part.counts) or part.low.size for part in parts.values()]
    ends = np.cumsum(sizes)
    columns = {
        key: slice(int(end) - size, int(end))
        for key, size, end in zip(parts, sizes, ends, strict=True)
    }
    counts = [count for part in parts.values() for count in part.counts]
    low, high = (
        np.concatenate([bounds.ravel() for bounds in column])
        for column in zip(*((part.low, part.high) for part in parts.values()), strict=True)
    )
    layout = layout_of(space)

    def to_env(rows: Any, numpy: Any = np) -> dict[str, Any]:
        return {key: part.to_env(rows[:, columns[key]], numpy) for key, part in parts.items()}

    def singles(rows: np.ndarray) -> Iterator[Any]:
        by_name = to_env(rows)
        for index in range(len(rows)):
            yield nested(layout, {key: array[index] for key, array in by_name.items()})

    return Actions(
        ours.multi_discrete(counts) if counts else ours.box(low, high, low.shape),
        to_env,
        singles,
        {"fields": {key: described(inner) for key, inner in given.items()}, "layout": layout},
    )


def _leaf(name: str, space: Any, key: str) -> Leaf:
    """One array of an action; numbers are clipped to its bounds, choices shifted by its start."""

    def shaped(rows: Any, numpy: Any) -> Any:
        return numpy.asarray(rows, space.dtype).reshape(rows.shape[0], *space.shape)

    none = np.zeros(0)
    if isinstance(space, spaces.Discrete):
        start = space.start
        counts: tuple[int, ...] = (int(space.n),)
        return Leaf(counts, none, none, lambda rows, numpy=np: shaped(rows, numpy) + start)
    if isinstance(space, spaces.MultiDiscrete):
        first = space.start[None]
        counts = tuple(space.nvec.ravel().tolist())
        return Leaf(counts, none, none, lambda rows, numpy=np: shaped(rows, numpy) + first)
    if isinstance(space, spaces.MultiBinary):
        counts = (2,) * int(np.prod(space.shape))
        return Leaf(counts, none, none, lambda rows, numpy=np: shaped(rows, numpy))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = space.low[None], space.high[None]
        clipped: ToEnv = lambda rows, numpy=np: numpy.clip(shaped(rows, numpy), low, high)  # noqa: E731
        return Leaf((), space.low, space.high, clipped)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.integer):
        values = space.high.astype(np.float64) - space.low + 1
        if np.all(values <= MOST_VALUES):
            least = space.low[None]
            counts = tuple(values.astype(int).ravel().tolist())
            return Leaf(counts, none, none, lambda rows, numpy=np: shaped(rows, numpy) + least)
    where = f"part {key!r} of its" if key else "its"
    raise ProximaError(
        f"{name}: {where} action space is {space}, and only Discrete, MultiDiscrete, MultiBinary, Box spaces "
        f"of floats or of whole numbers among at most {MOST_VALUES:,}, and Dict and Tuple spaces of these "
        f"can be acted in; wrap it: {WRAPPER}, can turn it into one"
    )
