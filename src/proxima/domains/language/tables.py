"""Files of texts as tables: parquet, CSV or JSON lines, every cell checked; the first bad one is named."""

import codecs
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
    if path.is_dir():
        raise ProximaError(f"{path}: is a folder; name a file in it")
    if ending not in ENDINGS:
        raise ProximaError(f"{path}: expected a file ending in {', '.join(ENDINGS)}")
    read = _json_columns if ending in (".jsonl", ".ndjson") else read_columns
    return _checked(path, read(path, names))


def read_prompts(path: Path) -> list[str]:
    """Prompts of a file: a text with one in each line, or a table with a column prompt."""
    if path.suffix.lower() != ".txt" or path.is_dir():
        if not path.exists():
            raise ProximaError(f"{path}: no such file")
        if path.is_file() and path.suffix.lower() not in ENDINGS:
            raise ProximaError(f"{path}: expected a file ending in .txt, {', '.join(ENDINGS)}")
        prompts = read_table(path).prompt
        if prompts is None:
            raise ProximaError(f"{path}: has no column prompt; name the column of prompts so")
        return prompts
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode()
    except OSError as failure:
        raise ProximaError(f"{path}: cannot be read ({failure})") from failure
    except UnicodeDecodeError:
        raise ProximaError(f"{path}: {_first_broken_line(path)}") from None
    lines = [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")]
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise ProximaError(f"{path}: line {number} is empty; give each line a prompt")
    return lines


def read_columns(path: Path, names: tuple[str, ...]) -> dict[str, list]:
    """Those of the named columns that a parquet or CSV file has, as they stand there; at least one."""
    kind = "parquet" if path.suffix.lower() == ".parquet" else "CSV"
    try:
        # in a CSV, a text of digits is still a text
        read = pl.read_parquet if kind == "parquet" else partial(pl.read_csv, infer_schema=False)
        frame = read(path, glob=False)  # brackets and stars in a name are letters
        known = [name for name in names if name in frame.columns]
        columns = {name: frame[name].to_list() for name in known}
    except pl.exceptions.NoDataError:
        raise ProximaError(f"{path}: has no rows; needs {COLUMNS_WANTED}") from None
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as failure:  # a panic of polars' Rust part is no Exception
        where = "" if kind == "parquet" else _first_broken_line(path)
        raise ProximaError(f"{path}: cannot be read as {kind} ({where or failure})") from failure
    if not known:
        raise ProximaError(f"{path}: {_columns_there(frame.columns)}; needs {COLUMNS_WANTED}")
    return columns


def _json_columns(path: Path, names: tuple[str, ...]) -> dict[str, list]:
    rows = []
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as failure:
        raise ProximaError(f"{path}: cannot be read ({failure})") from failure
    # Only at line feeds: what else Python takes for the end of a line may stand within a text.
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        if content:
            rows.append(_json_row(line, f"{path}: row {number}"))
    known = [name for name in names if any(name in row for row in rows)]
    if rows and not known:
        raise ProximaError(f"{path}: {_columns_there(list(rows[0]))}; needs {COLUMNS_WANTED}")
    return {name: [row.get(name) for row in rows] for name in known}


def _json_row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as failure:
        raise ProximaError(f"{where}: is not UTF-8 ({failure.reason})") from failure
    except RecursionError as failure:
        raise ProximaError(f"{where}: is nested too deeply") from failure
    except ValueError as failure:
        raise ProximaError(f"{where}: is not JSON ({failure})") from failure
    if not isinstance(row, dict):
        raise ProximaError(f"{where}: expected a JSON object")
    return row


def _first_broken_line(path: Path) -> str:
    """Where a file stops being UTF-8, in words; nothing where it does not."""
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError as failure:
        return f"line {failure.object[: failure.start].count(10) + 1} is not UTF-8"
    except OSError:
        pass
    return ""


def _columns_there(names: Sequence[str]) -> str:
    if not names:
        return "has no columns"
    shown = [*names[:10], *(["…"] if len(names) > 10 else [])]
    return f"has columns {', '.join(map(short, shown))}"


def short(text: str, most: int = 80) -> str:
    """What stands in a file as an error says it: cut where it is long."""
    return text if len(text) <= most else f"{text[:most]}…"


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
            where = f"{path}: row {row}, column {name}"
            if not isinstance(cell, str) or not cell.strip():
                empty = cell is None or isinstance(cell, str)
                fault = "is empty" if empty else f"expected text, got {short(repr(cell))}"
                raise ProximaError(f"{where}: {fault}")
            check_unicode(cell, where)
    if "rating" in columns:
        cells = enumerate(columns["rating"], start=1)
        columns["rating"] = [_rating(cell, f"{path}: row {row}") for row, cell in cells]
    return Table(rows=list(range(1, count + 1)), **columns)


def _rating(cell: object, where: str) -> float:
    try:
        number = float(cell) if isinstance(cell, int | float | str | Decimal) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    # Python's own numbers may have underscores; those of tables do not
    odd = isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell)
    if odd or not math.isfinite(number):
        empty = cell is None or (isinstance(cell, str) and not cell.strip())
        fault = "is empty" if empty else f"expected a number, got {short(repr(cell))}"
        raise ProximaError(f"{where}, column rating: {fault}")
    return number


def check_unicode(text: str, where: str) -> None:
    """Refuses half characters, which come of bytes that are no UTF-8 and of JSON's escapes."""
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise ProximaError(
            f"{where}: character {failure.start} is no Unicode ({text[failure.start]!a}); remove it"
        ) from None


def write_columns(columns: dict[str, list], path: Path) -> None:
    """Writes a parquet file, whole or not at all."""
    with replacing(path) as temporary:
        pl.DataFrame(columns).write_parquet(temporary)
