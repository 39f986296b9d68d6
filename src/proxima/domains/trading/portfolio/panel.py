"""Reading the prices of several assets, strictly: whatever is wrong is told with its row and column.

    long    time, symbol, open, high, low, close, and maybe volume: a row for each asset and bar
    wide    time, then a column of closing prices for each asset

Which of the two a file is, its header says: a column symbol, ticker, tic or asset makes it long. Every asset
has every bar. A wide file knows no opens, highs, lows or volumes: what would need them is refused.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.data import digest_of
from proxima.domains.trading.ohlcv import (
    COLUMNS,
    INDEX_NAMES,
    PRICES,
    Columns,
    called,
    find_column,
    find_problems,
    read_table,
    time_notes,
    written,
)
from proxima.domains.trading.splits import day_of

SYMBOL = "symbol"
SYMBOL_NAMES = (SYMBOL, "ticker", "tic", "asset")
LEAST_ASSETS = 2
SHAPES = (
    "a file for portfolios has a column symbol beside time, open, high, low and close, or a column of "
    "closing prices for each asset beside the time"
)


Written = Callable[[int, str], str]  # a row (from 0) and a column → what stands there in the source


class Panel(NamedTuple):
    """The bars of several assets, all of the same times."""

    assets: tuple[str, ...]
    # Of each asset: time, open, high, low, close, volume (float64).
    frames: tuple[pl.DataFrame, ...]
    closes_only: bool  # the other prices are the close because the file has none, and volume is 0
    has_volume: bool
    lines: tuple[NDArray[np.int64], ...]  # of each asset: the bars' rows in the source, from 1
    notes: tuple[str, ...] = ()  # sentences for the user

    @property
    def bars(self) -> int:
        return self.frames[0].height

    @property
    def time(self) -> pl.Series:
        return self.frames[0]["time"]

    def rows(self, start: int, count: int) -> "Panel":
        """So many bars from a row on."""
        return self._replace(
            frames=tuple(frame.slice(start, count) for frame in self.frames),
            lines=tuple(lines[start : start + count] for lines in self.lines),
        )

    def in_order(self, assets: tuple[str, ...]) -> "Panel":
        """These of its assets, in this order."""
        places = [self.assets.index(asset) for asset in assets]
        return self._replace(
            assets=assets,
            frames=tuple(self.frames[place] for place in places),
            lines=tuple(self.lines[place] for place in places),
        )

    def digest(self) -> str:
        """The SHA-256 of names and values."""
        both = zip(self.assets, map(digest_of, self.frames), strict=True)
        return hashlib.sha256("\n".join(f"{name} {sha}" for name, sha in both).encode()).hexdigest()


def read_panel(path: str | Path) -> Panel:
    """The bars of a parquet or CSV file, and what is to be said of it."""
    path = Path(path)
    frame, notes = read_table(path, find_columns, (SYMBOL,))
    panel = panel_of(path, frame, partial(written, frame, path, find_columns))
    return panel._replace(notes=notes)


def panel_of(source: Path | str, frame: pl.DataFrame, words: Written, before: int = 0) -> Panel:
    """The bars of a table, long or wide; so many rows of the source came before it."""
    shape = _long if SYMBOL in frame.columns else _wide
    panel = shape(source, frame, words, before)
    if len(panel.assets) < LEAST_ASSETS:
        raise ProximaError(
            f"{source}: has one asset, {panel.assets[0]}; a portfolio has two or more, and one is traded "
            "with env.backend: trading"
        )
    return panel


def find_columns(path: Path | str, header: list[str], holds_time: Callable[[int], bool]) -> Columns:
    """Where the time is, and the columns of a long file or the assets of a wide one."""
    names = [name.strip().lower() for name in header]
    symbols = [place for place, name in enumerate(names) if name in SYMBOL_NAMES]
    if len(symbols) > 1:
        both = " and ".join(called(header, place) for place in symbols)
        raise ProximaError(f"{path}: {both} both name assets; keep one")
    wanted = COLUMNS if symbols else ("time",)
    named = {name: find_column(path, header, name, holds_time) for name in wanted}
    places = {name: place for name, place in named.items() if place is not None}
    notes = time_notes(header, places["time"])
    if symbols:
        places |= {SYMBOL: symbols[0]}
        left = [place for place in range(len(header)) if place not in places.values()]
        if left:
            notes.append(f"left out: {', '.join(called(header, place) for place in left)}")
        return Columns(places, tuple(notes))
    if set(PRICES) <= set(names):
        raise ProximaError(f"{path}: has the bars of one asset; {SHAPES}")
    for place in range(len(header)):
        if place != places["time"]:
            name = header[place].strip()
            if name.lower() in INDEX_NAMES:
                raise ProximaError(f"{path}: column {place + 1}: names no asset; name it")
            if name in places:
                raise ProximaError(f"{path}: column {place + 1}: {name} is there twice; keep one")
            places[name] = place
    if len(places) == 1:
        raise ProximaError(f"{path}: has a time and no asset; {SHAPES}")
    return Columns(places, tuple(notes))


def _wide(source: Path | str, frame: pl.DataFrame, words: Written, before: int) -> Panel:
    assets = tuple(name for name in frame.columns if name != "time")
    frames, problems = [], []
    for number, asset in enumerate(assets):
        close = pl.col(asset)
        bars = frame.select("time", *(close.alias(name) for name in PRICES), volume=pl.lit(0.0))
        names = {"close": asset} if number else {"time": "time", "close": asset}
        cell_words = partial(_written_as, words, names)
        problems += find_problems(bars, cell_words, before, names)
        frames.append(bars)
    if problems:
        raise ProximaError("\n".join(f"{source}: {problem}" for problem in problems))
    lines = before + np.arange(1, frame.height + 1)
    every = (lines,) * len(assets)
    return Panel(assets, tuple(frames), closes_only=True, has_volume=False, lines=every)


def _written_as(words: Written, names: dict[str, str], row: int, column: str) -> str:
    return words(row, names[column])


def _long(source: Path | str, frame: pl.DataFrame, words: Written, before: int) -> Panel:
    nameless = frame[SYMBOL].str.strip_chars().fill_null("") == ""
    if nameless.any():
        row = before + (nameless.arg_max() or 0) + 1
        raise ProximaError(f"{source}: row {row:,}, column symbol: names no asset; name it")
    has_volume = "volume" in frame.columns
    if not has_volume:
        frame = frame.with_columns(volume=pl.lit(0.0))
    numbered = frame.with_row_index("row").with_columns(pl.col(SYMBOL).str.strip_chars())
    by_asset = {
        str(group[SYMBOL][0]): group for group in numbered.partition_by(SYMBOL, maintain_order=True)
    }
    assets, problems = tuple(sorted(by_asset)), list[str]()
    for asset in assets:
        group = by_asset[asset]

        def cell_words(row: int, column: str, group: pl.DataFrame = group) -> str:
            in_file = int(group["row"][row])
            return f"{words(in_file, column)} (row {before + in_file + 1:,} of the file)"

        problems += [f"{asset}: {each}" for each in find_problems(group, cell_words)]
    if problems:
        raise ProximaError("\n".join(f"{source}: {problem}" for problem in problems))
    frames = tuple(by_asset[asset].select(COLUMNS).rechunk() for asset in assets)
    _check_times(source, assets, frames)
    lines = tuple(
        by_asset[asset]["row"].to_numpy().astype(np.int64) + before + 1 for asset in assets
    )
    return Panel(assets, frames, closes_only=False, has_volume=has_volume, lines=lines)


def _check_times(
    source: Path | str, assets: tuple[str, ...], frames: tuple[pl.DataFrame, ...]
) -> None:
    """An error that names the first bar that some assets have and others have not."""
    first, others = frames[0]["time"], frames[1:]
    for asset, frame in zip(assets[1:], others, strict=True):
        if frame["time"].equals(first):
            continue
        either = pl.concat([first, frame["time"]]).unique().sort()
        missing = either.filter(~(either.is_in(first) & either.is_in(frame["time"])))
        lacks, has = (assets[0], asset) if missing[0] not in first else (asset, assets[0])
        when = day_of(missing.dt.replace_time_zone(None).to_numpy()[0])
        raise ProximaError(
            f"{source}: {lacks} has no bar of {when}, {has} has one ({len(missing):,} such bars of these "
            "two); every asset needs every bar: fill them in, or leave the asset or the bars out"
        )
