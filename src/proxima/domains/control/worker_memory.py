"""The memory that a pool shares with its worker processes: named arrays at known places.

It is a file without a name, handed on by its descriptor: when the last process that has it open ends,
killed or not, nothing of it is left.
"""

import mmap
import os
import tempfile
from typing import Any, NamedTuple

import numpy as np

from proxima.core.spaces import Fields, ObservationSpace, Space

ALIGNMENT = 64  # bytes: no two arrays share a cache line
SEEDS, ACTIONS, REWARD, TERMINATED, TRUNCATED = (
    "seeds",
    "actions",
    "reward",
    "terminated",
    "truncated",
)
OBS, NEXT_OBS = "obs", "next_obs"


class Block(NamedTuple):
    """An array in the memory; a structured observation has one for each of its fields."""

    name: str
    field: str | None
    shape: tuple[int, ...]
    dtype: str
    offset: int


def plan(
    sizes: list[int], observation_space: ObservationSpace, action_space: Space
) -> tuple[list[list[Block]], int]:
    """The blocks of groups of so many environments, and the bytes they take together."""
    observed: list[tuple[str | None, tuple[int, ...], str]] = (
        [(name, each.shape, each.dtype) for name, each in observation_space.items()]
        if isinstance(observation_space, Fields)
        else [(None, observation_space.shape, observation_space.dtype)]
    )
    wanted = [
        (SEEDS, None, (), "int64"),
        (ACTIONS, None, action_space.shape, action_space.dtype),
        (REWARD, None, (), "float32"),
        (TERMINATED, None, (), "bool"),
        (TRUNCATED, None, (), "bool"),
        *((name, *each) for name in (OBS, NEXT_OBS) for each in observed),
    ]
    groups, end = [], 0
    for size in sizes:
        blocks = []
        for name, field, shape, dtype in wanted:
            blocks.append(Block(name, field, (size, *shape), dtype, end))
            filled = end + int(np.prod((size, *shape))) * np.dtype(dtype).itemsize
            end = -(-filled // ALIGNMENT) * ALIGNMENT
        groups.append(blocks)
    return groups, end


def allocate(size: int) -> int:
    """The descriptor of that much memory."""
    if hasattr(os, "memfd_create"):  # Linux: never touches a disk
        descriptor = os.memfd_create("proxima")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, size)
    return descriptor


def arrays(memory: mmap.mmap, blocks: list[Block], rows: slice) -> dict[str, Any]:
    """These rows of a group's arrays by name; a structured observation is a dict."""
    found: dict[str, Any] = {}
    for name, field, shape, dtype, offset in blocks:
        count = int(np.prod(shape))
        array = np.frombuffer(memory, dtype, count, offset).reshape(shape)[rows]
        if field is None:
            found[name] = array
        else:
            found.setdefault(name, {})[field] = array
    return found


def write(target: Any, obs: Any) -> None:
    """Observations into an array, or field by field."""
    if isinstance(target, dict):
        for name, array in target.items():
            array[...] = obs[name]
    else:
        target[...] = obs
