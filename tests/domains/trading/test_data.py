"""Datasets are built without leaks, from files that say how they were made."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import DataConfig, FeatureConfig, SplitConfig
from proxima.domains.trading.data import (
    METADATA_KEY,
    prepare_data,
    prepare_source,
    read_made,
    read_source,
    synthetic_path,
    write_synthetic,
)
from proxima.domains.trading.features import FEATURES, register_feature
from proxima.domains.trading.market import SPLITS
from proxima.domains.trading.ohlcv import load_trading_data
from proxima.domains.trading.peek import peek
from proxima.domains.trading.synthetic import generate

CONFIG = DataConfig(pattern="trending", rows=1_000, seed=3, params={"persistence": 0.9})


def test_a_synthetic_file_says_how_it_was_made_and_is_the_same_each_time(tmp_path):
    path = write_synthetic(CONFIG, "mine", tmp_path)
    assert path == tmp_path / "data/raw/synthetic/mine.parquet" == synthetic_path("mine", tmp_path)
    first = path.read_bytes()
    assert write_synthetic(CONFIG, "mine", tmp_path).read_bytes() == first
    assert [each.name for each in path.parent.iterdir()] == ["mine.parquet"]
    assert read_made(path) == {
        "pattern": "trending", "rows": 1_000, "seed": 3, "version": 1,
        "params": {"base": 100.0, "persistence": 0.9, "drift_volatility": 0.003, "volatility": 0.01},
    }  # fmt: skip
    assert set(pl.read_parquet_metadata(path)) >= {METADATA_KEY}
    assert load_trading_data(path).equals(generate("trending", 1_000, 3, {"persistence": 0.9}))


def test_writing_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = write_synthetic(CONFIG, "mine", tmp_path)
    before = path.read_bytes()

    def full(self, file, **options):
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(ProximaError, match=r"cannot write there \(No space left on device\)"):
        write_synthetic(replace(CONFIG, seed=4), "mine", tmp_path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["mine.parquet"]


@pytest.mark.parametrize("name", ["../mine", "a/b", ".hidden", ""])
def test_names_that_are_no_file_names(name, tmp_path):
    with pytest.raises(ProximaError, match="names a file"):
        write_synthetic(CONFIG, name, tmp_path)


def test_nothing_to_generate(tmp_path):
    with pytest.raises(ProximaError, match=r"data.pattern: null, so there is nothing to generate"):
        write_synthetic(DataConfig(), "mine", tmp_path)


def test_missing_data_says_which_command_makes_it(tmp_path):
    with pytest.raises(ProximaError) as told:
        prepare_data(CONFIG, "mine", tmp_path)
    assert "mine.parquet: no such file" in str(told.value)
    assert "`proxima generate-data --scenario mine`" in str(told.value)
    assert "--generate-data" in str(told.value)
    with pytest.raises(
        ProximaError, match=r"set data.path to your OHLCV parquet or CSV, or data.pattern"
    ):
        prepare_data(DataConfig(), "mine", tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 4}, "was made with seed 3, the scenario says 4"),
        ({"rows": 999}, "was made with rows 1000, the scenario says 999"),
        ({"pattern": "gbm", "params": {}}, "was made with pattern trending, the scenario says gbm"),
        ({"params": {}}, "was made with params "),
    ],
)
def test_prices_that_the_scenario_does_not_describe_are_refused(change, words, tmp_path):
    write_synthetic(CONFIG, "mine", tmp_path)
    with pytest.raises(ProximaError) as told:
        prepare_data(replace(CONFIG, **change), "mine", tmp_path)
    assert words in str(told.value) and "generate-data --scenario mine" in str(told.value)


def test_a_file_of_another_origin_in_its_place_is_refused(tmp_path):
    path = write_synthetic(CONFIG, "mine", tmp_path)
    generate("gbm", 1_000, 0).write_parquet(path)
    with pytest.raises(
        ProximaError, match=r"was not made by `proxima generate-data`; set data.path"
    ):
        prepare_data(CONFIG, "mine", tmp_path)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("prepared")
    write_synthetic(CONFIG, "mine", root)
    return read_source(CONFIG, "mine", root), prepare_data(CONFIG, "mine", root)


def test_prepared_data(prepared):
    source, found = prepared
    assert found.pattern == "trending" and found.params["persistence"] == 0.9
    assert found.source == str(source.path)
    assert found.feature_names == (
        "log_return_1", "volatility_20", "rsi_14", "ma_ratio_20", "volume_zscore_20",
    )  # fmt: skip
    # 20 rows of warm-up, then 980: 196 tested, 196 validated, 20 + 1 left out between
    assert found.bounds == {"train": (20, 566), "validation": (587, 783), "test": (804, 1_000)}
    for name in SPLITS:
        market, (start, stop) = found.split(name), found.bounds[name]
        assert len(market.close) == stop - start == len(market.features)
        assert market.features.dtype == np.float32 and market.features.shape[1] == 5
        assert np.isfinite(market.features).all()
        assert market.time.dtype == np.dtype("datetime64[us]")
        for column in ("time", "open", "high", "low", "close", "volume"):
            array = getattr(market, column)
            np.testing.assert_array_equal(array, source.frame[column].to_numpy()[start:stop])
            assert column == "time" or array.dtype == np.float64


def test_train_has_mean_0_and_deviation_1_and_the_others_the_same_scale(prepared):
    source, found = prepared
    np.testing.assert_allclose(found.train.features.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(found.train.features.std(axis=0), 1, rtol=1e-5)
    close = source.frame["close"].to_numpy()
    moves = np.diff(np.log(close), prepend=np.nan)
    train = moves[slice(*found.bounds["train"])]
    expected = (moves[slice(*found.bounds["test"])] - train.mean()) / train.std()
    np.testing.assert_allclose(found.test.features[:, 0], expected, rtol=1e-4, atol=1e-5)


def shocked(source, start):
    """The source with wild prices from a row on."""
    wild = np.where(np.arange(source.frame.height) >= start, 9.0, 1.0)
    prices = {name: pl.col(name) * pl.Series(wild) for name in ("open", "high", "low", "close")}
    return source._replace(frame=source.frame.with_columns(**prices))


def test_what_comes_after_train_does_not_change_train(prepared):
    source, found = prepared
    for split in ("validation", "test"):
        other = prepare_source(shocked(source, found.bounds[split][0]), CONFIG)
        np.testing.assert_array_equal(other.train.features, found.train.features)
        assert other.scalers == found.scalers
        assert not np.array_equal(other.split(split).features, found.split(split).features)
    # the control: a shock within train does change it, before the shock too
    other = prepare_source(shocked(source, 300), CONFIG)
    assert not np.array_equal(other.train.features[:100], found.train.features[:100])


@pytest.fixture
def registry():
    before = dict(FEATURES)
    yield
    FEATURES.clear()
    FEATURES.update(before)


def one_feature(kind, **settings):
    return replace(CONFIG, features=(FeatureConfig(kind=kind, **settings),))


def test_a_feature_of_deviation_1e_6_comes_out_with_deviation_1(prepared, registry):
    @register_feature("tiny", default_window=None)
    def tiny(window):
        return 3.0 + 1e-6 * pl.col("volume").log()

    found = prepare_source(prepared[0], one_feature("tiny"))
    assert found.scalers[0].std == pytest.approx(0.5e-6, rel=0.1)
    assert found.train.features.std() == pytest.approx(1, rel=1e-4)
    assert np.unique(found.train.features).size == len(found.train.features)


def test_an_unscaled_feature_stays_as_it_is(prepared):
    found = prepare_source(prepared[0], one_feature("log_return", scale="none"))
    moves = np.diff(np.log(prepared[0].frame["close"].to_numpy()))
    first, last = found.bounds["train"]
    np.testing.assert_array_equal(
        found.train.features[:, 0], moves[first - 1 : last - 1].astype(np.float32)
    )


def test_a_constant_feature_is_named_with_a_remedy(prepared):
    with pytest.raises(
        ProximaError, match=r"feature hour_cos: is 1 in every row .* set its scale: none"
    ):
        prepare_source(prepared[0], one_feature("hour_cos"))
    found = prepare_source(prepared[0], one_feature("hour_cos", scale="none"))
    assert set(found.train.features[:, 0]) == {1.0}


def test_values_that_are_no_numbers_are_named(prepared, registry):
    @register_feature("sometimes", default_window=None)
    def sometimes(window):
        return pl.when(pl.int_range(pl.len()) % 50 == 49).then(None).otherwise(pl.col("close"))

    with pytest.raises(
        ProximaError, match=r"feature sometimes: has no value in row 50 \(20 such rows\)"
    ):
        prepare_source(prepared[0], one_feature("sometimes"))
    still = prepared[0]._replace(frame=prepared[0].frame.with_columns(volume=pl.lit(0.0)))
    with pytest.raises(
        ProximaError, match=r"feature volume_zscore_20: has nan in row 20 .* leave the feature"
    ):
        prepare_source(still, one_feature("volume_zscore"))


def test_a_window_longer_than_the_data(prepared):
    with pytest.raises(
        ProximaError, match=r"feature ma_ratio_5000: has no value in any of 1,000 rows"
    ):
        prepare_source(prepared[0], one_feature("ma_ratio", window=5_000))


def test_a_warm_up_longer_than_where_it_is_looked_for_first(registry, tmp_path):
    @register_feature("late", default_window=None)
    def late(window):
        return pl.when(pl.int_range(pl.len()) >= 9_000).then(pl.col("close"))

    config = replace(one_feature("late"), rows=20_000)
    write_synthetic(config, "mine", tmp_path)
    assert prepare_data(config, "mine", tmp_path).bounds["train"][0] == 9_000


def test_too_few_rows_for_the_split_names_the_file(prepared):
    with pytest.raises(
        ProximaError, match=r"mine.parquet: 500 usable rows are too few to split: .* need"
    ):
        prepare_source(prepared[0], one_feature("ma_ratio", window=501))


def test_a_leak_is_found_when_the_dataset_is_built(prepared, registry):
    @register_feature("whole", default_window=None)
    def whole(window):
        return (pl.col("close") - pl.col("close").mean()) / pl.col("close").std()

    config = one_feature("whole")
    with pytest.raises(ProximaError, match="feature whole: looks ahead"):
        prepare_source(prepared[0], config)
    with pytest.raises(ProximaError, match="feature whole: looks ahead"):
        prepare_source(
            prepared[0], replace(config, leaky=True)
        )  # only what is labelled as a leak may


def test_a_labelled_leak_in_a_leaky_scenario(prepared):
    features = (FeatureConfig(kind="next_return", scale="none"), FeatureConfig(kind="log_return"))
    with pytest.raises(ProximaError, match=r"next_return looks ahead; only .* data.leaky"):
        prepare_source(prepared[0], replace(CONFIG, features=features))
    found = prepare_source(prepared[0], replace(CONFIG, features=features, leaky=True))
    assert found.bounds["test"][1] == 999  # the last bar has no next one
    moves = np.diff(np.log(found.train.close))
    np.testing.assert_allclose(found.train.features[:-1, 0], moves, rtol=1e-5)


def test_folds_come_through(prepared):
    split = SplitConfig(folds=2, fold=1, mode="sliding")
    found = prepare_source(prepared[0], replace(CONFIG, split=split))
    assert found.bounds["test"] == (902, 1_000) and found.bounds["train"][0] == 118


def test_the_users_own_csv(tmp_path):
    frame = generate("gbm", 600, 0).with_columns(pl.col("time").dt.strftime("%Y-%m-%d"))
    frame.rename(str.upper).write_csv(tmp_path / "own.csv")
    found = prepare_data(DataConfig(path=str(tmp_path / "own.csv")), "anything")
    assert found.pattern is None and found.params == {}
    assert found.bounds["test"][1] == 600


def own_csv(folder, **columns):
    """600 bars of a user's own, some columns replaced; one of None is left out."""
    frame = generate("gbm", 600, 0).with_columns(pl.col("time").dt.strftime("%Y-%m-%d"), **columns)
    left_out = [name for name, value in columns.items() if value is None]
    frame.drop(left_out).write_csv(folder / "own.csv")
    return DataConfig(path=str(folder / "own.csv"))


def test_default_features_are_those_that_the_file_can_feed(tmp_path):
    kinds = ["log_return", "volatility", "rsi", "ma_ratio"]
    whole = prepare_data(own_csv(tmp_path), "anything")
    assert [feature.kind for feature in whole.features] == [*kinds, "volume_zscore"]
    assert whole.notes == ()
    without = prepare_data(own_csv(tmp_path, volume=None), "anything")
    assert [feature.kind for feature in without.features] == kinds
    assert without.notes == (
        f"{tmp_path}/own.csv: has no volume; the features are log_return, volatility, rsi, ma_ratio",
    )
    still = prepare_data(own_csv(tmp_path, volume=pl.lit(7.0)), "anything")
    assert [feature.kind for feature in still.features] == kinds
    assert "the volume never changes" in still.notes[0]


def test_a_feature_that_needs_a_volume_is_refused_where_there_is_none(tmp_path):
    own = own_csv(tmp_path, volume=None)
    features = (FeatureConfig(kind="rsi"), FeatureConfig(kind="volume_zscore"))
    with pytest.raises(ProximaError) as told:
        prepare_data(replace(own, features=features), "anything")
    assert str(told.value) == (
        f"data.features.1.kind: volume_zscore needs a volume, and {tmp_path}/own.csv has none; leave the "
        "feature out, or give the file a column volume"
    )


def test_what_is_said_of_a_file_comes_through(tmp_path):
    found = prepare_data(own_csv(tmp_path, adjusted=pl.col("close")), "anything")
    assert found.notes == (f"{tmp_path}/own.csv: left out: adjusted",)


def test_appended_bars_change_nothing_that_is_trained_on(tmp_path):
    split = SplitConfig(train_until="2001-01-01", validation_until="2001-03-01")
    frame = generate("gbm", 600, 0)
    prepared = []
    for rows in (500, 600):
        frame.head(rows).write_parquet(tmp_path / "own.parquet")
        config = DataConfig(path=str(tmp_path / "own.parquet"), split=split)
        prepared.append(prepare_data(config, "anything"))
    before, after = prepared
    assert before.scalers == after.scalers
    for name in ("train", "validation"):
        assert before.bounds[name] == after.bounds[name]
        for one, other in zip(before.split(name), after.split(name), strict=True):
            np.testing.assert_array_equal(one, other)
    assert before.bounds["test"][0] == after.bounds["test"][0] and after.bounds["test"][1] == 600


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"pattern": "gbm"}', "[" * 100_000])
def test_damaged_words_on_how_a_file_was_made(text, tmp_path):
    path = tmp_path / "own.parquet"
    generate("gbm", 50, 0).write_parquet(path, metadata={METADATA_KEY: text})
    with pytest.raises(ProximaError, match=r"own.parquet: what it says of how .* make it anew"):
        read_source(DataConfig(path=str(path)), "anything")


def test_peek_tells_what_is_there(prepared):
    source, found = prepared
    summary = peek(source, CONFIG)
    json.dumps(summary)
    assert summary["rows"] == 1_000
    assert summary["made"]["pattern"] == "trending"
    assert (summary["first"][:10], summary["last"][:10]) == ("2000-01-01", "2002-09-26")
    assert summary["spacing"]["usual_seconds"] == 86_400 and summary["spacing"]["gaps"] == 0
    assert [each["rows"] for each in summary["splits"]] == [546, 196, 196]
    assert [each["feature"] for each in summary["features"]] == list(found.feature_names)
    assert summary["features"][0]["train"]["std"] == pytest.approx(1, rel=1e-5)
    assert summary["problem"] is None


def test_peek_finds_gaps_and_says_what_cannot_be_done(prepared):
    source, _ = prepared
    holes = source._replace(
        frame=source.frame.head(50).filter(~pl.int_range(50).is_in([10, 11, 30]))
    )
    summary = peek(holes, CONFIG)
    assert summary["spacing"]["gaps"] == 2
    assert summary["spacing"]["longest_seconds"] == 3 * 86_400
    assert summary["spacing"]["longest_after"][:10] == "2000-01-10"
    assert "too few to split" in summary["problem"] and summary["splits"] == []


def test_prices_that_cannot_be_written_are_told_in_words(tmp_path):
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(
        ProximaError, match=r"sine\.parquet: cannot write there \(Not a directory\)"
    ):
        write_synthetic(DataConfig(pattern="sine_wave", rows=100), "sine", tmp_path)
