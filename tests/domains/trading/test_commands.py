"""The commands about data as a user types them: generate-data, peek, experiment --generate-data."""

import json
import re

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tiny import budget, flags, run_main

from proxima.domains.trading.plots import price_plot
from proxima.domains.trading.synthetic import generate

SCENARIO = """
description: A small market
data:
  pattern: mean_reversion
  rows: 600
  seed: 5
env: {backend: trading}
"""


@pytest.fixture
def main(workdir, capsys, monkeypatch):
    """The command line in a directory with a scenario of its own."""
    (workdir / "small.yaml").write_text(SCENARIO)
    return lambda *arguments: run_main(arguments, capsys, monkeypatch)


def pixels_of(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_list_shows_every_pattern_and_setting(main):
    said = main("generate-data", "--list")
    assert said.code == 0
    for word in ("sine_wave", "heston", "amplitude", "8000.0", "mean_close", "drift_volatility"):
        assert word in said.out
    listed = json.loads(main("generate-data", "--list", "--json").out)
    assert len(listed) == 11 and listed[0]["params"][1]["name"] == "amplitude"


def test_a_pattern_with_settings(main, workdir):
    given = ["--set", "rows=50", "--set", "seed=3", "--set", "amplitude=10", "--set", "base=1e2"]
    said = main("generate-data", "--pattern", "sine_wave", *given)
    assert said.code == 0 and said.out == "Wrote data/raw/synthetic/sine_wave.parquet\n"
    frame = pl.read_parquet(workdir / "data/raw/synthetic/sine_wave.parquet")
    assert frame.equals(generate("sine_wave", 50, 3, {"amplitude": 10, "base": 100}))
    # the keys of a scenario mean the same
    given = ["--set", "data.rows=50", "--set", "data.seed=3", "--set", "data.params.amplitude=10"]
    main("generate-data", "--pattern", "sine_wave", "--name", "other", *given, "--set", "base=100")
    assert frame.equals(pl.read_parquet(workdir / "data/raw/synthetic/other.parquet"))


def test_a_scenarios_data(main, workdir):
    said = main("generate-data", "--scenario", "small.yaml", "--set", "data.rows=700", "--json")
    assert json.loads(said.out) == {"path": "data/raw/synthetic/small.parquet"}
    frame = pl.read_parquet(workdir / "data/raw/synthetic/small.parquet")
    assert frame.equals(generate("mean_reversion", 700, 5))


MISTAKES = [
    (["generate-data"], "--scenario NAME, or --pattern NAME"),
    (["generate-data", "--scenario", "small.yaml", "--pattern", "gbm"], "--scenario NAME, or"),
    (["generate-data", "--pattern", "sine_wav"], "did you mean sine_wave?"),
    (["generate-data", "--pattern", "gbm", "--set", "drif=1"], "did you mean drift?"),
    (["generate-data", "--pattern", "gbm", "--set", "drift"], "expected key=value"),
    (["generate-data", "--pattern", "gbm", "--set", "rows=1.5"], "rows: expected a whole number"),
    (["generate-data", "--pattern", "gbm", "--set", "rows=1"], "data.rows: 1 is not allowed"),
    (["generate-data", "--pattern", "gbm", "--set", "drift=up"], "expected a number, got 'up'"),
    (["generate-data", "--pattern", "gbm", "--name", "a/b"], "no slashes"),
    (["generate-data", "--scenario", "small.yaml", "--name", "x"], "--name: a scenario's data has"),
    (["generate-data", "--scenario", "cartpole"], "cartpole: has no data section"),
    (["experiment", "--scenario", "cartpole", "--generate-data"], "cartpole: has no data section"),
    (["peek", "cartpole"], "cartpole: is not about trading; name a trading scenario"),
    (["peek", "absent.csv"], "absent.csv: no such file"),
    (["peek", "cartpol"], "did you mean cartpole"),
    (["peek", "small.yaml"], "make it with `proxima generate-data --scenario small`"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_mistake_is_told_in_words_and_leaves_nothing_behind(arguments, words, main, workdir):
    said = main(*arguments)
    assert said.code == 1 and said.out == ""
    assert words in said.err and "Traceback" not in said.err
    assert [path.name for path in workdir.rglob("*") if path.is_file()] == ["small.yaml"]


PRICES = "data/raw/synthetic/sine_wave.parquet"
EXPERIMENT = ["experiment", "--scenario", "sine_wave", *flags(*budget("sine_wave"))]
EXPERIMENT += ["--max-steps", "256"]


def test_an_experiment_writes_its_prices_first_and_says_where(main, workdir):
    said = main(*EXPERIMENT, "--generate-data")
    assert said.code == 0, said.err
    assert f"Prices written to {PRICES}\n" in said.out
    made = pl.read_parquet(workdir / PRICES)
    assert made.equals(generate("sine_wave", 1000, 0, {"period": 97.3}))
    # they are there now; other settings would be other prices, which it writes instead
    assert main(*EXPERIMENT).code == 0
    said = main(*EXPERIMENT, "--set", "data.seed=9", "--json")
    assert said.code == 1 and "was made with seed 0, the scenario says 9" in said.err
    said = main(*EXPERIMENT, "--set", "data.seed=9", "--json", "--generate-data")
    assert said.code == 0 and PRICES in said.err and json.loads(said.out)["details"]["score"]


def test_an_experiment_without_its_prices_says_what_makes_them(main, workdir):
    said = main(*EXPERIMENT)
    assert said.code == 1 and said.out == "" and "Traceback" not in said.err
    assert f"{PRICES}: no such file" in said.err
    assert not (workdir / "logs").exists(), "what cannot be built leaves no run behind"
    told = re.findall(r"`proxima (.+?)`", said.err)
    assert told == ["generate-data --scenario sine_wave"] and "with --generate-data" in said.err
    assert main(*told[0].split(), "--set", "data.rows=1000").code == 0
    assert main(*EXPERIMENT).code == 0


def test_a_file_of_ones_own_is_never_generated(main, workdir):
    generate("gbm", 300, 0).write_parquet("own.parquet")
    (workdir / "own.yaml").write_text("data: {path: own.parquet}\nenv: {backend: trading}\n")
    before = (workdir / "own.parquet").read_bytes()
    said = main("experiment", "--config", "own.yaml", "--generate-data")
    assert said.code == 1 and "data.pattern: null, so there is nothing to generate" in said.err
    assert (workdir / "own.parquet").read_bytes() == before
    assert not (workdir / "data").exists() and not (workdir / "logs").exists()


def test_peek_at_a_scenario(main, workdir):
    main("generate-data", "--scenario", "small.yaml")
    said = main("peek", "small.yaml", "--plot", "seen.png")
    assert said.code == 0
    for words in (
        "mean_reversion with seed 5", "rows        600, 2000-01-01 … 2001-08-22",
        "every 1 day, no gaps", "validation", "rsi_14", "Plot: seen.png",
    ):  # fmt: skip
        assert words in said.out
    assert pixels_of(workdir / "seen.png").shape[1] == 1200
    summary = json.loads(main("peek", "small.yaml", "--json", "--plot", "seen.png").out)
    assert summary["rows"] == 600 and summary["splits"][2]["rows"] == 116


def test_peek_at_a_file_that_is_too_short_to_split(main):
    generate("gbm", 30, 0).with_columns(pl.col("time").dt.to_string()).write_csv("own.csv")
    said = main("peek", "own.csv")
    assert said.code == 0
    assert "own.csv: 10 usable rows are too few to split" in said.out and "rsi_14" not in said.out


def test_a_plot_that_cannot_be_written(main, workdir):
    generate("gbm", 300, 0).write_parquet("own.parquet")
    (workdir / "file").write_text("")
    said = main("peek", "own.parquet", "--plot", "file/x.png")
    assert said.code == 1 and "--plot file/x.png: cannot write there" in said.err


@pytest.mark.parametrize("rows", [3, 300, 50_000])
def test_price_plot_draws_prices_of_any_length_and_shades_splits(rows, tmp_path):
    frame = generate("upward_drift", rows, 0, {"drift": 1e-3})
    time, close = frame["time"].to_numpy(), frame["close"].to_numpy()
    pixels = []
    for name, splits in (("plain", {}), ("split", {"test": (time[rows // 2], time[-1])})):
        price_plot(tmp_path / f"{name}.png", time, close, splits)
        pixels.append(pixels_of(tmp_path / f"{name}.png"))
    assert (pixels[0][:, 150:1150] < 80).all(axis=2).sum() > 500  # a dark line
    right = (pixels[1] != pixels[0]).any(axis=2)[100:400]
    assert right[:, 800:1100].mean() > 0.9 and right[:, 200:500].mean() < 0.05


def minutes(rows, **columns):
    """Bars of a minute, at large prices, with a name that is long."""
    frame = generate("gbm", rows, 0).with_columns(
        pl.col("open", "high", "low", "close") * 123_456.789, **columns
    )
    start = np.datetime64("2024-03-04T09:30:05", "us")
    times = start + np.arange(rows) * np.timedelta64(60, "s")
    return frame.with_columns(time=pl.Series(times).cast(pl.String))


def test_peek_cuts_neither_numbers_nor_dates(main, workdir):
    minutes(600, note=pl.lit("x")).write_csv("own.csv")
    said = main("peek", "own.csv")
    assert said.code == 0, said.err
    assert "…\n" not in said.out and max(map(len, said.out.splitlines())) <= 80
    lines = {line.split()[0]: line for line in said.out.splitlines()}
    assert "2024-03-04 09:50:05  2024-03-04 14:55:05" in lines["train"]
    assert re.search(r"\d,\d{3},\d{3}\.\d\d … ", lines["close"])
    assert lines["note"].endswith("left out: note")
    assert lines["volume_zscore_20"].count(" ± ") == 2


def test_peek_says_which_features_a_file_without_volume_has(main, workdir):
    minutes(600).drop("volume").write_csv("own.csv")
    said = main("peek", "own.csv")
    assert (
        "note        has no volume; the features are log_return, volatility, rsi, ma_ratio"
        in said.out
    )
    assert "volume_zscore" not in said.out
    notes = json.loads(main("peek", "own.csv", "--json").out)["notes"]
    assert notes == ["has no volume; the features are log_return, volatility, rsi, ma_ratio"]


def test_peek_at_a_single_bar(main, workdir):
    minutes(2).head(1).write_csv("own.csv")
    said = main("peek", "own.csv")
    assert said.code == 0 and "Cannot be prepared as configured" in said.out, said.err


def test_a_split_of_next_to_nothing_is_told_at_once(main, workdir):
    main("generate-data", "--scenario", "small.yaml")
    (workdir / "thin.yaml").write_text(
        SCENARIO.replace("rows: 600", "rows: 600\n  split: {validation: 1e-30}")
    )
    (workdir / "data/raw/synthetic/small.parquet").rename(
        workdir / "data/raw/synthetic/thin.parquet"
    )
    assert "need more than any file has" in main("peek", "thin.yaml").out
