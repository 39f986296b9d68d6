"""A first look at the prices of several assets: a scenario's, or a file's, long or wide."""

import json

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tiny import run_main

from proxima.domains.trading.synthetic import generate

SCENARIO = """
description: Three assets
data: {pattern: mean_reversion, assets: 3, rows: 400, seed: 5}
env: {backend: portfolio}
"""


@pytest.fixture
def main(workdir, capsys, monkeypatch):
    """The command line in a directory with a scenario of its own."""
    (workdir / "three.yaml").write_text(SCENARIO)
    return lambda *arguments: run_main(arguments, capsys, monkeypatch)


def closes(assets: int, rows: int = 300) -> pl.DataFrame:
    """A file of closes, a column for each asset."""
    frames = [generate("upward_drift", rows, seed) for seed in range(assets)]
    columns = {f"stock {seed}": frame["close"] for seed, frame in enumerate(frames)}
    return pl.DataFrame({"Date": frames[0]["time"].dt.strftime("%Y-%m-%d"), **columns})


def test_peek_at_a_scenario(main, workdir):
    main("generate-data", "--scenario", "three.yaml")
    said = main("peek", "three.yaml", "--plot", "seen.png")
    assert said.code == 0, said.err
    for words in (
        "mean_reversion with seed 5", "rows        400, 2000-01-01 … 2001-02-03",
        "every 1 day, no gaps", "assets      3, every price", "asset_2 ", "validation", "rsi_14",
        "Plot: seen.png",
    ):  # fmt: skip
        assert words in said.out
    assert max(len(line) for line in said.out.splitlines() if not line.startswith("made")) <= 80
    with Image.open(workdir / "seen.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    assert pixels.shape[1] == 1200
    blue = (np.abs(pixels - [0, 114, 178]).sum(axis=2) < 40).sum()
    assert blue > 300, "a line for an asset"
    summary = json.loads(main("peek", "three.yaml", "--json", "--plot", "seen.png").out)
    assert summary["rows"] == 400 and summary["problem"] is None
    assert list(summary["assets"]) == ["asset_1", "asset_2", "asset_3"]
    prices = pl.read_parquet("data/raw/synthetic/three.parquet")
    first = prices.filter(pl.col("symbol") == "asset_2")["close"]
    moved = summary["assets"]["asset_2"]["total_log_return"]
    np.testing.assert_allclose(moved, np.log(first[-1] / first[0]))
    train = summary["splits"][0]
    assert train["rows"] == 186 and train["first_row"] == 20


def test_peek_at_a_wide_file(main, workdir):
    closes(45).write_csv("wide.csv")
    said = main("peek", "wide.csv")
    assert said.code == 0, said.err
    assert "assets      45, closing prices only" in said.out
    assert "and 5 more; --json has all" in said.out and "stock 39 " in said.out
    assert "has closing prices only; the features are log_return" in said.out


def test_peek_at_a_file_that_is_too_short_to_split(main):
    closes(2, rows=12).head(1).write_csv("one.csv")
    said = main("peek", "one.csv")
    assert said.code == 0 and "Cannot be prepared as configured" in said.out, said.err


MISTAKES = [
    ("time,a,b\n2020-01-01,1,x\n", "row 1, column b: 'x' is not a number"),
    ("time,symbol,close\n2020-01-01,a,1\n", "no column open"),
    ("time,open,high,close\n2020-01-01,1,1,1\n", "no column low"),
    ("time,a\n2020-01-01,1\n", "no column open"),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES)
def test_a_mistake_is_told_in_words(text, words, main, workdir):
    (workdir / "own.csv").write_text(text)
    said = main("peek", "own.csv")
    assert said.code == 1 and words in said.err, said.err
    assert not (workdir / "prices.png").exists()


def test_a_plot_that_cannot_be_written(main, workdir):
    closes(3).write_csv("wide.csv")
    (workdir / "file").write_text("")
    said = main("peek", "wide.csv", "--plot", "file/x.png")
    assert said.code == 1 and "--plot file/x.png: cannot write there" in said.err
