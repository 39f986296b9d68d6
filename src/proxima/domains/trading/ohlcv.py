"""Reading prices, strictly: whatever is wrong with a file is told with its row and column.

A file has a time, open, high, low and close for every bar, and may have a volume. Names are taken in any
case; the time may be called time, timestamp, date or datetime, and is UTC unless it says otherwise. A file
without a volume gets one of 0. Other columns are left out.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import polars as pl

from proxima.core.errors import ProximaError

TIME_NAMES = ("time", "timestamp", "date", "datetime")
PRICES = ("open", "high", "low", "close")
COLUMNS = ("time", *PRICES, "volume")
MOST_NAMES = 12  # of columns, in a message
UTC = pl.Datetime("us", "UTC")


def load_trading_data(path: str | Path) -> pl.DataFrame:
    """The bars of a parquet or CSV file: time (UTC, µs), then open, high, low, close, volume (float64)."""
    path = Path(path)
    readers = {".parquet": _read_parquet, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise ProximaError(f"{path}: expected a .parquet or .csv file")
    if not path.exists():
        raise ProximaError(f"{path}: no such file")
    if not path.is_file():
        raise ProximaError(f"{path}: is not a regular file")
    try:
        frame = readers[path.suffix.lower()](path)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as failure:
        reason = str(failure).strip().splitlines()[0]
        raise ProximaError(f"{path}: cannot be read as {path.suffix[1:]}: {reason}") from failure
    if "volume" not in frame.columns:
        frame = frame.with_columns(volume=pl.lit(0.0))
    if frame.is_empty():
        raise ProximaError(f"{path}: has no rows")
    problems = _problems(frame, path)
    if problems:
        raise ProximaError("\n".join(f"{path}: {problem}" for problem in problems))
    return frame.select(COLUMNS)


def _read_parquet(path: Path) -> pl.DataFrame:
    scan = pl.scan_parquet(path, glob=False)
    schema = scan.collect_schema()
    wanted = []
    for column, name in _find_columns(path, schema.names()).items():
        if column == "time":
            wanted.append(_time(path, name, schema[name]))
        elif schema[name].is_numeric():
            wanted.append(pl.col(name).cast(pl.Float64).alias(column))
        else:
            raise ProximaError(f"{path}: column {name}: expected numbers, got {schema[name]}")
    # Each in one piece, so that NumPy can view it, and by itself, so that only one is there twice.
    columns = [scan.select(column).collect().to_series().rechunk() for column in wanted]
    return pl.DataFrame(columns)


def _read_csv(path: Path) -> pl.DataFrame:
    """What is no number comes out as null, so that the row can be named with what is written there."""
    header = pl.scan_csv(path, infer_schema=False, glob=False).collect_schema().names()
    names = _find_columns(path, header)
    time = names.pop("time")
    kinds = {time: pl.String, **dict.fromkeys(names.values(), pl.Float64)}
    scan = pl.scan_csv(
        path, schema_overrides=kinds, infer_schema=False, ignore_errors=True, glob=False
    )
    numbers = (pl.col(name).alias(column) for column, name in names.items())
    return scan.select(_time(path, time, pl.String()), *numbers).collect().rechunk()


def _find_columns(path: Path, header: list[str]) -> dict[str, str]:
    """The file's name for each of our columns; volume may be missing."""
    names: dict[str, str] = {}
    for column in COLUMNS:
        accepted = TIME_NAMES if column == "time" else (column,)
        matches = [name for name in header if name.strip().lower() in accepted]
        if len(matches) > 1:
            raise ProximaError(f"{path}: {' and '.join(matches)} are both {column}; keep one")
        if matches:
            names[column] = matches[0]
        elif column != "volume":
            known = ", ".join(map(ascii, header[:MOST_NAMES]))
            raise ProximaError(f"{path}: no column {' or '.join(accepted)}; it has {known}")
    return names


def _time(path: Path, name: str, kind: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(kind, pl.String):
        # the year first: 01/02/2024 is one day here and another there
        text = column.str.strip_chars()
        text = pl.when(text.str.contains(r"^\d{4}\D")).then(text)
        column = text.str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
    elif isinstance(kind, pl.Date) or (isinstance(kind, pl.Datetime) and kind.time_zone is None):
        column = column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    elif not isinstance(kind, pl.Datetime):
        raise ProximaError(
            f"{path}: column {name}: expected timestamps, got {kind}; store dates, times or text such "
            "as 2024-01-31T15:00:00Z"
        )
    return column.dt.convert_time_zone("UTC").cast(UTC).alias("time")


def _checks() -> Iterator[tuple[str, pl.Expr, str]]:
    """What must not be: the column, an expression that is true for a bad row, what is wrong with it."""
    time = pl.col("time")
    yield "time", time.is_null(), "is not a time such as 2024-01-31 or 2024-01-31T15:00:00Z"
    yield "time", time < time.shift(1), "is earlier than the row before; sort by time"
    yield "time", time == time.shift(1), "is there twice; keep one row for each time"
    for name in (*PRICES, "volume"):
        column = pl.col(name)
        yield name, column.is_null(), "is not a number"
        yield name, ~column.is_finite(), "is not finite"
        if name == "volume":
            yield name, column < 0, "is negative"
        else:
            yield name, column <= 0, "is not a price: must be more than 0"
    finite = pl.all_horizontal(pl.col(name).is_finite() for name in PRICES)
    above, below = pl.max_horizontal("open", "close"), pl.min_horizontal("open", "close")
    yield "high", finite & (pl.col("high") < above), "is below the bar's open or close"
    yield "low", finite & (pl.col("low") > below), "is above the bar's open or close"


def _problems(frame: pl.DataFrame, path: Path) -> list[str]:
    """A line for each kind of mistake: its first row, what stands there, and how many more there are."""
    checks = list(_checks())
    # the counts of all checks in one pass; rows are looked for only where there is something to find
    counts = frame.select(bad.sum().alias(str(index)) for index, (_, bad, _) in enumerate(checks))
    problems = []
    for (column, bad, words), count in zip(checks, counts.row(0), strict=True):
        if count:
            row = frame.select(bad.fill_null(False).arg_max()).item()
            value = _written(frame, path, row, column)
            more = f" (and {count - 1:,} more)" if count > 1 else ""
            problems.append(f"row {row + 1:,}, column {column}: {value} {words}{more}")
    return problems


def _written(frame: pl.DataFrame, path: Path, row: int, column: str) -> str:
    """What a file has in a row (from 0) of one of our columns."""
    value = frame[row, column]
    if value is None and path.suffix.lower() == ".csv":
        scan = pl.scan_csv(path, infer_schema=False, glob=False)
        name = _find_columns(path, scan.collect_schema().names())[column]
        value = scan.select(name).slice(row, 1).collect().item()
        return "an empty cell" if value is None else repr(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return "an empty cell" if value is None else f"{value:g}"
