"""Choices that are observed, numbers that are each one of a few, as flags: what a net can tell apart.

Computes with NumPy or its like, and knows neither Gymnasium nor JAX.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from proxima.core.spaces import Box, box

ONE_HOT = 1_000  # flags up to which choices that are observed become flags
# Compiled programs have no more than 32 bits, and no fewer of a float.
NARROW = {"float16": "float32", "float64": "float32", "int64": "int32", "uint64": "uint32"}

# Computes with NumPy, or with its like if that is given after the values.
Encode = Callable[..., Any]  # an environment's value of a field → ours, over any leading axes


def choices(shape: tuple[int, ...], counts: np.ndarray, starts: np.ndarray) -> tuple[Box, Encode]:
    """Numbers of a shape, each one of so many from its start on, as flags side by side.

    Where those would be many, the numbers themselves.
    """
    first, last = starts.reshape(shape), (starts + counts - 1).reshape(shape)
    if counts.sum() > ONE_HOT:
        kind = narrowed("int64", first, last)
        return box(first, last, shape, str(kind)), lambda obs, numpy=np: numpy.asarray(obs, kind)
    owner = np.repeat(np.arange(len(counts)), counts)  # of each flag: whose value it is
    values = np.concatenate([np.arange(n) + low for n, low in zip(counts, starts, strict=True)])

    def flags(obs: Any, numpy: Any = np) -> Any:
        numbers = numpy.asarray(obs)
        leading = numbers.shape[: numbers.ndim - len(shape)]
        side_by_side = numbers.reshape(*leading, len(counts))
        spread = side_by_side if len(counts) == 1 else side_by_side[..., owner]
        return spread == values.reshape(*(1,) * len(leading), len(values))

    return box(0, 1, (len(values),), "bool"), flags


def narrowed(dtype: str, low: Any, high: Any) -> np.dtype:
    """A dtype of at most 32 bits; whole numbers that need more become floats rather than wrap around."""
    narrow = np.dtype(NARROW.get(dtype, dtype))
    if narrow.kind in "iu":
        limits = np.iinfo(narrow)
        if np.any(np.less(low, limits.min)) or np.any(np.greater(high, limits.max)):
            return np.dtype("float32")
    return narrow
