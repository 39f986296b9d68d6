"""Where a run or a search stands, in a small file for whoever looks on while it trains.

<run>/progress.json     replaced at every checkpoint, and after a chunk at most once a second

Metrics and checkpoints are what a run goes on from; this file only spares onlookers from reading them all.
"""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, final

from proxima.run.files import read_json, write_json

NAME = "progress.json"
FEWEST_SECONDS = 1.0  # between two writings that no checkpoint asks for


class Standing(NamedTuple):
    """How far it is by its own rules, as the console says it."""

    stage: str  # "" where it is the only one
    number: int  # of the stage, from 1; one of a language run trains one trial
    stages: int
    unit: str
    steps: int  # of the lane that is furthest
    fraction: float  # of the stage
    seconds: float  # of training in the stage, those before a resume included
    figure: str  # what `best` is of
    best: float | None  # the best evaluation of all trials so far
    note: str = ""  # who trains what, where that is not the run's own process


@final
class StandingFile:
    """Writes a run's standing, and not too often."""

    def __init__(self, root: Path):
        self._path, self._written_at = root / NAME, float("-inf")

    def write(self, make: Callable[[], Standing], at_once: bool) -> None:
        """Replace the file, if that is due."""
        now = time.monotonic()
        if at_once or now - self._written_at >= FEWEST_SECONDS:
            self._written_at = now
            write_json(self._path, make()._asdict())


def read_standing(root: Path) -> Standing | None:
    """Where a run stands; None where its file is missing, half, or of another version."""
    try:
        content = json.loads((root / NAME).read_bytes())
        return Standing(**content)
    except (OSError, ValueError, RecursionError, TypeError):
        return None


def best_of(values: Iterable[float | None], sign: float) -> float | None:
    """The highest of the values by which states were compared, as its figure is written."""
    known = [value for value in values if value is not None]
    return sign * max(known) if known else None


def best_of_stages(paths: Iterable[Path]) -> list[float]:
    """The best values that stages have come to which have ended, of the files that exist."""
    ended: list[dict[str, Any]] = [read_json(path) for path in paths if path.is_file()]
    return [stage["best"] for stage in ended if stage.get("best") is not None]
