"""Files of prices are read strictly, and every mistake in one is told with its row and column."""

import gzip
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.trading import csv_lines
from proxima.domains.trading.ohlcv import load_trading_data, read_bars

START = datetime(2024, 1, 1, tzinfo=UTC)


def bars(rows=6, **columns):
    """A sound little market, with some of its columns replaced."""
    close = [100.0 + row for row in range(rows)]
    sound = {
        "time": [START + timedelta(days=row) for row in range(rows)],
        "open": [price - 0.5 for price in close],
        "high": [price + 1 for price in close],
        "low": [price - 1 for price in close],
        "close": close,
        "volume": [10.0 + row for row in range(rows)],
    }
    return sound | columns


def changed(column, *changes):
    """The sound market with values of a column changed: (row from 0, value)."""
    values = bars()[column]
    for row, value in changes:
        values[row] = value
    return bars(**{column: values})


@pytest.fixture(params=["parquet", "csv"])
def written(request, tmp_path):
    """Writes columns as a file of each kind, and returns its path."""

    def write(columns):
        path = tmp_path / f"prices.{request.param}"
        frame = pl.DataFrame(columns, strict=False)
        frame.write_parquet(path) if request.param == "parquet" else frame.write_csv(path)
        return path

    return write


def refusal(path):
    with pytest.raises(ProximaError) as told:
        load_trading_data(path)
    return str(told.value)


def test_a_sound_file_is_read_as_it_is(written):
    frame = load_trading_data(written(bars()))
    assert frame.equals(pl.DataFrame(bars(), schema_overrides={"time": pl.Datetime("us", "UTC")}))


NAN, INF = float("nan"), float("inf")
VALUES = {
    "NaN": (changed("close", (2, NAN)), "row 3, column close: nan is not finite"),
    "infinite": (changed("high", (4, INF)), "row 5, column high: inf is not finite"),
    "minus infinite": (changed("low", (4, -INF)), "row 5, column low: -inf is not finite"),
    "NaN volume": (changed("volume", (0, NAN)), "row 1, column volume: nan is not finite"),
    "empty": (changed("open", (1, None)), "row 2, column open: an empty cell is not a number"),
    "no time": (changed("time", (3, None)), "row 4, column time: an empty cell is not a time"),
    "zero": (changed("low", (1, 0.0)), "row 2, column low: 0 is not a price: must be more than 0"),
    "negative": (changed("low", (1, -3.0)), "row 2, column low: -3 is not a price"),
    "negative volume": (changed("volume", (5, -1.0)), "row 6, column volume: -1 is negative"),
    "unsorted": (
        changed("time", (3, START)),
        "row 4, column time: 2024-01-01T00:00:00Z is earlier than the row before; sort by time",
    ),
    "twice": (
        changed("time", (2, START + timedelta(days=1))),
        "row 3, column time: 2024-01-02T00:00:00Z is there twice",
    ),
    "high below open": (
        changed("open", (2, 103.5)),
        "row 3, column high: 103 is below the bar's open or close",
    ),
    "high below close": (changed("high", (0, 99.9)), "row 1, column high: 99.9 is below"),
    "low above close": (changed("low", (5, 105.2)), "row 6, column low: 105.2 is above the bar's"),
    "low above open": (changed("low", (5, 104.7)), "row 6, column low: 104.7 is above the bar's"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", VALUES)
def test_a_bad_value_is_told_with_row_and_column(mistake, written):
    columns, words = VALUES[mistake]
    path = written(columns)
    said = refusal(path)
    assert f"{path}: {words}" in said
    assert "more)" not in said


def test_every_kind_of_mistake_is_told_once_with_how_many_there_are(written):
    columns = bars(close=[NAN, 101.0, NAN, NAN, 104.0, 105.0], volume=[1.0, 1, 1, -1, 1, -2])
    said = refusal(written(columns)).splitlines()
    assert len(said) == 2
    assert said[0].endswith("(and 2 more)") and "row 1, column close: nan is not finite" in said[0]
    assert said[1].endswith("(and 1 more)") and "row 4, column volume: -1 is negative" in said[1]


def test_names_are_taken_in_any_case_and_others_left_out(written):
    columns = bars()
    renamed = {"Date": columns.pop("time"), "Close": columns.pop("close"), "adjusted": [1] * 6}
    frame = load_trading_data(written(columns | renamed))
    assert frame.columns == ["time", "open", "high", "low", "close", "volume"]
    assert frame["close"].to_list() == bars()["close"]


def test_a_missing_volume_counts_as_nothing(written):
    columns = bars()
    del columns["volume"]
    assert load_trading_data(written(columns))["volume"].to_list() == [0.0] * 6


@pytest.mark.parametrize("column", ["time", "open", "high", "low", "close"])
def test_a_missing_column_is_named(column, written):
    columns = bars()
    del columns[column]
    said = refusal(written(columns))
    assert (
        f"no column {'time or timestamp or date or datetime' if column == 'time' else column};"
        in said
    )
    assert "'volume'" in said


def test_two_columns_that_mean_the_same(written):
    assert "time and Date are both time; keep one" in refusal(written(bars(Date=bars()["time"])))


def test_no_rows(written):
    assert ": has no rows; " in refusal(written(pl.DataFrame(bars()).clear()))


def test_numbers_of_other_types_are_numbers(tmp_path):
    schema = {"open": pl.Float32, "high": pl.Int64, "volume": pl.UInt32}
    columns = bars(open=[100, 101, 102, 103, 104, 105], high=[101, 102, 103, 104, 105, 106])
    pl.DataFrame(columns, strict=False).cast(schema).write_parquet(tmp_path / "a.parquet")
    frame = load_trading_data(tmp_path / "a.parquet")
    assert set(frame.dtypes[1:]) == {pl.Float64}


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"close": ["1"] * 6}, "column close: expected numbers, got String"),
        ({"close": [True] * 6}, "column close: expected numbers, got Boolean"),
        ({"time": [1, 2, 3, 4, 5, 6]}, "column time: expected timestamps, got Int64; store dates"),
    ],
)
def test_columns_of_a_wrong_type(column, words, tmp_path):
    pl.DataFrame(bars(**column)).write_parquet(tmp_path / "a.parquet")
    assert words in refusal(tmp_path / "a.parquet")


TIMES = {
    "a day": ("2024-01-01", "2024-01-02"),
    "minutes": ("2024-01-01 09:30", "2024-01-01 09:31"),
    "seconds": ("2024-01-01 09:30:00", "2024-01-01 09:30:01"),
    "parts of seconds": ("2024-01-01T09:30:00.250", "2024-01-01T09:30:00.500"),
    "UTC": ("2024-01-01T09:30:00Z", "2024-01-01T09:31:00Z"),
    "a zone": ("2024-01-01T09:30:00+02:00", "2024-01-01T09:31:00+02:00"),
}


@pytest.mark.parametrize("form", TIMES)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_times_are_read_as_utc_unless_they_say_otherwise(form, ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    frame = pl.DataFrame(bars(2, time=list(TIMES[form])))
    frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    found = load_trading_data(path)["time"]
    assert found.dtype == pl.Datetime("us", "UTC")
    for stamp, text in zip(found, TIMES[form], strict=True):
        parsed = datetime.fromisoformat(text)
        assert stamp == (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC))


@pytest.mark.parametrize(
    "series",
    [
        pl.Series(["2024-01-01", "2024-01-02"]).str.to_date(),
        pl.Series([0, 86_400_000]).cast(pl.Datetime("ms")),
        pl.Series([0, 86_400_000_000_000]).cast(pl.Datetime("ns")),
        pl.Series([0, 86_400_000_000]).cast(pl.Datetime("us", "America/New_York")),
    ],
    ids=lambda series: str(series.dtype),
)
def test_stored_times_keep_their_instant(series, tmp_path):
    pl.DataFrame(bars(2, time=series)).write_parquet(tmp_path / "a.parquet")
    found = load_trading_data(tmp_path / "a.parquet")["time"]
    assert found.dtype == pl.Datetime("us", "UTC")
    assert found[1] - found[0] == timedelta(days=1)
    assert found[0] in (START, datetime(1970, 1, 1, tzinfo=UTC))


CSV = {
    "text for a number": ("2024-01-02,1,2,1,abc", "row 2, column close: 'abc' is not a number"),
    "a number with commas": (
        '2024-01-02,1,2,1,"1,5"',
        "row 2, column close: '1,5' is not a number",
    ),
    "no time": ("later,1,2,1,1", "row 2, column time: 'later' is not a time such as 2024-01-31"),
    "day or month first": ("01/02/2024,1,2,1,1", "row 2, column time: '01/02/2024' is not a time"),
    "seconds since 1970": ("1704067200,1,2,1,1", "row 2, column time: '1704067200' is not a time"),
    "a short row": ("2024-01-02,1,2", "row 2: has 3 cells, the header has 5; give every row one"),
    "a long row": ("2024-01-02,1,2,1,1,7,8", "row 2: has 7 cells, the header has 5"),
    "an empty line": ("", "row 2: is an empty line; delete it"),
    "an open quote": ('2024-01-02,1,2,1,"1', "row 2: has a quote that is not closed on its line"),
    "a quote in a cell": ('2024-01-02,1,2,1,1"5', "row 2: has a quote that is not closed on its"),
    "a NUL": ("2024-01-02,1,2,1,1\0", "row 2: has a NUL byte, so this is not text"),
    "no UTF-8": (
        "2024-01-02,1,2,1,\udcff1",
        "row 2: is not UTF-8 text (invalid start byte at byte 18)",
    ),
    "more than is counted": ("2024-01-02,1,1e400,1,1", "row 2, column high: inf is not finite"),
    "less than is counted": ("2024-01-02,1,2,1e-400,1", "row 2, column low: 0 is not a price"),
    "a huge price": ("2024-01-02,1,1e300,1,1", "row 2, column high: 1e+300 is not of the prices"),
    "a tiny price": ("2024-01-02,1,2,1e-300,1", "row 2, column low: 1e-300 is not of the prices"),
    "a lost point within a bar": (
        "2024-01-02,1,2000001,1,1",
        "column high: 2e+06 is a million times",
    ),
    "a lost point between bars": (
        "2024-01-02,2e6,2e6,2e6,2e6",
        "row 2, column close: 2e+06 is a mill",
    ),
    "a zone in one row": (
        "2024-01-02T00:00:00+02:00,1,2,1,1",
        "row 2, column time: '2024-01-02T00:00:00+02:00' is not a time such as 2024-01-31 or "
        "2024-01-31T15:00:00Z, with a time zone in every row or in none",
    ),
    "no such day": ("2024-02-30,1,2,1,1", "row 2, column time: '2024-02-30' is not a time"),
    "a year before prices": (
        "0001-01-01,1,2,1,1",
        "row 2, column time: 0001-01-01T00:00:00Z is not of",
    ),
    "a letter": (
        "2024-01-02,1,2,1,1\u00b2",
        "row 2, column close: '1\\xb2' is not a number; write digits",
    ),
}


@pytest.mark.parametrize("mistake", CSV)
def test_csv_mistakes_show_what_is_written(mistake, tmp_path):
    line, words = CSV[mistake]
    path = tmp_path / "a.csv"
    text = f"time,open,high,low,close\n2024-01-01,1,2,1,1\n{line}\n2024-01-03,1,2,1,1\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert f"{path}: {words}" in refusal(path) or words in refusal(path)


def test_dates_with_the_day_or_month_first_are_never_guessed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time,open,high,low,close\n01/02/2024,1,2,1,1\n02/02/2024,1,2,1,1\n")
    assert "row 1, column time: '01/02/2024' is not a time" in refusal(path)


HEADER = "time,open,high,low,close"
ROW = "2024-01-01,1,2,1,1"


def test_what_a_column_that_nobody_asks_for_hides(tmp_path):
    """Read on, an open quote in a note would swallow every row below it, and a short row shift its cells."""
    path = tmp_path / "a.csv"
    later = "".join(f"2024-01-0{day},1,2,1,1,x\n" for day in range(2, 6))
    path.write_text(f'{HEADER},note\n{ROW},"open\n{later}')
    assert "row 1: has a quote that is not closed on its line" in refusal(path)
    path.write_text(f"{HEADER},volume,note\n{ROW},7,x\n2024-01-02,2,1,1,7,8\n")
    assert "row 2: has 6 cells, the header has 7" in refusal(path)
    path.write_text(f'{HEADER},note\n{ROW},"a, ""b"""\n2024-01-02,1,2,1,1,\n')
    assert load_trading_data(path).height == 2


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_marks_and_line_ends_of_other_systems_are_read(ending, mark, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(ending.join([mark + HEADER, ROW, '"2024-01-02","1","2","1","1"']).encode())
    assert load_trading_data(path)["close"].to_list() == [1.0, 1.0]


def test_lines_are_checked_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_lines, "CHUNK", 64)
    path = tmp_path / "a.csv"
    days = pl.DataFrame(bars(200)).with_columns(pl.col("time").dt.strftime("%Y-%m-%d"))
    text = days.write_csv()
    path.write_text(text)
    assert load_trading_data(path).height == 200
    lines = text.splitlines()
    for line in (1, 2, 100, 200):
        path.write_text("\n".join([*lines[:line], lines[line] + ",1", *lines[line + 1 :]]))
        assert f"row {line}: has 7 cells, the header has 6" in refusal(path)


FILES = {
    "empty": (b"", "is empty; a file of prices has a header"),
    "header alone": (f"{HEADER}\n".encode(), "has no rows; a file of prices has one for each bar"),
    "header without an end": (HEADER.encode(), "has no rows"),
    "old line ends": (f"{HEADER}\r{ROW}\r".encode(), "header: has a carriage return"),
    "UTF-16": (f"{HEADER}\n{ROW}\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "gzip": (gzip.compress(HEADER.encode()), "is compressed (gzip); unpack it first"),
    "zip": (b"PK\x03\x04" + bytes(40), "is compressed (zip); unpack it first"),
    "parquet": (b"PAR1" + bytes(40), "is a parquet file; let its name end in .parquet"),
    "semicolons": (
        f"{HEADER}\n{ROW}\n".replace(",", ";").encode(),
        "it has 'time;open;high;low;close'; separate the columns by commas",
    ),
    "a column twice": (
        f"{HEADER},Close\n{ROW},9\n".encode(),
        "close and Close are both close; keep",
    ),
    "the same name twice": (
        f"{HEADER},close\n{ROW},9\n".encode(),
        "close and close are both close",
    ),
    "NUL in the header": (b"time\0,open\n", "header: has a NUL byte"),
    "no text": (b"\xd0\xcf\x11\xe0,1\n2\n", "header: is not UTF-8 text"),
    "an empty first line": (f"\n{HEADER}\n{ROW}\n".encode(), "header: is an empty line"),
    "an open quote in the header": (b'time,"open,high\n', "header: has a quote that is not closed"),
}


@pytest.mark.parametrize("kind", FILES)
def test_csv_files_that_are_none(kind, tmp_path):
    content, words = FILES[kind]
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path}: ") and words in refusal(path)


def test_parquet_files_that_are_none(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame(bars()).write_parquet(path)
    whole = path.read_bytes()
    for content in (b"junk", b"", b"PAR1", whole[:-9], whole[100:], whole[:-8] + bytes(8)):
        path.write_bytes(content)
        said = refusal(path)
        assert said.startswith(f"{path}: cannot be read as parquet: ") and "write it anew" in said
    path.write_bytes(gzip.compress(whole))
    assert "is compressed (gzip)" in refusal(path)


def test_paths_that_are_no_files(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "plain.csv").write_text("")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "prices.xlsx").write_bytes(b"")
    words = {
        tmp_path / "absent.csv": "absent.csv: no such file",
        tmp_path / "plain.csv" / "a.csv": "plain.csv/a.csv: no such file",
        tmp_path: "is a directory; name the .parquet or .csv file in it",
        tmp_path / "folder.csv": "is a directory; name the .parquet or .csv file in it",
        tmp_path / "a.csv.gz": "expected a .parquet or .csv file; unpack it first",
        tmp_path / "prices.xlsx": "expected a .parquet or .csv file",
        tmp_path
        / f"{'a' * 300}.csv": "is no path: a name of 304 bytes is in it, and 255 is the most",
        tmp_path / "a\0.csv": "is no path: it has a character of number zero; leave it out",
    }
    for path, ending in words.items():
        assert refusal(path).endswith(ending) and len(refusal(path)) < 300


def frame_and_notes(path):
    found = read_bars(path)
    return found.frame, " ".join(found.notes)


def test_the_index_that_pandas_writes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f",{HEADER}\n0,{ROW}\n1,2024-01-02,1,2,1,1\n")
    frame, notes = frame_and_notes(path)
    assert frame.height == 2 and notes == "left out: column 1 (without a name)"
    path.write_text(f"Unnamed: 0,{HEADER},Adj Close\n0,{ROW},1\n")
    assert frame_and_notes(path)[1] == "left out: column 1 (Unnamed: 0), Adj Close"
    path.write_text(",open,high,low,close\n2024-01-01,1,2,1,1\n2024-01-02,1,2,1,1\n")
    frame, notes = frame_and_notes(path)
    assert frame["time"][1] == START + timedelta(days=1)
    assert notes == "column 1 (without a name) is taken as the time"
    path.write_text(",open,high,low,close\n0,1,2,1,1\n1,1,2,1,1\n")
    assert "no column time or timestamp" in refusal(path)
    path.write_text(",open,high,low,close\n2024-01-01,1,2,1,1\n7,1,2,1,1\n")
    assert "row 2, column time: '7' is not a time" in refusal(path)


def test_the_index_that_pandas_writes_to_parquet(tmp_path):
    columns = bars()
    path = tmp_path / "a.parquet"
    index = {"__index_level_0__": columns.pop("time")}
    pl.DataFrame(columns | index).write_parquet(path)
    frame, notes = frame_and_notes(path)
    assert frame["time"].to_list() == bars()["time"]
    assert notes == "column 6 (__index_level_0__) is taken as the time"
    pl.DataFrame(bars() | {"__index_level_0__": range(6)}).write_parquet(path)
    assert frame_and_notes(path)[1] == "left out: column 7 (__index_level_0__)"


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_stored_times_of_another_unit_are_told(unit, tmp_path):
    """Nanoseconds that the file calls something else are years that nobody has."""
    path = tmp_path / "a.parquet"
    stamps = [int((START + timedelta(days=row)).timestamp()) * 10**9 for row in range(6)]
    series = pl.Series(stamps, dtype=pl.Int64).cast(pl.Datetime(unit))
    pl.DataFrame(bars(time=series)).write_parquet(path)
    assert "row 1, column time" in refusal(path)
