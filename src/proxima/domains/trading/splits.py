"""Time divided into train, validation and test, with rows left out between them.

    anchored   train ───────────────╮ gap ╭─ validation ─╮ gap ╭─ test ─╮
    fold 0     ████████████████████       ▒▒▒▒▒▒▒▒             ░░░░
    fold 1     ████████████████████████       ▒▒▒▒▒▒▒▒             ░░░░
    sliding 1      ████████████████████       ▒▒▒▒▒▒▒▒             ░░░░

The share `test` is the end of the data; walk-forward folds divide it among them, in order, so that
together they test on each of its rows once. One fold tests on all of it.
"""

import math
from typing import NamedTuple

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import SplitConfig

LEAST_ROWS = 2  # of a part: two prices make one return


class Bounds(NamedTuple):
    """Each part's first row, and the one after its last."""

    train: tuple[int, int]
    validation: tuple[int, int]
    test: tuple[int, int]


def split_bounds(rows: int, split: SplitConfig, purge: int) -> Bounds:
    """The parts of the split's own fold, with `purge` rows left out between two."""
    if split.fold >= split.folds:
        raise ProximaError(
            f"data.split.fold: {split.fold} is not allowed: with folds {split.folds} the last one is "
            f"{split.folds - 1}"
        )
    return walk_forward(rows, split, purge)[split.fold]


def walk_forward(rows: int, split: SplitConfig, purge: int) -> tuple[Bounds, ...]:
    """The parts of every fold, the earliest first."""
    if split.validation + split.test >= 1:
        raise ProximaError(
            f"data.split: validation {split.validation:g} and test {split.test:g} leave nothing to "
            "train on; together they must be less than 1"
        )
    if not _fits(rows, split, purge):
        raise ProximaError(
            f"{rows:,} usable rows are too few to split: train, validation and test with {purge:,} rows "
            f"left out between them (the longest look back and ahead) need {_needed(split, purge):,}; "
            "take more rows, shorter feature windows, or other shares in data.split"
        )
    return tuple(_fold(rows, split, purge, fold) for fold in range(split.folds))


def _fold(rows: int, split: SplitConfig, purge: int, fold: int) -> Bounds:
    tested, validated = _count(rows, split.test), _count(rows, split.validation)
    first = rows - tested
    test = (first + fold * tested // split.folds, first + (fold + 1) * tested // split.folds)
    validation = (test[0] - purge - validated, test[0] - purge)
    length = first - 2 * purge - validated  # of the first fold's train part
    end = validation[0] - purge
    start = 0 if split.mode == "anchored" else end - length
    return Bounds((start, end), validation, test)


def _count(rows: int, share: float) -> int:
    return math.floor(rows * share + 1e-9)  # 0.3 of 10 is 3, whatever 0.3 is in binary


def _fits(rows: int, split: SplitConfig, purge: int) -> bool:
    tested, validated = _count(rows, split.test), _count(rows, split.validation)
    parts = (rows - tested - validated - 2 * purge, validated, tested // split.folds)
    return min(parts) >= LEAST_ROWS


def _needed(split: SplitConfig, purge: int) -> int:
    """The fewest rows from which on every number of them can be split."""
    rows = math.ceil(
        max(
            LEAST_ROWS / split.validation,
            LEAST_ROWS * split.folds / split.test,
            (LEAST_ROWS + 2 * purge) / (1 - split.validation - split.test),
        )
    )
    rows += 1  # against rounding; then down to where it stops fitting
    while _fits(rows - 1, split, purge):
        rows -= 1
    return rows
