"""Files of several assets are read in both shapes, and refused with row, column and remedy."""

import numpy as np
import polars as pl
import pytest
from panels_of_prices import long, wide

from proxima.core.errors import ProximaError
from proxima.domains.trading.portfolio.panel import read_panel


def written(frame, tmp_path, name="prices.parquet"):
    path = tmp_path / name
    frame.write_parquet(path) if name.endswith("parquet") else frame.write_csv(path)
    return path


def refused(frame, tmp_path, name="prices.csv"):
    with pytest.raises(ProximaError) as caught:
        read_panel(written(frame, tmp_path, name))
    return str(caught.value)


@pytest.mark.parametrize("name", ["prices.parquet", "prices.csv"])
def test_a_wide_file_is_closes_alone(tmp_path, name):
    frame = wide()
    panel = read_panel(written(frame, tmp_path, name))
    assert panel.assets == ("A", "B", "C") and panel.closes_only and not panel.has_volume
    for asset, bars in zip(panel.assets, panel.frames, strict=True):
        assert np.array_equal(bars["close"].to_numpy(), frame[asset].to_numpy())
        assert np.array_equal(bars["open"].to_numpy(), bars["close"].to_numpy())


@pytest.mark.parametrize("name", ["prices.parquet", "prices.csv"])
def test_a_long_file_is_bars_of_each_asset(tmp_path, name):
    frame = long(assets=("B", "A"))
    panel = read_panel(written(frame, tmp_path, name))
    assert panel.assets == ("A", "B") and not panel.closes_only and panel.has_volume
    for asset, bars in zip(panel.assets, panel.frames, strict=True):
        of_asset = frame.filter(pl.col("symbol") == asset)
        for column in ("open", "high", "low", "close", "volume"):
            assert np.array_equal(bars[column].to_numpy(), of_asset[column].to_numpy())


def test_both_shapes_of_the_same_values_differ_only_in_what_they_know(tmp_path):
    frame = long()
    table = frame.pivot(on="symbol", index="time", values="close")
    one, other = read_panel(written(frame, tmp_path)), read_panel(written(table, tmp_path, "w.csv"))
    assert one.assets == other.assets and one.digest() != other.digest()
    for first, second in zip(one.frames, other.frames, strict=True):
        assert np.array_equal(first["close"].to_numpy(), second["close"].to_numpy())


def test_the_digest_tells_names_and_values(tmp_path):
    frame = wide()
    same = read_panel(written(frame, tmp_path)).digest()
    assert read_panel(written(frame, tmp_path, "again.csv")).digest() == same
    renamed = read_panel(written(frame.rename({"A": "D"}), tmp_path)).digest()
    changed = read_panel(written(frame.with_columns(A=pl.col("A") * 1.001), tmp_path)).digest()
    assert len({same, renamed, changed}) == 3


def test_what_is_no_price_is_told_with_row_and_column(tmp_path):
    frame = wide().with_columns(
        B=pl.when(pl.int_range(pl.len()) == 6).then(pl.lit("n/a")).otherwise(pl.col("B").cast(str))
    )
    assert "row 7, column B: 'n/a' is not a number" in refused(frame, tmp_path)
    negative = wide().with_columns(
        C=pl.when(pl.int_range(pl.len()) == 2).then(-5.0).otherwise(pl.col("C"))
    )
    assert "row 3, column C: -5 is not a price" in refused(negative, tmp_path)
    assert "column B: expected numbers" in refused(frame, tmp_path, "prices.parquet")


def test_a_long_files_mistake_is_told_with_its_asset_and_its_row_of_the_file(tmp_path):
    frame = long().with_row_index("n")
    bad = frame.with_columns(close=pl.when(pl.col("n") == 7).then(1e9).otherwise(pl.col("close")))
    said = refused(bad.drop("n"), tmp_path)
    assert "B: row 3, column high: " in said and "(row 8 of the file)" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.drop("B", "C"), "has one asset, A; a portfolio has two or more"),
        (lambda f: f.select("time"), "has a time and no asset"),
        (lambda f: f.drop("time"), "no column time or timestamp"),
        (lambda f: f.reverse(), "row 2, column time: 2020-02-08T00:00:00Z is earlier than the row"),
        (lambda f: f.rename({"B": " "}), "column 3: names no asset; name it"),
        (lambda f: f.rename({"B": "A "}), "column 3: A is there twice; keep one"),
    ],
)
def test_a_wide_file_that_is_none(tmp_path, change, words):
    assert words in refused(change(wide()), tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda f: f.filter(~((pl.col("symbol") == "B") & (pl.int_range(pl.len()) == 4))),
            "B has no bar of 2020-01-02, A has one (1 such bars of these two)",
        ),
        (lambda f: f.drop("close"), "no column close"),
        (lambda f: f.with_columns(ticker=pl.lit("x")), "symbol and ticker both name assets"),
        (
            lambda f: f.with_columns(
                symbol=pl.when(pl.int_range(pl.len()) == 3)
                .then(pl.lit(" "))
                .otherwise(pl.col("symbol"))
            ),
            "row 4, column symbol: names no asset",
        ),
        (lambda f: f.drop("symbol"), "has the bars of one asset; a file for portfolios has"),
    ],
)
def test_a_long_file_that_is_none(tmp_path, change, words):
    assert words in refused(change(long()), tmp_path)
