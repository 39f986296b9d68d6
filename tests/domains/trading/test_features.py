"""Features are their formulas, never look ahead, and are scaled with what train knows."""

import math
import sys
import types

import numpy as np
import polars as pl
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.trading import causality
from proxima.domains.trading.causality import refuse_look_ahead
from proxima.domains.trading.config import DEFAULT_FEATURES, FeatureConfig
from proxima.domains.trading.features import (
    FEATURES,
    compute,
    create_features,
    register_feature,
    resolve_features,
)
from proxima.domains.trading.synthetic import generate

CAUSAL = [name for name, feature in FEATURES.items() if not feature.leaks]


@pytest.fixture(scope="module")
def frame():
    """Bars of 37 minutes, so that they have days and hours."""
    bars = generate("trending", 400, 0)
    start = np.datetime64("2024-03-01T09:30", "us")
    time = pl.Series(start + np.arange(400) * np.timedelta64(37, "m"))
    return bars.with_columns(time=time.dt.replace_time_zone("UTC"))


@pytest.fixture
def own(monkeypatch):
    """A module of the user's own, and a registry that forgets what a test puts into it."""
    before = dict(FEATURES)
    module = types.ModuleType("own_features")
    monkeypatch.setitem(sys.modules, "own_features", module)
    yield module
    FEATURES.clear()
    FEATURES.update(before)


def values(frame, kind, leaky=False, **settings):
    (column,) = resolve_features([FeatureConfig(kind=kind, **settings)], leaky)
    return compute(frame, column).to_numpy()


def slow(frame, rows, formula):
    """A formula of the bars up to t, for every t from `rows` on; nothing before."""
    bars = {name: frame[name].to_numpy() for name in frame.columns}
    past = ({name: array[: t + 1] for name, array in bars.items()} for t in range(frame.height))
    return np.array([formula(bar) if len(bar["close"]) > rows else np.nan for bar in past])


def mean_of_returns(close, weight):
    moves = np.diff(np.log(close))
    mean = moves[0]
    for move in moves[1:]:
        mean = weight * move + (1 - weight) * mean
    return mean


def wilder(close, window):
    moves = np.diff(close)
    gain, loss = max(moves[0], 0), max(-moves[0], 0)
    for move in moves[1:]:
        gain += (max(move, 0) - gain) / window
        loss += (max(-move, 0) - loss) / window
    return 100 - 100 / (1 + gain / loss) if loss else 100.0


def seconds_of_day(bar):
    return (bar["time"][-1] - bar["time"][-1].astype("M8[D]")).astype(float) / 1e6


FORMULAS = {
    "log_return": (7, 7, lambda b: math.log(b["close"][-1] / b["close"][-8])),
    "momentum_sign": (3, 3, lambda b: np.sign(b["close"][-1] - b["close"][-4])),
    "volatility": (6, 6, lambda b: np.diff(np.log(b["close"][-7:])).std(ddof=1)),
    "ema_return": (9, 9, lambda b: mean_of_returns(b["close"], 2 / 10)),
    "rsi": (5, 5, lambda b: wilder(b["close"], 5)),
    "ma_ratio": (4, 3, lambda b: math.log(b["close"][-1] / b["close"][-4:].mean())),
    "price_level": (None, 0, lambda b: math.log(b["close"][-1])),
    "volume_zscore": (8, 7, lambda b: deviations(b["volume"][-8:])),
    "high_low_range": (3, 2, lambda b: np.log(b["high"][-3:] / b["low"][-3:]).mean()),
    "day_of_week_sin": (None, 0, lambda b: math.sin(2 * math.pi * weekday(b) / 7)),
    "day_of_week_cos": (None, 0, lambda b: math.cos(2 * math.pi * weekday(b) / 7)),
    "hour_sin": (None, 0, lambda b: math.sin(2 * math.pi * seconds_of_day(b) / 86_400)),
    "hour_cos": (None, 0, lambda b: math.cos(2 * math.pi * seconds_of_day(b) / 86_400)),
}  # fmt: skip


def deviations(values):
    return (values[-1] - values.mean()) / values.std(ddof=1)


def weekday(bar):
    return bar["time"][-1].item().weekday()


def test_every_causal_feature_has_a_formula_here():
    assert set(FORMULAS) == set(CAUSAL)


@pytest.mark.parametrize("kind", FORMULAS)
def test_a_feature_is_a_slow_loop_over_the_past(kind, frame):
    window, warm_up, formula = FORMULAS[kind]
    found = values(frame, kind, window=window)
    np.testing.assert_allclose(found, slow(frame, warm_up, formula), rtol=1e-9, atol=1e-12)
    assert np.isfinite(found[warm_up:]).all()


def test_rsi_of_a_flat_price_is_in_the_middle(frame):
    flat = frame.with_columns(close=pl.lit(5.0))
    assert set(values(flat, "rsi")[14:]) == {50.0}


def test_next_return_is_the_future(frame):
    close = frame["close"].to_numpy()
    found = values(frame, "next_return", leaky=True)
    np.testing.assert_allclose(found[:-1], np.diff(np.log(close)))
    assert np.isnan(found[-1])


def test_a_lag_delays(frame):
    lagged = values(frame, "log_return", lag=3)
    np.testing.assert_array_equal(lagged[3:], values(frame, "log_return")[:-3])


def test_names_and_defaults(frame):
    columns = resolve_features(
        (
            *DEFAULT_FEATURES,
            FeatureConfig(kind="log_return", window=5, lag=2),
            FeatureConfig(kind="hour_sin"),
        )
    )
    assert [column.name for column in columns] == [
        "log_return_1", "volatility_20", "rsi_14", "ma_ratio_20", "volume_zscore_20",
        "log_return_5_lag_2", "hour_sin",
    ]  # fmt: skip
    assert [column.reach for column in columns] == [1, 20, 14, 20, 20, 7, 1]


def test_create_features_is_lazy_and_keeps_the_prices(frame):
    featured = create_features(frame, DEFAULT_FEATURES)
    assert isinstance(featured, pl.LazyFrame)
    found = featured.collect()
    assert found.columns[:6] == frame.columns and found.width == 11
    assert found["volatility_20"].null_count() == 20


MISTAKES = [
    ({"kind": "log_retrun"}, "kind: no feature 'log_retrun'; did you mean log_return?"),
    ({"kind": "zzz"}, "kind: no feature 'zzz'; there are: day_of_week_cos"),
    ({"kind": "hour_sin", "window": 3}, "window: hour_sin takes no window"),
    ({"kind": "volatility", "window": 1}, "window: 1 is not allowed: volatility needs at least 2"),
    ({"kind": "next_return"}, "kind: next_return looks ahead; only a scenario with data.leaky"),
    ({"kind": "absent_module:gap"}, "kind: cannot import absent_module"),
    ({"kind": "own_features:absent"}, "kind: own_features has no function absent"),
    ({"kind": "own_features:number"}, "number returned int; expected a polars expression"),
]


@pytest.mark.parametrize(("settings", "words"), MISTAKES)
def test_mistakes_are_named(settings, words, own):
    own.number = lambda window: 3
    with pytest.raises(ProximaError) as told:
        resolve_features([FeatureConfig(kind="price_level"), FeatureConfig(**settings)])
    assert str(told.value).startswith("data.features.1.") and words in str(told.value)


def test_the_same_feature_twice():
    with pytest.raises(
        ProximaError, match=r"data.features.1: rsi_14 is there twice; leave one out"
    ):
        resolve_features([FeatureConfig(kind="rsi"), FeatureConfig(kind="rsi", window=14)])


def test_a_users_own_function(frame, own):
    own.gap = lambda window: (pl.col("open") / pl.col("close").shift(window)).log()
    (plain,) = resolve_features([FeatureConfig(kind="own_features:gap", window=2)])
    assert (plain.name, plain.leaks, plain.reach) == ("gap_2", False, 2)
    expected = np.log(frame["open"].to_numpy()[2:] / frame["close"].to_numpy()[:-2])
    np.testing.assert_allclose(compute(frame, plain).to_numpy()[2:], expected)

    register_feature("gap", default_window=None)(own.gap)  # both names now mean the registered one
    for kind in ("gap", "own_features:gap"):
        (column,) = resolve_features([FeatureConfig(kind=kind)])
        assert (column.name, column.reach) == ("gap", 1)


def test_two_features_cannot_have_one_name(own):
    with pytest.raises(ProximaError, match="feature rsi: there is one of this name"):
        register_feature("rsi")(lambda window: pl.col("close"))


def test_an_expression_that_cannot_be_computed_is_named(frame, own):
    own.odd = lambda window: pl.col("closed")
    (column,) = resolve_features([FeatureConfig(kind="own_features:odd")])
    with pytest.raises(ProximaError, match=r"feature odd_20: cannot be computed: .*closed"):
        compute(frame, column)


def check(frame, expression, window=20):
    """The causality check on a feature that a user may have written."""
    module = sys.modules["own_features"]
    module.mine = lambda window: expression
    (column,) = resolve_features([FeatureConfig(kind="own_features:mine", window=window)])
    refuse_look_ahead(frame, column, compute(frame, column))


CLOSE = pl.col("close")
LEAKS = {
    "the next close": CLOSE.shift(-1),
    "a far one": CLOSE.shift(-300),
    "a centred mean": CLOSE.rolling_mean(5, center=True),
    "a score by the mean of everything": (CLOSE - CLOSE.mean()) / CLOSE.std(),
    "a rank among everything": CLOSE.rank(),
    "the range of everything": CLOSE / CLOSE.max(),
    "a single number": CLOSE.mean(),
    "filled from behind": pl.when(pl.int_range(pl.len()) % 3 == 0).then(CLOSE).backward_fill(),
    "the day's mean": CLOSE.mean().over(pl.col("time").dt.truncate("1w")),
    "reversed": CLOSE.reverse().cum_sum().reverse(),
    "the number of rows": pl.lit(1.0) * pl.len() + 0 * CLOSE,
}


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("rows", [400, 40_000])
def test_looking_ahead_is_found(leak, rows, own):
    frame = generate("random_walk", rows, 0)
    with pytest.raises(ProximaError, match=r"feature mine_20: looks ahead: row [\d,]+ has"):
        check(frame, LEAKS[leak])


@pytest.mark.parametrize("place", [20_000, 33_000, 39_000, 39_990])
def test_a_leak_that_begins_late_is_found(place, own):
    """One that starts in the middle or near the end of a long file; the head alone would not show it."""
    frame = generate("random_walk", 40_000, 0)
    late = frame["time"][place]
    leak = pl.when(pl.col("time") < late).then(CLOSE).otherwise(CLOSE.shift(-1))
    with pytest.raises(ProximaError, match="looks ahead"):
        check(frame, leak)


def test_a_leak_in_the_middle_only_is_found(own):
    frame = generate("random_walk", 40_000, 0)
    within = pl.col("time").is_between(frame["time"][17_000], frame["time"][23_000])
    leak = pl.when(within).then(CLOSE.shift(-1)).otherwise(CLOSE)
    with pytest.raises(ProximaError, match=r"looks ahead: row (1[7-9]|2[0-3]),"):
        check(frame, leak)


@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize("rows", [400, 40_000])
def test_causal_features_pass(kind, rows):
    frame = generate("garch", rows, 0)
    for lag in (0, 3):
        (column,) = resolve_features([FeatureConfig(kind=kind, lag=lag)])
        refuse_look_ahead(frame, column, compute(frame, column))


def test_what_only_looks_back_passes_however_far(own):
    frame = generate("random_walk", 40_000, 0)
    check(frame, CLOSE.cum_sum())
    check(frame, (CLOSE - CLOSE.cum_sum() / CLOSE.cum_count()).fill_null(0.0))
    check(frame, CLOSE.rolling_mean(6_000), window=6_000)


def test_the_check_costs_the_same_however_long_the_file(own, monkeypatch):
    looked_at = []
    plain = causality.compute
    monkeypatch.setattr(
        causality,
        "compute",
        lambda frame, column: looked_at.append(frame.height) or plain(frame, column),
    )
    for rows in (50_000, 500_000):
        looked_at.clear()
        check(generate("random_walk", rows, 0), CLOSE.rolling_mean(20))
        assert sum(looked_at) < 30 * causality.STRETCH
