"""Features of panels: the same for every asset, scaled on train alone, causal; the classical sets."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from panels_of_prices import long, wide

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import DataConfig, FeatureConfig
from proxima.domains.trading.data import prepare_data
from proxima.domains.trading.features import FEATURES, Feature
from proxima.domains.trading.portfolio import sources
from proxima.domains.trading.portfolio.config import PanelConfig
from proxima.domains.trading.portfolio.data import (
    prepare_folds,
    prepare_source,
    read_source,
    write_synthetic,
)
from proxima.domains.trading.portfolio.panel import read_panel


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_features_are_those_of_each_asset_scaled_together(here):
    frame = long(400)
    frame.write_parquet("panel.parquet")
    features = (FeatureConfig(kind="log_return"), FeatureConfig(kind="volatility", window=5))
    config = PanelConfig(path="panel.parquet", features=features)
    panel = prepare_source(read_source(config, "x"), config)
    unscaled = panel.splits["train"].features * [s.std for s in panel.scalers] + [
        s.mean for s in panel.scalers
    ]
    for index, asset in enumerate(panel.assets):
        frame.filter(pl.col("symbol") == asset).drop("symbol").write_parquet("one.parquet")
        alone = prepare_data(DataConfig(path="one.parquet", features=features), "x")
        scalers = alone.scalers
        single = alone.train.features * [s.std for s in scalers] + [s.mean for s in scalers]
        np.testing.assert_allclose(unscaled[:, index], single, atol=1e-7)
        assert np.array_equal(alone.train.time, panel.splits["train"].time)
    for index in range(2):
        values = panel.splits["train"].features[:, :, index]
        assert (values.mean(), values.std()) == pytest.approx((0, 1), abs=1e-5)


def test_a_feature_that_looks_ahead_is_refused_with_its_asset(here, monkeypatch):
    leaky = Feature(lambda window: pl.col("close").shift(-1), None, 1, leaks=False)
    monkeypatch.setitem(FEATURES, "tomorrow", leaky)
    wide(300).write_parquet("panel.parquet")
    config = PanelConfig(path="panel.parquet", features=(FeatureConfig(kind="tomorrow"),))
    with pytest.raises(ProximaError, match="A: feature tomorrow: looks ahead"):
        prepare_folds(config, "x")


def test_without_features_the_file_decides(here):
    wide(300).write_parquet("panel.parquet")
    (panel,) = prepare_folds(PanelConfig(path="panel.parquet"), "x")
    assert panel.feature_names == ("log_return_1", "volatility_20", "rsi_14", "ma_ratio_20")
    assert any("closing prices only" in note for note in panel.notes)


def test_synthetic_assets_are_the_same_each_time_and_differ_from_each_other(here):
    config = PanelConfig(pattern="random_walk", rows=200, assets=3)
    first = write_synthetic(config, "x").read_bytes()
    assert write_synthetic(config, "x").read_bytes() == first
    closes = [
        frame["close"].to_numpy() for frame in read_panel("data/raw/synthetic/x.parquet").frames
    ]
    assert len(closes) == 3
    moves = np.corrcoef([np.diff(np.log(each)) for each in closes])
    assert np.abs(moves - np.eye(3)).max() < 0.3


@pytest.mark.parametrize(
    ("name", "rows", "assets"),
    [("nyse_o", 5652, 36), ("djia", 508, 30), ("tse", 1260, 88)],
)
def test_a_set_is_the_packages_file(here, name, rows, assets):
    path = sources.write_source(name)
    panel = read_panel(path)
    assert (panel.bars, len(panel.assets)) == (rows, assets)
    assert all(frame["close"][0] == 1.0 for frame in panel.frames)
    note = path.with_suffix(".origin.txt").read_text()
    assert sources.LICENCE in note and "made up" in note and "universal-portfolios" in note


def test_a_set_that_is_not_there_is_named_with_its_remedy(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "universal", None)
    with pytest.raises(ProximaError, match="prices"):
        sources.write_source("djia")
    with pytest.raises(ProximaError, match="there are nyse_o, nyse_n, djia"):
        sources.write_source("nyse")


def test_no_code_of_the_package_runs(here):
    program = (
        "import sys; from proxima.domains.trading.portfolio.sources import write_source; "
        "write_source('djia'); assert 'universal' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
