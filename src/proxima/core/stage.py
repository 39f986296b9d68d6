"""A stage of a pipeline as the loop drives it: a state, and what an update makes of it.

`train/stages.py` drives any of them: it records, saves, stops and resumes, and knows nothing of what
is learnt. A state is a tree of arrays and typed PRNG keys; saved whole, it is all that a stage needs to
go on exactly where it was.
"""

from collections.abc import Callable
from typing import NamedTuple

from proxima.core.types import PyTree


class Stage(NamedTuple):
    """One training of a pipeline, over one state."""

    updates: int  # in its budget
    init: Callable[[], PyTree]
    # state, number of the update (0 is the first) → new state, metrics; the old state is given up
    update: Callable[[PyTree, int], tuple[PyTree, dict[str, float]]]
    # held-out figures by name, area first (eval/…); changes nothing. Called before the first update too.
    evaluate: Callable[[PyTree], dict[str, float]]
    evaluate_every: int  # updates between two evaluations; one is made at the end in any case
    # why a stage should end before its budget, in words, from an update's metrics; None: go on
    finished: Callable[[dict[str, float]], str | None] = lambda metrics: None
