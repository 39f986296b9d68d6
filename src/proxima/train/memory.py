"""What the process and its devices hold in memory, in megabytes (10⁶ bytes); cheap enough for every chunk."""

import os
import resource
import sys

import jax

MEGABYTE = 1e6


def memory_metrics() -> dict[str, float]:
    """Resident memory now and at its peak, and the arrays that JAX holds on its devices."""
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
