"""Checkpoints: the whole TrainState, written atomically, checked strictly, never pickled."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How often a run is saved and how much of it is kept."""

    frequency: Annotated[int, Ge(1)] = 10
    """Chunks between two checkpoints; a stop and the end always save."""
    keep: Annotated[int, Ge(2)] = 2
    """Checkpoints of a trial kept besides the best one."""
