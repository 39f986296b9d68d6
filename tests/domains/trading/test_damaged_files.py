"""Damaged files of prices, at random: each is refused in words, or read as what is written in it.

The second reader is slow and knows nothing of ours: the standard library's, cell by cell.
"""

import csv
import random
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from damage import damaged_bytes

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import DataConfig
from proxima.domains.trading.data import read_source
from proxima.domains.trading.ohlcv import COLUMNS, LARGEST_MOVE, PRICES, read_bars
from proxima.domains.trading.synthetic import generate

BARS = 40
FRAME = generate("gbm", BARS, 0)
TEXT = FRAME.with_columns(
    pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%SZ"), note=pl.lit('a "b", c')
).write_csv()
# What people and programs write into a table, where `damaged_bytes` damages bytes.
CELLS = (
    "", " ", "nan", "NaN", "inf", "-1", "0", "1e400", "1e-400", "1e300", "1,5", "1 000", "0x10", "1_0",
    "abc", "null", "#N/A", '"', "'", "2024-01-01", "01/02/2024", "1704067200", "2024-01-01T00:00:00",
    "\u00b2", "\0", "2024-01-01T00:00:00+05:00", "100.5", "=1+1", "true", "1e5", "+3", "1.5.2",
)  # fmt: skip


def damaged_table(text: str, seed: int) -> str:
    """The text of a CSV with one or two damages of rows, cells, columns or separators."""
    chance = random.Random(seed)
    rows = list(csv.reader(text.splitlines()))
    for _ in range(chance.choice((1, 1, 2))):
        row, column = chance.randrange(len(rows)), chance.randrange(len(rows[0]))
        kind = chance.randrange(8)
        if kind == 0:
            rows[row][min(column, len(rows[row]) - 1)] = chance.choice(CELLS)
        elif kind == 1:
            rows.insert(chance.randrange(len(rows)), list(chance.choice(rows)))
        elif kind == 2:
            other = chance.randrange(len(rows))
            rows[row], rows[other] = rows[other], rows[row]
        elif kind == 3:
            rows[row] = rows[row][: max(1, column)]
        elif kind == 4:
            rows[row] = [*rows[row][:column], chance.choice(CELLS), *rows[row][column:]]
        elif kind == 5:
            rows = [[*cells, cells[min(column, len(cells) - 1)]] for cells in rows]
        elif kind == 6:
            rows = [cells[:column] + cells[column + 1 :] for cells in rows]
        else:
            rows = [[str(index), *cells] for index, cells in enumerate(rows)]
            rows[0][0] = chance.choice(("", "Unnamed: 0", "index", "close", "note"))
    lines = [",".join(map(quoted, row)) for row in rows]
    return chance.choice(("\n", "\n", "\r\n")).join(lines) + chance.choice(("", "\n"))


def quoted(cell: str) -> str:
    """As a CSV has it; a lone quote stays open."""
    return f'"{cell.replace(chr(34), 2 * chr(34))}"' if "," in cell else cell


def read_slowly(path) -> dict[str, list[float]]:
    """Our columns of a CSV by name, as Python reads them; times in seconds."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header, *rows = list(csv.reader(file))
    names = [name.strip().lower() for name in header]
    columns = {}
    for name in COLUMNS:
        if name in names:
            cells = [row[names.index(name)] for row in rows]
            columns[name] = [seconds(cell) if name == "time" else float(cell) for cell in cells]
    return columns


def seconds(text: str) -> float:
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def check_sense(frame: pl.DataFrame) -> None:
    """Bars as they can be, whatever was done to them."""
    assert frame.columns == list(COLUMNS) and frame.null_count().sum_horizontal().item() == 0
    prices, volume = frame.select(PRICES).to_numpy(), frame["volume"].to_numpy()
    assert np.isfinite(prices).all() and (prices > 0).all()
    assert (prices.max(axis=1) == frame["high"].to_numpy()).all()
    assert (prices.min(axis=1) == frame["low"].to_numpy()).all()
    assert (np.abs(np.diff(np.log(prices[:, 3]))) <= np.log(LARGEST_MOVE)).all()
    assert (np.diff(frame["time"].to_numpy()).astype(int) > 0).all()
    assert np.isfinite(volume).all() and (volume >= 0).all()


def read_or_refuse(path) -> pl.DataFrame | None:
    """What is read; None where it is refused in words that name the file."""
    try:
        found = read_bars(path)
        read_source(DataConfig(path=str(path)), "own")
    except ProximaError as told:
        assert str(told).startswith(f"{path}: ")
        return None
    check_sense(found.frame)
    return found.frame


def test_damaged_tables(tmp_path):
    path, counts = tmp_path / "a.csv", {"read": 0, "refused": 0}
    for seed in range(600):
        as_table, as_bytes = damaged_table(TEXT, seed), damaged_bytes(TEXT.encode(), seed)
        path.write_bytes(as_table.encode() if seed % 3 else as_bytes)
        frame = read_or_refuse(path)
        counts["refused" if frame is None else "read"] += 1
        if frame is not None:
            expected = read_slowly(path)
            assert len(expected["close"]) == frame.height, seed
            for name, values in expected.items():
                column = frame[name]
                found = column.dt.timestamp("us") / 1e6 if name == "time" else column
                assert found.to_list() == values, (seed, name)
    assert min(counts.values()) > 30, counts


@pytest.mark.parametrize("compression", ["zstd", "uncompressed"])
def test_damaged_parquet(compression, tmp_path):
    path, counts = tmp_path / "a.parquet", {"read": 0, "refused": 0}
    FRAME.write_parquet(path, compression=compression)
    whole = path.read_bytes()
    for seed in range(300):
        path.write_bytes(damaged_bytes(whole, seed))
        frame = read_or_refuse(path)
        counts["refused" if frame is None else "read"] += 1
        assert frame is None or frame.height == BARS
    assert counts["refused"] > 200, counts
