"""What the process and its devices hold in memory, and whether what is to be made fits into what there is."""

import math
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree

MEGABYTE = 1e6
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Need(NamedTuple):
    """What a program will hold in memory for a purpose, at least, and the settings that decide how much."""

    purpose: str
    settings: str
    bytes: int


def check_memory(needs: Sequence[Need]) -> None:
    """An error before anything is compiled if the needs are together more than there is."""
    total, there_is = sum(need.bytes for need in needs), available_bytes()
    if there_is is None or total <= there_is:
        return
    largest = max(needs, key=lambda need: need.bytes)
    parts = ", ".join(
        f"{_size(need.bytes)} for {need.purpose}" for need in needs if need.bytes > total / 100
    )
    raise ProximaError(
        f"{largest.settings}: needs at least {_size(total)} of memory ({parts}), and there are "
        f"{_size(there_is)}; make {largest.settings} smaller"
    )


def tree_bytes(shapes: PyTree) -> int:
    """The size of a tree's arrays, of which only shapes and types need to be known."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def available_bytes() -> int | None:
    """Memory that programs can still have: the devices' own, or this machine's; None where nobody says."""
    devices = jax.local_devices()
    if devices[0].platform != "cpu":
        return (
            sum((device.memory_stats() or {}).get("bytes_limit", 0) for device in devices) or None
        )
    try:
        words = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
        found = {name: int(number) * 1024 for name, number, *_ in words}
        there_is = found["MemAvailable:"] + found["SwapFree:"]
    except (OSError, KeyError, ValueError):
        return None
    try:
        return min(there_is, int(CONTAINER_LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return there_is


def _size(count: int) -> str:
    power = min(max(0, int(math.log(max(count, 1), 1000))), 8)
    return (
        f"{count / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB', 'ZB', 'YB')[power]}"
    )


def memory_metrics() -> dict[str, float]:
    """Megabytes (10⁶ bytes) resident now and at the peak, and of the arrays that JAX holds on its devices."""
    resident = resident_bytes()
    return {
        "memory/rss_mb": resident / MEGABYTE,
        "memory/peak_mb": max(resident, peak_bytes()) / MEGABYTE,  # kept a little behind by Linux
        "memory/arrays_mb": sum(array.nbytes for array in jax.live_arrays()) / MEGABYTE,
    }


def resident_bytes() -> int:
    """What the process holds in memory now; where the system does not say, its peak."""
    try:
        with open("/proc/self/statm") as numbers:
            return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_bytes()


def peak_bytes() -> int:
    """The most that the process has held so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
