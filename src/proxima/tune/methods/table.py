"""Configurations that somebody else chose: the rows of a CSV file whose columns are dotted paths."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from proxima.core.errors import ProximaError
from proxima.scenario.search import SearchConfig, Value
from proxima.tune.method import Check, Method, Ranges, Settings
from proxima.tune.methods.whole import WholeTrainings
from proxima.yaml import read_yaml, shown

MOST = 100_000  # rows; as many as search.configs allows


def make_table(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings] = ()
) -> Method:
    """The rows of `config.path`, in their order."""
    assert config.path is not None  # as search_faults has it
    settings = list(drawn) or read_settings(Path(config.path), check)
    return WholeTrainings(config.evaluations, settings)


def read_settings(path: Path, check: Check) -> list[Settings]:
    """A configuration per row; a row that cannot be one is refused with its line."""
    lines = _lines(path)
    _, columns = next(lines, (1, []))
    columns = [column.strip() for column in columns]
    _check_columns(path, columns)
    rows: list[Settings] = []
    for line, cells in lines:
        row = _row(f"{path}: line {line}", columns, cells)
        problem = check(row)
        if problem is not None:
            raise ProximaError(f"{path}: line {line}: {problem}")
        rows.append(row)
        if len(rows) > MOST:
            raise ProximaError(f"{path}: has more than {MOST:,} rows; search in several parts")
    if not rows:
        raise ProximaError(f"{path}: has no rows; write a configuration into each")
    return rows


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of every line that has any, with the number of the line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            yield from ((reader.line_num, cells) for cells in reader if cells)
    except OSError as failure:
        raise ProximaError(f"{path}: cannot be read ({failure.strerror})") from failure
    except UnicodeDecodeError as failure:
        raise ProximaError(f"{path}: is not text in UTF-8; save it as CSV in UTF-8") from failure
    except csv.Error as failure:
        raise ProximaError(f"{path}: line {reader.line_num}: not valid CSV: {failure}") from failure


def _check_columns(path: Path, columns: list[str]) -> None:
    if not all(columns):
        raise ProximaError(f"{path}: its first line must name a dotted path for every column")
    for place, column in enumerate(columns):
        if column in columns[:place]:
            raise ProximaError(f"{path}: the column {column} stands there twice; delete one")


def _row(where: str, columns: list[str], cells: list[str]) -> Settings:
    if len(cells) != len(columns):
        raise ProximaError(f"{where}: has {len(cells)} cells for {len(columns)} columns")
    return {
        column: _value(f"{where}, column {column}", cell.strip())
        for column, cell in zip(columns, cells, strict=True)
    }


def _value(where: str, text: str) -> Value:
    """What the text would be in a scenario's file."""
    value = read_yaml(text, where)
    if isinstance(value, list | dict):
        raise ProximaError(f"{where}: {shown(text)} is not a single value")
    if value is None and text.lower() not in ("null", "~"):  # YAML reads nothing and comments so
        raise ProximaError(f"{where}: {shown(text)} is no value; write null for none")
    return value  # type: ignore[no-any-return]
