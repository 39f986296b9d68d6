"""Files of texts as tables: parquet, CSV or JSON lines, every cell checked; the first bad one is named."""

import json
import math
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from proxima.core.errors import ProximaError
from proxima.files import replacing

WORDS = ("text", "prompt", "chosen", "rejected")
ENDINGS = (".parquet", ".csv", ".jsonl", ".ndjson")
COLUMNS_WANTED = "columns text and rating, or prompt, chosen and rejected, or prompt alone"


class Table(NamedTuple):
    """Rows of a file; a column that it does not have is None."""

    rows: list[int]  # their numbers in the file, from 1
    text: list[str] | None = None
    rating: list[float] | None = None
    prompt: list[str] | None = None
    chosen: list[str] | None = None
    rejected: list[str] | None = None


def read_table(path: Path) -> Table:
    """The rows of a file of the user's."""
    ending, names = path.suffix.lower(), (*WORDS, "rating")
    if ending not in ENDINGS:
        raise ProximaError(f"{path}: expected a file ending in {', '.join(ENDINGS)}")
    read = _json_columns if ending in (".jsonl", ".ndjson") else read_columns
    return _checked(path, read(path, names))


def read_columns(path: Path, names: tuple[str, ...]) -> dict[str, list]:
    """Those of the named columns that a parquet or CSV file has, as they stand there; at least one."""
    kind = "parquet" if path.suffix.lower() == ".parquet" else "CSV"
    try:
        # in a CSV, a text of digits is still a text
        read = pl.read_parquet if kind == "parquet" else partial(pl.read_csv, infer_schema=False)
        frame = read(path)
    except pl.exceptions.NoDataError:
        raise ProximaError(f"{path}: has no rows; needs {COLUMNS_WANTED}") from None
    except (pl.exceptions.PolarsError, OSError) as failure:
        raise ProximaError(f"{path}: cannot be read as {kind} ({failure})") from failure
    known = [name for name in names if name in frame.columns]
    if not known:
        raise ProximaError(
            f"{path}: has columns {', '.join(frame.columns)}; needs {COLUMNS_WANTED}"
        )
    return {name: frame[name].to_list() for name in known}


def _json_columns(path: Path, names: tuple[str, ...]) -> dict[str, list]:
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise ProximaError(f"{path}: cannot be read ({failure})") from failure
    for number, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
        except ValueError as failure:
            raise ProximaError(f"{path}: row {number}: is not JSON ({failure})") from failure
        if not isinstance(content, dict):
            raise ProximaError(f"{path}: row {number}: expected a JSON object")
        rows.append(content)
    known = [name for name in names if any(name in row for row in rows)]
    if rows and not known:
        raise ProximaError(f"{path}: has columns {', '.join(rows[0])}; needs {COLUMNS_WANTED}")
    return {name: [row.get(name) for row in rows] for name in known}


def _checked(path: Path, columns: dict[str, list]) -> Table:
    """The table, every cell of the right kind; the first that is not is named."""
    count = max(map(len, columns.values()), default=0)
    if count == 0:
        raise ProximaError(f"{path}: has no rows; needs {COLUMNS_WANTED}")
    for needed, needs in (("rating", "text"), ("chosen", "rejected"), ("rejected", "chosen")):
        if needed in columns and needs not in columns:
            raise ProximaError(f"{path}: has a column {needed} but none named {needs}")
    for name in WORDS:
        for row, cell in enumerate(columns.get(name, []), start=1):
            if not isinstance(cell, str) or not cell.strip():
                empty = cell is None or isinstance(cell, str)
                fault = "is empty" if empty else f"expected text, got {cell!r}"
                raise ProximaError(f"{path}: row {row}, column {name}: {fault}")
    if "rating" in columns:
        cells = enumerate(columns["rating"], start=1)
        columns["rating"] = [_rating(cell, f"{path}: row {row}") for row, cell in cells]
    return Table(rows=list(range(1, count + 1)), **columns)


def _rating(cell: object, where: str) -> float:
    try:
        number = float(cell) if isinstance(cell, int | float | str) else math.nan
    except ValueError:
        number = math.nan
    if isinstance(cell, bool) or not math.isfinite(number):
        fault = "is empty" if cell is None else f"expected a number, got {cell!r}"
        raise ProximaError(f"{where}, column rating: {fault}")
    return number


def write_columns(columns: dict[str, list], path: Path) -> None:
    """Writes a parquet file, whole or not at all."""
    with replacing(path) as temporary:
        pl.DataFrame(columns).write_parquet(temporary)
