"""Spaces of observations and actions: hashable values, so that they can shape a compiled program."""

import math
from typing import NamedTuple


class Discrete(NamedTuple):
    """The integers 0 .. n-1."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


class Box(NamedTuple):
    """Arrays of a shape; the bounds are one number per element, flattened, so that they hash."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype: str = "float32"

    @property
    def bounded(self) -> bool:
        return all(math.isfinite(bound) for bound in (*self.low, *self.high))


Space = Discrete | Box


def box(low, high, shape: tuple[int, ...], dtype: str = "float32") -> Box:
    """A Box from scalar or array bounds; anything beyond float32's range counts as unbounded."""
    import numpy as np

    def flat(bound) -> tuple[float, ...]:
        values = np.broadcast_to(np.asarray(bound, np.float64), shape).ravel()
        huge = np.finfo(np.float32).max / 2
        return tuple(float(v) if abs(v) < huge else math.copysign(math.inf, v) for v in values)

    return Box(tuple(shape), flat(low), flat(high), dtype)


def flat_size(space: Space) -> int:
    """Numbers in one element of the space once flattened; 1 for a discrete one."""
    return math.prod(space.shape)
