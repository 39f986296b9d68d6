"""How time is divided into train, validation and test, with rows left out between them.

    anchored   train ───────────────╮ gap ╭─ validation ─╮ gap ╭─ test ─╮
    fold 0     ████████████████████       ▒▒▒▒▒▒▒▒             ░░░░
    fold 1     ████████████████████████       ▒▒▒▒▒▒▒▒             ░░░░
    sliding 1      ████████████████████       ▒▒▒▒▒▒▒▒             ░░░░

By shares, `test` is the end of the data, and bars that are appended move every part. By dates, train and
validation end where the dates say, whatever comes after them. Walk-forward folds divide what is tested on
among them, in order, so that together they test on each of its rows once; one fold tests on all of it.
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.core.faults import Fault
from proxima.domains.trading.config import SplitConfig

LEAST_ROWS = 2  # of a part: two prices make one return
MOST_ROWS = 1e12  # that a message asks for
SHARE = 0.2  # of validation and of test, where neither a share nor a date says otherwise
DATES = ("train_until", "validation_until", "test_until")
ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(\D.*)?")

Bounds = dict[str, tuple[int, int]]  # of each part: its first row, and the one after its last


class Stretch(NamedTuple):
    """What the folds share: how much the first one trains and validates on, and what all test on."""

    trained: int
    validated: int
    first: int  # row of test
    end: int  # the row after the last of test


def split_faults(split: SplitConfig) -> Iterator[Fault]:
    """What contradicts itself in the settings of a split, whatever the data."""
    if split.fold == "all":
        if split.folds < 2:
            yield _fault(
                "all needs several folds; set data.split.folds to 2 or more", "fold", "folds"
            )
    elif split.fold >= split.folds:
        text = f"{split.fold} is not one of {split.folds} folds; the first is 0, the last"
        yield _fault(f"{text} {split.folds - 1}", "fold", "folds")
    validation, test = _shares(split)
    if validation + test >= 1:
        text = (
            f"{validation:g} and data.split.test {test:g} leave nothing to train on; together they"
        )
        yield _fault(f"{text} must be less than 1", "validation", "test")
    yield from _date_faults(split)


def split_bounds(time: NDArray[np.datetime64], split: SplitConfig, purge: int) -> Bounds:
    """The parts of the split's fold among bars that begin at these times, `purge` rows left out between."""
    for paths, text in split_faults(split):
        raise ProximaError(f"{'.'.join(map(str, paths[0]))}: {text}")
    if split.fold == "all":
        raise ProximaError(
            "data.split.fold: all is every fold of an experiment at once, and this takes one; set it to a "
            f"number from 0 to {split.folds - 1}"
        )
    by_date = split.train_until is not None
    trained, validated, first, end = (
        _by_date(time, split, purge) if by_date else _by_share(len(time), split, purge)
    )
    tested, fold = end - first, split.fold
    test = (first + fold * tested // split.folds, first + (fold + 1) * tested // split.folds)
    validation = (test[0] - purge - validated, test[0] - purge)
    stop = validation[0] - purge
    start = 0 if split.mode == "anchored" else stop - trained
    return {"train": (start, stop), "validation": validation, "test": test}


def _fault(text: str, *keys: str) -> Fault:
    return Fault(tuple(("data", "split", key) for key in keys), text)


def _shares(split: SplitConfig) -> tuple[float, float]:
    validation, test = split.validation, split.test
    return SHARE if validation is None else validation, SHARE if test is None else test


def _date_faults(split: SplitConfig) -> Iterator[Fault]:
    dates, moments = _dates(split), _moments(split)
    if not dates:
        return
    named = next(iter(dates))
    for key, text in dates.items():
        if key not in moments:
            yield _fault(f"{text!r} is not a time such as 2019-01-31 or 2019-01-31T15:00:00Z", key)
    for key in DATES[:2]:
        if key not in dates:
            text = f"is missing beside data.split.{named}; train and validation need one each"
            yield _fault(text, key, *dates)
    for (before, earlier), (after, later) in pairwise(moments.items()):
        if earlier >= later:
            text = f"{dates[after]} is not later than data.split.{before} {dates[before]}"
            yield _fault(text, after, before)
    for key, share in (("validation", split.validation), ("test", split.test)):
        if share is not None:
            text = (
                f"{share:g} beside data.split.{named}: time is divided by shares or by dates; leave"
            )
            yield _fault(f"{text} one out", key, *dates)
    if split.folds > 1 and split.test_until is None:
        text = "is missing: without it, every fold moves when bars are appended"
        yield _fault(text, "test_until", "folds")


def _dates(split: SplitConfig) -> dict[str, str]:
    """The dates that are given, in their order."""
    texts = zip(DATES, (split.train_until, split.validation_until, split.test_until), strict=True)
    return {key: text for key, text in texts if text is not None}


def _moments(split: SplitConfig) -> dict[str, np.datetime64]:
    """The dates that are times."""
    moments = {key: moment_of(text) for key, text in _dates(split).items()}
    return {key: moment for key, moment in moments.items() if moment is not None}


def moment_of(text: str) -> np.datetime64 | None:
    """The time that a text with the year first says, in UTC unless it says otherwise."""
    if not ISO_DAY.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return np.datetime64(aware.astimezone(UTC).replace(tzinfo=None), "us")
    except (ValueError, OverflowError):
        return None


def _by_date(time: NDArray[np.datetime64], split: SplitConfig, purge: int) -> Stretch:
    row = {key: int(np.searchsorted(time, moment)) for key, moment in _moments(split).items()}
    trained, ended = row["train_until"], row["validation_until"]
    first, end = ended + purge, row.get("test_until", len(time))
    validated, last = ended - trained - purge, next(reversed(row))
    for key, part, rows, least in (
        ("train_until", "train", trained, LEAST_ROWS),
        ("validation_until", "validation", validated, LEAST_ROWS),
        (last, "test", end - first, LEAST_ROWS * split.folds),
    ):
        if rows < least:
            gap = "" if part == "train" else f" after the {purge:,} that are left out"
            raise ProximaError(
                f"data.split.{key}: {_dates(split)[key]} leaves {max(rows, 0):,} bars for {part}{gap}, "
                f"which needs {least:,}; the bars that can be used are from {day_of(time[0])} to "
                f"{day_of(time[-1])}"
            )
    return Stretch(trained, validated, first, end)


def day_of(stamp: np.datetime64) -> str:
    """A time without what is zero."""
    return str(stamp).removesuffix(".000000").removesuffix("T00:00:00")


def _by_share(rows: int, split: SplitConfig, purge: int) -> Stretch:
    if not _fits(rows, split, purge):
        needed = _needed(split, purge)
        raise ProximaError(
            f"{rows:,} usable rows are too few to split: train, validation and test with {purge:,} rows "
            "left out between them (the longest look back and ahead) need "
            f"{'more than any file has' if needed is None else f'{needed:,}'}; "
            "take more rows, shorter feature windows, or other shares in data.split"
        )
    validation, test = _shares(split)
    validated, first = _count(rows, validation), rows - _count(rows, test)
    return Stretch(first - 2 * purge - validated, validated, first, rows)


def _count(rows: int, share: float) -> int:
    return math.floor(rows * share + 1e-9)  # 0.3 of 10 is 3, whatever 0.3 is in binary


def _fits(rows: int, split: SplitConfig, purge: int) -> bool:
    validated, tested = (_count(rows, share) for share in _shares(split))
    parts = (rows - tested - validated - 2 * purge, validated, tested // split.folds)
    return min(parts) >= LEAST_ROWS


def _needed(split: SplitConfig, purge: int) -> int | None:
    """The fewest rows from which on every number of them can be split; None: more than any file has."""
    validation, test = _shares(split)
    rows = max(
        LEAST_ROWS / validation,
        LEAST_ROWS * split.folds / test,
        (LEAST_ROWS + 2 * purge) / (1 - validation - test),
    )
    if rows > MOST_ROWS:  # where counting down one by one would not end either
        return None
    needed = math.ceil(rows) + 1  # against rounding; then down to where it stops fitting
    while _fits(needed - 1, split, purge):
        needed -= 1
    return needed
