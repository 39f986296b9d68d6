"""New bars of several assets: from a file, from tables, or as lines of standard input, long or wide.

A line of wide bars is a bar. Of long ones it is the bar of one asset, and lines come grouped by time: a bar
is complete when every asset has come. The assets are those that the policy trades, in any order.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from proxima.core.errors import ProximaError
from proxima.domains.trading.arriving import (
    ANY_GAP,
    INPUT,
    Batch,
    Checked,
    bar_of,
    checked_cells,
    following,
    run_bars,
    times,
)
from proxima.domains.trading.market import Spacing
from proxima.domains.trading.ohlcv import YEAR_FIRST, time_expression, value_words
from proxima.domains.trading.portfolio.panel import (
    SYMBOL,
    Panel,
    find_columns,
    panel_of,
    read_panel,
)
from proxima.domains.trading.portfolio.recipe import PanelReader, bars_of
from proxima.domains.trading.splits import day_of

MOST_NAMES = 8  # of assets, in a message
Numbered = Iterator[tuple[int, list[str]]]  # rows from 0 and their cells


def read_file(reader: PanelReader, path: Path) -> Batch:
    """The bars of a file."""
    return batch_of(reader, str(path), read_panel(path))


def batch_of(reader: PanelReader, source: str, panel: Panel) -> Batch:
    """The bars of a panel as the policy reads them; an error where they are not those of its assets."""
    _check_assets(reader, source, panel)
    _check_fields(reader, source, panel)
    panel = panel.in_order(reader.assets)

    def origin(row: int, column: str) -> tuple[int, str]:
        if column == "time":
            return min(int(lines[row]) for lines in panel.lines), column
        asset, field = column.rsplit(" ", 1)
        line = int(panel.lines[reader.assets.index(asset)][row])
        return line, asset if panel.closes_only else f"{field} of {asset}"

    return Batch(source, 0, bars_of(panel, reader), panel.has_volume, origin, panel.notes)


def _check_assets(reader: PanelReader, source: str, panel: Panel) -> None:
    for asset, lines in zip(panel.assets, panel.lines, strict=True):
        if asset not in reader.assets:
            where = f"row {lines[0]:,}, column symbol" if not panel.closes_only else "header"
            raise _unknown(reader, f"{source}: {where}", asset)
    missing = [asset for asset in reader.assets if asset not in panel.assets]
    if missing:
        raise _missing(source, missing)


def _unknown(reader: PanelReader, where: str, asset: str) -> ProximaError:
    return ProximaError(
        f"{where}: {asset!r} is no asset that the policy trades; leave it out: they are "
        f"{_names(reader.assets)}"
    )


def _missing(source: str, assets: Sequence[str]) -> ProximaError:
    return ProximaError(
        f"{source}: has no {_names(assets)}, which the policy trades; every bar needs all of its assets"
    )


def _names(assets: Sequence[str]) -> str:
    more = f" and {len(assets) - MOST_NAMES} more" if len(assets) > MOST_NAMES else ""
    return ", ".join(assets[:MOST_NAMES]) + more


def _check_fields(reader: PanelReader, source: str, panel: Panel) -> None:
    lacking = [name for name in reader.fields if name != "close"] if panel.closes_only else []
    if reader.needs_volume and not panel.has_volume and "volume" not in lacking:
        lacking.append("volume")
    if lacking:
        raise ProximaError(
            f"{source}: has no {' and no '.join(lacking)}, which the policy needs: its features read them, "
            "or orders are filled there; give bars with time, symbol, open, high, low, close and volume"
        )


def new_bars(
    reader: PanelReader,
    past: pl.DataFrame | None,
    batch: Batch,
    spacing: Spacing | None,
    remedy: str = ANY_GAP,
) -> pl.DataFrame:
    """The bars of a batch that continue the past, without those that are known already."""
    same = tuple(name for name in batch.frame.columns if name != "time")
    checked = Checked(same, tuple(reader.of("close")))
    return following(past, batch, spacing, checked, remedy)


def read_past(reader: PanelReader, places: Iterable[Path], given: Path | None) -> pl.DataFrame:
    """The bars that the run was trained on, from where its data was or is now."""

    def read_first(path: Path, rows: int) -> tuple[pl.DataFrame, str]:
        panel = read_panel(path)
        if set(panel.assets) != set(reader.assets):
            return reader.no_bars, ""
        first = panel.in_order(reader.assets).rows(0, rows)
        return bars_of(first, reader), first.digest()

    return run_bars(reader.recipe.data, places, given, read_first)


def read_lines(reader: PanelReader, lines: Iterable[bytes]) -> Iterator[Batch]:
    """The bars of lines of CSV, below one that names the columns."""
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        return
    header = checked_cells(first, 0, 0)
    if pl.Series(header[:1]).str.contains(YEAR_FIRST).item():
        raise ProximaError(
            f"{INPUT}: row 1: is a bar; the first line names the columns, such as "
            f"time,{','.join(reader.assets[:2])},… or time,symbol,open,high,low,close,volume"
        )
    places = find_columns(INPUT, header, lambda place: True).places
    rows = ((row, checked_cells(line, row, len(header))) for row, line in enumerate(lines))
    read = _long_lines if SYMBOL in places else _wide_lines
    yield from read(reader, places, rows)


def _wide_lines(reader: PanelReader, places: dict[str, int], rows: Numbered) -> Iterator[Batch]:
    assets = [name for name in places if name != "time"]
    for asset in assets:
        if asset not in reader.assets:
            raise _unknown(reader, f"{INPUT}: column {places[asset] + 1}", asset)
    for row, values in rows:
        texts = pl.DataFrame({name: [values[place]] for name, place in places.items()})
        frame = texts.select(
            time_expression(INPUT, "time", pl.String()),
            pl.col(assets).str.strip_chars().cast(pl.Float64, strict=False),
        )

        def words(index: int, column: str, frame=frame, values=values) -> str:  # type: ignore[no-untyped-def]
            if frame[column].is_null()[index]:
                return ascii(values[places[column]]) if values[places[column]] else "an empty cell"
            return value_words(frame, index, column)

        yield batch_of(reader, INPUT, panel_of(INPUT, frame, words, row))


def _long_lines(reader: PanelReader, places: dict[str, int], rows: Numbered) -> Iterator[Batch]:
    gathered: dict[str, tuple[int, pl.DataFrame]] = {}  # of the bar that is coming, by asset
    for row, values in rows:
        frame = bar_of(values, places, row)
        asset = values[places[SYMBOL]].strip()
        _check_line(reader, gathered, asset, frame, row)
        gathered[asset] = row, frame
        if len(gathered) == len(reader.assets):
            yield batch_of(reader, INPUT, _gathered_panel(gathered, "volume" in places))
            gathered = {}
    if gathered:
        when, missing = _incomplete(reader, gathered)
        raise ProximaError(
            f"{INPUT}: ends within the bar of {when}: {_names(missing)} did not come, so it is not traded; "
            "give it whole, and the same command goes on"
        )


def _check_line(
    reader: PanelReader,
    gathered: dict[str, tuple[int, pl.DataFrame]],
    asset: str,
    frame: pl.DataFrame,
    row: int,
) -> None:
    """An error where a line is not of the bar that is coming."""
    where = f"{INPUT}: row {row + 1:,}, column"
    if asset not in reader.assets:
        raise _unknown(reader, f"{where} symbol", asset)
    if not gathered:
        return
    when, missing = _incomplete(reader, gathered)
    if times(frame)[0] != times(next(iter(gathered.values()))[1])[0]:
        raise ProximaError(
            f"{where} time: {value_words(frame, 0, 'time')} begins another bar, and that of {when} lacks "
            f"{_names(missing)}; a bar comes whole, every asset once, before the next"
        )
    if asset in gathered:
        raise ProximaError(
            f"{where} symbol: {asset} has come already in the bar of {when}, row "
            f"{gathered[asset][0] + 1:,}; every asset comes once"
        )


def _incomplete(
    reader: PanelReader, gathered: dict[str, tuple[int, pl.DataFrame]]
) -> tuple[str, list[str]]:
    """When the bar that is coming began, and the assets that have not come."""
    begun = times(next(iter(gathered.values()))[1])[0]
    return day_of(begun), [asset for asset in reader.assets if asset not in gathered]


def _gathered_panel(gathered: dict[str, tuple[int, pl.DataFrame]], has_volume: bool) -> Panel:
    return Panel(
        assets=tuple(gathered),
        frames=tuple(frame for _, frame in gathered.values()),
        closes_only=False,
        has_volume=has_volume,
        lines=tuple(np.array([row + 1]) for row, _ in gathered.values()),
    )
