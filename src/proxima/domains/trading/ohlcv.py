"""Reading prices, strictly: whatever is wrong with a file is told with its row and column.

A file has a time, open, high, low and close for every bar, and may have a volume. Names are taken in any
case; the time may be called time, timestamp, date or datetime, or be the column without a name that pandas
writes for its index, and is UTC unless it says otherwise. A file without a volume gets one of 0. Other
columns are left out, which is said.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from proxima.core.errors import ProximaError
from proxima.core.paths import usable_path
from proxima.domains.trading.csv_lines import cell_at, check_lines, read_header

TIME_NAMES = ("time", "timestamp", "date", "datetime")
INDEX_NAMES = ("", "index", "unnamed: 0", "__index_level_0__")  # pandas' index in CSV and parquet
PRICES = ("open", "high", "low", "close")
COLUMNS = ("time", *PRICES, "volume")
OWN_NAMES = {name: name for name in COLUMNS}
MOST_NAMES = 12  # of columns, in a message
STAMP = pl.Datetime("us", "UTC")
YEAR_FIRST = r"^\s*\d{4}\D"  # 01/02/2024 is one day here and another there
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_TIME, LAST_TIME = datetime(1600, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
# So far that sums over windows, and squares of volumes, are numbers; long synthetic prices grow large.
SMALLEST_PRICE, LARGEST_PRICE, LARGEST_VOLUME = 1e-290, 1e290, 1e30
# Factor between two prices of a bar, or two closes: more is a digit or a point lost.
LARGEST_MOVE = 1e6
# What other files begin with that are sometimes called .csv or .parquet.
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
PACKED_ENDINGS = (".gz", ".zip", ".bz2", ".xz", ".zst")


class Bars(NamedTuple):
    """The bars of a file, and what is to be said of it."""

    frame: pl.DataFrame  # time (UTC, µs), then open, high, low, close, volume (float64)
    has_volume: bool
    notes: tuple[str, ...]  # sentences for the user


Notes = tuple[str, ...]  # sentences for the user


class Columns(NamedTuple):
    """Where our columns are in a file."""

    places: dict[str, int]  # volume may be missing
    notes: Notes


# A file, its header, and whether a column without a name holds times → where the wanted columns are.
Find = Callable[[Path | str, list[str], Callable[[int], bool]], Columns]


def load_trading_data(path: str | Path) -> pl.DataFrame:
    """The bars of a parquet or CSV file: time (UTC, µs), then open, high, low, close, volume (float64)."""
    return read_bars(path).frame


def read_bars(path: str | Path) -> Bars:
    """The bars of a parquet or CSV file, and what is to be said of it."""
    path = Path(path)
    frame, notes = read_table(path, find_columns)
    has_volume = "volume" in frame.columns
    if not has_volume:
        frame = frame.with_columns(volume=pl.lit(0.0))
    problems = find_problems(frame, partial(written, frame, path, find_columns))
    if problems:
        raise ProximaError("\n".join(f"{path}: {problem}" for problem in problems))
    return Bars(frame.select(COLUMNS), has_volume, notes)


def read_table(path: Path, find: Find, text: Sequence[str] = ()) -> tuple[pl.DataFrame, Notes]:
    """The columns that `find` looks for in a parquet or CSV file: a time, numbers, and text where it says so.

    At least a row; what is no number or no time is null.
    """
    readers = {".parquet": _read_parquet, ".csv": _read_csv}
    kind = path.suffix.lower()
    _check_is_file(path)
    if kind not in readers:
        remedy = "; unpack it first" if kind in PACKED_ENDINGS else ""
        raise ProximaError(f"{path}: expected a .parquet or .csv file{remedy}")
    try:
        _check_content(path)
        frame, notes = readers[kind](path, find, text)
    # A damaged file of parquet may also break polars' own assumptions, which is no Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as failure:
        reason = (str(failure).strip().splitlines() or [type(failure).__name__])[0]
        raise ProximaError(
            f"{path}: cannot be read as {kind[1:]}: {reason}; it is damaged or something else, "
            "write it anew"
        ) from failure
    if frame.is_empty():
        raise ProximaError(f"{path}: has no rows; a file of prices has one for each bar")
    return frame, notes


def _check_is_file(path: Path) -> None:
    usable_path(str(path))
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as failure:
        raise ProximaError(f"{path}: no such file") from failure
    except OSError as failure:
        raise ProximaError(f"{path}: cannot be read ({failure.strerror})") from failure
    if stat.S_ISDIR(mode):
        raise ProximaError(f"{path}: is a directory; name the .parquet or .csv file in it")
    if not stat.S_ISREG(mode):  # a pipe might never end
        raise ProximaError(f"{path}: is not a regular file")


def _check_content(path: Path) -> None:
    """An error where a file begins as one of another kind does."""
    with path.open("rb") as file:
        head = file.read(8)
    for mark, name in COMPRESSED.items():
        if head.startswith(mark):
            raise ProximaError(f"{path}: is compressed ({name}); unpack it first")
    if head.startswith(b"PAR1") and path.suffix.lower() == ".csv":
        raise ProximaError(f"{path}: is a parquet file; let its name end in .parquet")


def _read_parquet(path: Path, find: Find, text: Sequence[str]) -> tuple[pl.DataFrame, Notes]:
    scan = pl.scan_parquet(path, glob=False)
    schema = scan.collect_schema()
    names, kinds = schema.names(), schema.dtypes()

    def holds_time(place: int) -> bool:
        return kinds[place].is_temporal() or isinstance(kinds[place], pl.String)

    places, notes = find(path, names, holds_time)
    wanted = []
    for column, place in places.items():
        name, kind = names[place], kinds[place]
        if column == "time":
            wanted.append(time_expression(path, name, kind))
        elif column in text:
            wanted.append(pl.col(name).cast(pl.String).alias(column))
        elif kind.is_numeric():
            wanted.append(pl.col(name).cast(pl.Float64).alias(column))
        else:
            raise ProximaError(
                f"{path}: column {name}: expected numbers, got {kind}; store the column as float64"
            )
    # Each in one piece, so that NumPy can view it, and by itself, so that only one is there twice.
    columns = [scan.select(column).collect().to_series().rechunk() for column in wanted]
    return pl.DataFrame(columns), notes


def _read_csv(path: Path, find: Find, text: Sequence[str]) -> tuple[pl.DataFrame, Notes]:
    """What is no number comes out as null, so that the row can be named with what is written there."""
    header = read_header(path)
    places, notes = _csv_columns(path, header, find)
    check_lines(path, len(header))
    # By their places: a name may be there twice among columns that nobody asks for.
    names = [str(place) for place in range(len(header))]
    kinds = dict.fromkeys(names, pl.String()) | {
        names[place]: pl.Float64()
        for column, place in places.items()
        if column != "time" and column not in text
    }
    scan = pl.scan_csv(
        path, has_header=False, skip_lines=1, schema=kinds, ignore_errors=True, glob=False
    )
    wanted = [
        time_expression(path, names[place], pl.String())
        if column == "time"
        else pl.col(names[place])
        for column, place in places.items()
    ]
    return scan.select(wanted).collect().rechunk().rename(_renamed(names, places)), notes


def _renamed(names: Sequence[str], places: dict[str, int]) -> dict[str, str]:
    return {names[place]: column for column, place in places.items() if column != "time"}


def _csv_columns(path: Path, header: list[str], find: Find) -> Columns:
    def holds_time(place: int) -> bool:
        try:
            cell = cell_at(path, 0, place)
        except (
            StopIteration,
            IndexError,
            UnicodeDecodeError,
        ):  # is told when the lines are checked
            return True
        return pl.Series([cell]).str.contains(YEAR_FIRST).item()

    return find(path, header, holds_time)


def find_columns(path: Path | str, header: list[str], holds_time: Callable[[int], bool]) -> Columns:
    """Where each of our columns is; volume may be missing, and an index without a name may be the time."""
    places: dict[str, int] = {}
    for column in COLUMNS:
        place = find_column(path, header, column, holds_time)
        if place is not None:
            places[column] = place
    notes = time_notes(header, places["time"])
    left = [place for place in range(len(header)) if place not in places.values()]
    if left:
        shown = ", ".join(called(header, place) for place in left[:MOST_NAMES])
        more = f" and {len(left) - MOST_NAMES} more" if len(left) > MOST_NAMES else ""
        notes.append(f"left out: {shown}{more}")
    return Columns(places, tuple(notes))


def find_column(
    path: Path | str, header: list[str], column: str, holds_time: Callable[[int], bool]
) -> int | None:
    """Where one of our columns is; None where there is no volume, and an error where there is no other."""
    names = [name.strip().lower() for name in header]
    accepted = TIME_NAMES if column == "time" else (column,)
    matches = [place for place, name in enumerate(names) if name in accepted]
    if not matches and column == "time":
        indices = [place for place, name in enumerate(names) if name in INDEX_NAMES]
        matches = [place for place in indices if holds_time(place)]
    if len(matches) > 1:
        both = " and ".join(called(header, place) for place in matches)
        raise ProximaError(f"{path}: {both} are both {column}; keep one")
    if not matches and column != "volume":
        known = ", ".join(map(ascii, header[:MOST_NAMES]))
        hint = "" if len(header) > 1 else "; separate the columns by commas"
        raise ProximaError(f"{path}: no column {' or '.join(accepted)}; it has {known}{hint}")
    return matches[0] if matches else None


def time_notes(header: Sequence[str], place: int) -> list[str]:
    """What is to be said of the column that is taken as the time."""
    if header[place].strip().lower() not in INDEX_NAMES:
        return []
    return [f"{called(header, place)} is taken as the time"]


def called(header: Sequence[str], place: int) -> str:
    """What a column is called in messages."""
    name = header[place].strip()
    if name.lower() in INDEX_NAMES:
        return f"column {place + 1} ({name or 'without a name'})"
    return name


def time_expression(path: Path | str, name: str, kind: pl.DataType) -> pl.Expr:
    """A column of times as UTC, null where one cannot be read."""
    column = pl.col(name)
    if isinstance(kind, pl.String):
        text = pl.when(column.str.contains(YEAR_FIRST)).then(column.str.strip_chars())
        column = text.str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
    elif isinstance(kind, pl.Date) or (isinstance(kind, pl.Datetime) and kind.time_zone is None):
        column = column.cast(pl.Datetime("us"), strict=False).dt.replace_time_zone("UTC")
    elif not isinstance(kind, pl.Datetime):
        raise ProximaError(
            f"{path}: column {name}: expected timestamps, got {kind}; store dates, times or text such "
            "as 2024-01-31T15:00:00Z"
        )
    # not strict: a time beyond all years becomes null, and its row is told
    return column.dt.convert_time_zone("UTC").cast(STAMP, strict=False).alias("time")


def _checks() -> Iterator[tuple[str, pl.Expr, str]]:
    """What must not be: the column, an expression that is true for a bad row, what is wrong with it."""
    time = pl.col("time")
    yield (
        "time",
        time.is_null(),
        "is not a time such as 2024-01-31 or 2024-01-31T15:00:00Z, with a time zone in every row or in none",
    )
    yield (
        "time",
        ~time.is_between(FIRST_TIME, LAST_TIME),
        f"is not of the years {FIRST_TIME.year} to {LAST_TIME.year}; mend the date or its unit",
    )
    yield "time", time < time.shift(1), "is earlier than the row before; sort by time"
    yield "time", time == time.shift(1), "is there twice; keep one row for each time"
    for name in (*PRICES, "volume"):
        column = pl.col(name)
        yield name, column.is_null(), "is not a number; write digits with a point, such as 1234.5"
        yield name, ~column.is_finite(), "is not finite; mend the value or leave the bar out"
        if name == "volume":
            yield name, column < 0, "is negative; a volume is 0 or more"
            too_large = column.is_finite() & (column > LARGEST_VOLUME)
            yield name, too_large, f"is more than {LARGEST_VOLUME:g}; mend the value or its unit"
        else:
            yield (
                name,
                column <= 0,
                "is not a price: must be more than 0; mend it or leave the bar out",
            )
            small, large = column < SMALLEST_PRICE, column > LARGEST_PRICE
            yield (
                name,
                column.is_finite() & (column > 0) & (small | large),
                f"is not of the prices {SMALLEST_PRICE:g} to {LARGEST_PRICE:g}; mend the value or its unit",
            )
    yield from _bar_checks()


def _bar_checks() -> Iterator[tuple[str, pl.Expr, str]]:
    """What must not be between prices that are each right."""
    finite = pl.all_horizontal(pl.col(name).is_finite() & (pl.col(name) > 0) for name in PRICES)
    above, below = pl.max_horizontal("open", "close"), pl.min_horizontal("open", "close")
    high, low, close = pl.col("high"), pl.col("low"), pl.col("close")
    yield "high", finite & (high < above), "is below the bar's open or close; mend the bar"
    yield "low", finite & (low > below), "is above the bar's open or close; mend the bar"
    lost = "a digit or the decimal point is lost; mend the value"
    yield "high", finite & (high > LARGEST_MOVE * low), f"is a million times the bar's low: {lost}"
    move = (close / close.shift(1)).log().abs() > pl.lit(LARGEST_MOVE).log()
    both = finite & finite.shift(1)
    yield "close", both & move, f"is a million times the row before, or a millionth: {lost}"


def find_problems(
    frame: pl.DataFrame,
    written: Callable[[int, str], str],
    rows_before: int = 0,
    names: Mapping[str, str] = OWN_NAMES,
) -> list[str]:
    """A line for each kind of mistake: its first row, what stands there, and how many more there are.

    `written` says what stands in a row (from 0) of the frame and a column. `names` has the columns to check,
    and what each is called in the file.
    """
    checks = [check for check in _checks() if check[0] in names]
    # the counts of all checks in one pass; rows are looked for only where there is something to find
    counts = frame.select(bad.sum().alias(str(index)) for index, (_, bad, _) in enumerate(checks))
    problems = []
    for (column, bad, words), count in zip(checks, counts.row(0), strict=True):
        if count:
            row = frame.select(bad.fill_null(False).arg_max()).item()
            more = f" (and {count - 1:,} more)" if count > 1 else ""
            where = f"row {rows_before + row + 1:,}, column {names[column]}"
            problems.append(f"{where}: {written(row, column)} {words}{more}")
    return problems


def written(frame: pl.DataFrame, path: Path, find: Find, row: int, column: str) -> str:
    """What a file has in a row (from 0) of one of the columns that `find` looks for."""
    if path.suffix.lower() == ".csv" and frame[column].is_null()[row]:
        cell = cell_at(path, row, _csv_columns(path, read_header(path), find).places[column])
        return ascii(cell) if cell else "an empty cell"
    return value_words(frame, row, column)


def value_words(frame: pl.DataFrame, row: int, column: str) -> str:
    """What a frame has in a row (from 0) and a column."""
    # of a time the microseconds, which may be beyond all years
    value = frame[column].to_physical()[row]
    if value is None:
        return "an empty cell"
    if column != "time":
        return f"{value:g}"
    try:
        return (EPOCH + timedelta(microseconds=value)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{value:,} µs since 1970"
