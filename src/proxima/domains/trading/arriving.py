"""Bars that come after others: what continues a past, what is known already, and what is refused.

    known    a bar of the past, time and values the same: left out
    new      after the last one, no closer and no further than bars of the run's data are
    refused  anything else, with its row and column

Bars come from a file, all of them at once, or as lines, each a bar of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.csv_lines import cells_of, line_problem
from proxima.domains.trading.data import digest_of
from proxima.domains.trading.market import Spacing
from proxima.domains.trading.ohlcv import (
    COLUMNS,
    LARGEST_MOVE,
    PRICES,
    TIME_NAMES,
    YEAR_FIRST,
    find_columns,
    find_problems,
    read_bars,
    time_expression,
    value_words,
)
from proxima.domains.trading.recipe import RunData
from proxima.domains.trading.splits import day_of

INPUT = "standard input"
ANY_GAP = "--any-gap goes on all the same"
UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


class Batch(NamedTuple):
    """Bars that arrived together."""

    source: str  # for errors
    rows_before: int  # of the source, so that rows are named as they are counted there
    frame: pl.DataFrame
    has_volume: bool
    # Row (from 0) and column of the frame → row (from 1) and column of the source; None: the same ones.
    origin: Callable[[int, str], tuple[int, str]] | None = None
    notes: tuple[str, ...] = ()  # sentences about the source, for the user

    def where(self, row: int, column: str) -> str:
        """A row (from 0) and a column, as they are counted and called in the source."""
        line, name = self._placed(row, column)
        return f"{self.source}: row {line:,}, column {name}"

    def bar(self, row: int) -> str:
        """Where a bar begins in the source."""
        return f"{self.source}: row {self._placed(row, 'time')[0]:,}"

    def _placed(self, row: int, column: str) -> tuple[int, str]:
        if self.origin is not None:
            return self.origin(row, column)
        return self.rows_before + row + 1, column


class Checked(NamedTuple):
    """Columns in which bars must continue those before them."""

    same: tuple[str, ...]  # that a known bar has with the same values
    closes: tuple[str, ...]


Read = Callable[[Path, int], tuple[pl.DataFrame, str]]  # a file's first bars, and their SHA-256


def times(frame: pl.DataFrame) -> NDArray[np.datetime64]:
    """When each bar began, UTC."""
    return frame["time"].dt.replace_time_zone(None).to_numpy()


def read_first(path: Path, rows: int) -> tuple[pl.DataFrame, str]:
    """The first bars of a file, and their SHA-256."""
    frame = read_bars(path).frame.head(rows)
    return frame, digest_of(frame)


def run_bars(
    data: RunData, places: Iterable[Path], given: Path | None = None, read: Read = read_first
) -> pl.DataFrame:
    """The bars that a run was trained on, from where its data was or is now.

    The file may have grown since: its first rows count, and must be those that the run has noted.
    """
    paths = [place / data.source for place in places] if given is None else [given]
    existing = [path for path in paths if path.is_file()]
    for path in existing:
        frame, digest = read(path, data.rows)
        if digest == data.prices_sha256:
            return frame
    if not existing:
        raise ProximaError(
            f"{given or data.source}: no such file: the prices that the run was trained on are gone; put "
            "the file back, or name it where it is now by --past FILE"
        )
    raise ProximaError(
        f"{existing[0]}: its first {data.rows:,} bars are not those that the run was trained on; put the old "
        "file back, or name it where it is now by --past FILE"
    )


def read_file(path: Path) -> Batch:
    """The bars of a file."""
    bars = read_bars(path)
    return Batch(str(path), 0, bars.frame, bars.has_volume, notes=bars.notes)


def read_lines(lines: Iterable[bytes]) -> Iterator[Batch]:
    """A bar for each line: CSV with or without a header; without one in the order of `COLUMNS`."""
    places: dict[str, int] | None = None
    row, cells = 0, 0
    for line in lines:
        values = checked_cells(line, row, cells)
        if places is None:
            cells, places, is_header = len(values), *_places(values)
            if is_header:
                continue
        yield Batch(INPUT, row, bar_of(values, places, row), "volume" in places)
        row += 1


def checked_cells(line: bytes, row: int, cells: int) -> list[str]:
    """The cells of a line of standard input; 0: of the first, which may have any number."""
    problem = line_problem(line, cells or None)
    if problem is None and not line.endswith(b"\n"):
        problem = "does not end with a line feed, so it may be cut short; end every line with one"
    if problem is not None:
        raise ProximaError(f"{INPUT}: row {row + 1:,}: {problem}")
    return cells_of(line)


def _places(values: list[str]) -> tuple[dict[str, int], bool]:
    """Where each column is, by a first line that names them, or that is a bar already."""
    is_bar = pl.Series(values[:1]).str.contains(YEAR_FIRST).item()
    header = list(COLUMNS[: len(values)]) if is_bar else values
    if is_bar and len(values) not in (len(COLUMNS) - 1, len(COLUMNS)):
        raise ProximaError(
            f"{INPUT}: row 1: has {len(values)} cells; without a header a line is "
            f"{','.join(COLUMNS)}, or the same without volume"
        )
    if not is_bar and not {name.strip().lower() for name in values} & {*PRICES, *TIME_NAMES}:
        raise ProximaError(
            f"{INPUT}: row 1: {', '.join(map(ascii, values[:6]))} is neither a header such as "
            f"{','.join(COLUMNS)} nor a bar such as 2024-01-31,1.0,1.2,0.9,1.1,5000"
        )
    return find_columns(INPUT, header, lambda origin: True).places, not is_bar


def bar_of(values: list[str], places: dict[str, int], row: int) -> pl.DataFrame:
    """One bar of cells, each of which is what it should be."""
    texts = pl.DataFrame({name: [values[place]] for name, place in places.items()})
    frame = texts.select(
        time_expression(INPUT, "time", pl.String()),
        *(pl.col(name).str.strip_chars().cast(pl.Float64, strict=False) for name in PRICES),
        pl.col("volume").str.strip_chars().cast(pl.Float64, strict=False)
        if "volume" in places
        else pl.lit(0.0).alias("volume"),
    )

    def written(index: int, column: str) -> str:
        if frame[column].is_null()[index] and column in places:
            return ascii(values[places[column]]) if values[places[column]] else "an empty cell"
        return value_words(frame, index, column)

    problems = find_problems(frame, written, row)
    if problems:
        raise ProximaError("\n".join(f"{INPUT}: {problem}" for problem in problems))
    return frame


def new_bars(
    past: pl.DataFrame | None,
    batch: Batch,
    spacing: Spacing | None,
    with_volume: bool,
    remedy: str = ANY_GAP,
) -> pl.DataFrame:
    """The bars of a batch that continue the past, without those that are known already.

    Without a `spacing` they may be any time apart; `remedy` says how to ask for that.
    """
    if with_volume and not batch.has_volume:
        raise ProximaError(
            f"{batch.source}: has no column volume, and the policy's features need one; add it"
        )
    same = (*PRICES, "volume") if with_volume else PRICES
    return following(past, batch, spacing, Checked(same, ("close",)), remedy)


def following(
    past: pl.DataFrame | None,
    batch: Batch,
    spacing: Spacing | None,
    checked: Checked,
    remedy: str = ANY_GAP,
) -> pl.DataFrame:
    """The bars of a batch that continue the past in the columns that are checked."""
    now, known = times(batch.frame), 0
    last = now[:0] if past is None else times(past)[-1:]  # none without a past
    if past is not None and len(last):
        known = int(np.searchsorted(now, last[0], side="right"))
        _refuse_unknown(past, batch, known, checked.same)
        if known < len(now):
            _refuse_jump(past, batch, known, checked.closes)
    if spacing is not None:
        _refuse_spacing(last, batch, known, spacing, remedy)
    return batch.frame.slice(known)


def _refuse_unknown(past: pl.DataFrame, batch: Batch, known: int, columns: Sequence[str]) -> None:
    """An error where a bar that is not after the last known one is not a known one."""
    if not known:
        return
    before, now = times(past), times(batch.frame)[:known]
    rows = np.minimum(np.searchsorted(before, now), len(before) - 1)
    missing = before[rows] != now
    if missing.any():
        row = int(np.argmax(missing))
        raise _refusal(
            batch,
            row,
            "time",
            f"is not after the last bar ({day_of(before[-1])}), and no bar of this time is known; bars come "
            "in their order, each once",
        )
    for column in columns:
        theirs = past[column].to_numpy()[rows]
        different = batch.frame[column].to_numpy()[:known] != theirs
        if different.any():
            row = int(np.argmax(different))
            raise _refusal(
                batch,
                row,
                column,
                f"was {theirs[row]:g} when the bar of {day_of(now[row])} was taken; a bar does not change "
                "once it has closed",
            )


def _refuse_jump(past: pl.DataFrame, batch: Batch, known: int, columns: Sequence[str]) -> None:
    """An error where a price is so far from the last one that no file may have both."""
    for column in columns:
        close, before = batch.frame[column][known], past[column][-1]
        if abs(np.log(close / before)) > np.log(LARGEST_MOVE):
            words = (
                f"is a million times the last close ({before:g}), or a millionth: a digit or the decimal "
                "point is lost; mend the value"
            )
            raise _refusal(batch, known, column, words)


def _refuse_spacing(
    last: NDArray[np.datetime64], batch: Batch, known: int, spacing: Spacing, remedy: str
) -> None:
    """An error where bars are missing, or are of another length than those of the run."""
    stamps = np.concatenate([last, times(batch.frame)[known:]])
    steps = np.diff(stamps).astype(np.int64)
    for bad, words, limit in (
        (steps > spacing.longest, "a gap: bars are missing, or they are of another length", "most"),
        (steps < spacing.shortest, "too soon: bars are of another length", "least"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            before = stamps[row]
            bound = spacing.longest if limit == "most" else spacing.shortest
            raise _refusal(
                batch,
                known + row + 1 - len(last),
                "time",
                f"is {duration(steps[row])} after the bar before ({day_of(before)}), which is {words}; in "
                f"the run's data it is {duration(bound)} at {limit}; {remedy}",
            )


def _refusal(batch: Batch, row: int, column: str, words: str) -> ProximaError:
    value = value_words(batch.frame, row, column)
    return ProximaError(f"{batch.where(row, column)}: {value} {words}")


def duration(microseconds: float) -> str:
    """A length of time in words."""
    seconds = float(microseconds) / 1e6
    name, size = next((unit for unit in UNITS if seconds >= unit[1]), UNITS[-1])
    return f"{seconds / size:g} {name}{'' if seconds == size else 's'}"
