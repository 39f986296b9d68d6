"""Files of texts as tables: parquet, CSV or JSON lines, every cell checked; the first bad one is named."""

import json
import math
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
    return _checked(path, _columns_of(path))


def read_columns(path: Path, names: tuple[str, ...]) -> dict[str, list]:
    """Those of the named columns that a parquet or CSV file has, as they stand there; at least one."""
    frame = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    known = [name for name in names if name in frame.columns]
    if not known:
        raise ProximaError(
            f"{path}: has columns {', '.join(frame.columns)}; needs {COLUMNS_WANTED}"
        )
    return {name: frame[name].to_list() for name in known}


def _columns_of(path: Path) -> dict[str, list]:
    """The columns that mean something to us, as they stand in the file."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ProximaError(f"{path}: expected a file ending in {', '.join(ENDINGS)}")
    if ending in (".jsonl", ".ndjson"):
        return _json_columns(path)
    return read_columns(path, (*WORDS, "rating"))


def _json_columns(path: Path) -> dict[str, list]:
    objects = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise ProximaError(f"{path}: cannot be read ({failure})") from failure
    for row, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
        except ValueError as failure:
            raise ProximaError(f"{path}: row {row}: is not JSON ({failure})") from failure
        if not isinstance(content, dict):
            raise ProximaError(f"{path}: row {row}: expected a JSON object")
        objects.append(content)
    known = [name for name in (*WORDS, "rating") if any(name in each for each in objects)]
    if objects and not known:
        raise ProximaError(f"{path}: has columns {', '.join(objects[0])}; needs {COLUMNS_WANTED}")
    return {name: [each.get(name) for each in objects] for name in known}


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
            if not isinstance(cell, str):
                said = "is empty" if cell is None else f"expected text, got {cell!r}"
                raise ProximaError(f"{path}: row {row}, column {name}: {said}")
            if not cell.strip():
                raise ProximaError(f"{path}: row {row}, column {name}: is empty")
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
        said = "is empty" if cell is None else f"expected a number, got {cell!r}"
        raise ProximaError(f"{where}, column rating: {said}")
    return number


def _read_parquet(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as failure:
        raise ProximaError(f"{path}: cannot be read as parquet ({failure})") from failure


def _read_csv(path: Path) -> pl.DataFrame:
    try:
        return pl.read_csv(path, infer_schema=False)  # a text of digits is still a text
    except pl.exceptions.NoDataError:
        raise ProximaError(f"{path}: has no rows; needs {COLUMNS_WANTED}") from None
    except (pl.exceptions.PolarsError, OSError) as failure:
        raise ProximaError(f"{path}: cannot be read as CSV ({failure})") from failure


def write_columns(columns: dict[str, list], path: Path) -> None:
    """Writes a parquet file, whole or not at all."""
    with replacing(path) as temporary:
        pl.DataFrame(columns).write_parquet(temporary)
