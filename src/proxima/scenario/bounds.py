"""Sizes that nobody can mean, whichever setting has them: each a sentence with what is allowed.

`bound` looks at a value before it is anything's; `size_faults` at the numbers of a scenario whose types are
right. What one setting alone cannot be is said where it is declared (`Interval`, `Len`).
"""

import math
from collections.abc import Iterator
from typing import Any

from proxima.core.faults import Fault, KeyPath
from proxima.yaml import shown

MOST_CHARACTERS = 4_096  # of a text: as many as a path has on Linux
MOST_ENTRIES = 1_000  # of a list or a mapping
DEEPEST = 16  # mappings and lists in each other
LARGEST = 2**31  # the compiled programs count in 32 bits
COUNTED_ON_THE_HOST = {("training", "max_steps"), ("training", "max_episodes")}
SMALLEST_FLOAT, LARGEST_FLOAT = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # normal numbers of float32


def bound(value: Any, depth: int) -> str | None:
    """What is wrong with a value at this depth whatever it is meant for; None: nothing."""
    if depth > DEEPEST:
        return f"is nested too deeply: at most {DEEPEST} mappings and lists in each other"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"a whole number of {value.bit_length():,} bits is not allowed: 64 at most"
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return f"a text of {len(value):,} characters is not allowed: at most {MOST_CHARACTERS:,}"
    if isinstance(value, dict | list | tuple) and len(value) > MOST_ENTRIES:
        return f"{len(value):,} entries are not allowed: at most {MOST_ENTRIES:,}"
    return None


def size_faults(tree: Any, path: KeyPath = ()) -> Iterator[Fault]:
    """Numbers that the programs cannot hold as they are written."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from size_faults(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from size_faults(value, (*path, index))
    elif (limit := _limit(tree, path)) is not None:
        yield Fault((path,), f"{shown(tree)} is not allowed: {limit}")


def _limit(value: Any, path: KeyPath) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if isinstance(value, float) and value and not SMALLEST_FLOAT <= abs(value) <= LARGEST_FLOAT:
        return f"must be 0 or between {SMALLEST_FLOAT:.2g} and {LARGEST_FLOAT:.2g}, as 32 bits hold"
    is_counted = path in COUNTED_ON_THE_HOST
    if isinstance(value, int) and not is_counted and not -LARGEST <= value < LARGEST:
        return f"must be less than {LARGEST:,}"
    return None
