"""Files of prices are read strictly, and every mistake in one is told with its row and column."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.trading.ohlcv import load_trading_data

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
    assert said[0].endswith("row 1, column close: nan is not finite (and 2 more)")
    assert said[1].endswith("row 4, column volume: -1 is negative (and 1 more)")


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
    assert refusal(written(pl.DataFrame(bars()).clear())).endswith(": has no rows")


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
    "a short row": ("2024-01-02,1,2", "row 2, column low: an empty cell is not a number"),
    "a long row": ("2024-01-02,1,2,1,1,7,8", "cannot be read as csv"),
}


@pytest.mark.parametrize("mistake", CSV)
def test_csv_mistakes_show_what_is_written(mistake, tmp_path):
    line, words = CSV[mistake]
    path = tmp_path / "a.csv"
    path.write_text(f"time,open,high,low,close\n2024-01-01,1,2,1,1\n{line}\n")
    assert words in refusal(path)


def test_dates_with_the_day_or_month_first_are_never_guessed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time,open,high,low,close\n01/02/2024,1,2,1,1\n02/02/2024,1,2,1,1\n")
    assert "row 1, column time: '01/02/2024' is not a time" in refusal(path)


def test_files_that_are_none(tmp_path):
    for name, content in {"a.parquet": b"junk", "b.csv": b"", "c.parquet": b""}.items():
        (tmp_path / name).write_bytes(content)
        assert f"{tmp_path / name}: cannot be read as {name[2:]}: " in refusal(tmp_path / name)
    assert refusal(tmp_path / "absent.csv").endswith("absent.csv: no such file")
    (tmp_path / "folder.csv").mkdir()
    assert refusal(tmp_path / "folder.csv").endswith("is not a regular file")
    assert refusal(tmp_path / "prices.xlsx").endswith("expected a .parquet or .csv file")
