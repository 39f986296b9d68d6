"""Spaces of observations and actions: hashable values, so that they can shape a compiled program.

A structured observation is a plain dict of named arrays, described by `Fields`. Its field `action_mask`
says which actions are valid: it travels with the observation, and the distribution applies it.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

ACTION_MASK = "action_mask"


class Discrete(NamedTuple):
    """The integers 0 .. n-1."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> str:
        return "int32"


class MultiDiscrete(NamedTuple):
    """`parts` independent choices, each among the integers 0 .. n-1, or of `counts` its own 0 .. count-1.

    Nets give n logits for every part, and masks have n flags: those beyond a part's own count are never
    chosen, whatever they say (`valid_choices`).
    """

    n: int
    parts: int
    counts: tuple[int, ...] = ()  # of every part, the largest of them n; empty where all have n

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.parts,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many integers each part chooses among."""
        return self.counts or (self.n,) * self.parts

    @property
    def dtype(self) -> str:
        return "int32"


class Box(NamedTuple):
    """Arrays of a shape; the bounds are one number per element, flattened, so that they hash."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str = "float32"

    @property
    def bounded(self) -> bool:
        return all(math.isfinite(bound) for bound in (*self.low, *self.high))


class Fields(NamedTuple):
    """A dict of named arrays, each of a space of its own; the names are sorted, as JAX sorts a dict."""

    names: tuple[str, ...]
    spaces: tuple[Box, ...]

    def items(self) -> Iterator[tuple[str, Box]]:
        return zip(self.names, self.spaces, strict=True)

    def get(self, name: str) -> Box | None:
        return dict(self.items()).get(name)


Space = Discrete | MultiDiscrete | Box  # of actions
ObservationSpace = Box | Fields


def box(low: "ArrayLike", high: "ArrayLike", shape: tuple[int, ...], dtype: str = "float32") -> Box:
    """A Box from scalar or array bounds; anything beyond float32's range counts as unbounded."""
    import numpy as np

    def flat(bound: "ArrayLike") -> tuple[float, ...]:
        values = np.broadcast_to(np.asarray(bound, np.float64), shape).ravel()
        huge = np.finfo(np.float32).max / 2
        return tuple(float(v) if abs(v) < huge else math.copysign(math.inf, v) for v in values)

    return Box(tuple(shape), flat(low), flat(high), dtype)


def fields(spaces: dict[str, Box]) -> Fields:
    """Fields by their names."""
    names = tuple(sorted(spaces))
    return Fields(names, tuple(spaces[name] for name in names))


def multi_discrete(counts: Sequence[int]) -> MultiDiscrete:
    """Choices among so many integers each; equal for equal counts, however many are alike."""
    sizes = tuple(int(count) for count in counts)
    return MultiDiscrete(max(sizes), len(sizes), sizes if len(set(sizes)) > 1 else ())


def mask_space(action_space: Discrete | MultiDiscrete) -> Box:
    """The space of the masks over these actions."""
    return box(0, 1, (*action_space.shape, action_space.n), "bool")


def is_discrete(space: Space) -> bool:
    """Whether actions of the space are choices among finitely many."""
    return isinstance(space, Discrete | MultiDiscrete)


def action_mask(obs: Any) -> Any | None:
    """The valid actions at each observation, None where all are."""
    return obs.get(ACTION_MASK) if isinstance(obs, dict) else None


def valid_choices(space: Space, mask: Any | None, leading: int) -> Any | None:
    """The mask without what is beyond a part's own count, over so many leading axes; None: all is valid."""
    if not isinstance(space, MultiDiscrete) or not space.counts:
        return mask
    import numpy as np

    exist = np.arange(space.n) < np.asarray(space.counts)[:, None]
    exist = exist.reshape(*(1,) * leading, *exist.shape)
    return exist if mask is None else mask & exist


def zeros(space: Space | Fields, leading: tuple[int, ...] = ()) -> Any:
    """An observation or action of zeros, to shape programs with; in a mask every action is valid."""
    import numpy as np

    if isinstance(space, Fields):
        return {
            name: np.full((*leading, *part.shape), name == ACTION_MASK, part.dtype)
            for name, part in space.items()
        }
    return np.zeros((*leading, *space.shape), space.dtype)


def flat_size(space: Space | Fields) -> int:
    """Numbers in one element of the space once flattened, masks left out; 1 for a discrete one."""
    if isinstance(space, Fields):
        return sum(flat_size(part) for name, part in space.items() if name != ACTION_MASK)
    return math.prod(space.shape)
