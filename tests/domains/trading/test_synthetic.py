"""Synthetic prices follow their formulas, are the same for the same seed, and make sound bars."""

import math

import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.trading.ohlcv import load_trading_data
from proxima.domains.trading.patterns import PATTERNS, describe_patterns
from proxima.domains.trading.synthetic import (
    DAILY_ROWS,
    _times,
    generate,
    pattern_params,
)

MANY = 100_000
# with returns so wide that a missing −σ²/2 would show
UNPREDICTABLE = {
    "random_walk": {"volatility": 0.1},
    "garch": {"omega": 2e-4},
    "jump_diffusion": {"volatility": 0.05, "jump_volatility": 0.1},
    "heston": {"variance": 2.0, "variance_volatility": 2.0},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file whose returns the bootstrap draws."""
    path = tmp_path_factory.mktemp("source") / "prices.parquet"
    generate("garch", 500, 7).write_parquet(path)
    return path


def settings(pattern, source):
    return {"source": str(source)} if pattern == "bootstrap" else {}


def returns_of(pattern, rows=MANY, seed=0, **params):
    return np.diff(np.log(generate(pattern, rows, seed, params)["close"].to_numpy()))


def autocorrelation(values, lag):
    centred = values - values.mean()
    return float(np.mean(centred[lag:] * centred[:-lag]) / np.mean(centred**2))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_same_seed_gives_the_same_bars_and_another_does_not(pattern, source):
    params = settings(pattern, source)
    first, again = (generate(pattern, 300, 5, params) for _ in range(2))
    assert first.equals(again)
    other = generate(pattern, 300, 6, params)
    for column in ("high", "low", "volume") if pattern == "sine_wave" else ("close", "volume"):
        assert not first[column].equals(other[column])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_bars_are_sound(pattern, source, tmp_path):
    frame = generate(pattern, 2_000, 1, settings(pattern, source))
    assert frame.columns == ["time", "open", "high", "low", "close", "volume"]
    assert frame.height == 2_000
    time, opened, high, low, close, volume = (frame[name].to_numpy() for name in frame.columns)
    assert all(array.dtype == np.float64 for array in (opened, high, low, close, volume))
    assert str(time[0]) == "2000-01-01T00:00:00.000000"
    assert set(np.diff(time)) == {np.timedelta64(1, "D")}
    np.testing.assert_array_equal(opened[1:], close[:-1])
    assert (high >= np.maximum(opened, close)).all() and (low <= np.minimum(opened, close)).all()
    assert (high > np.maximum(opened, close)).mean() > 0.5  # ticks in between reach further
    assert (low > 0).all() and (volume > 0).all() and np.ptp(volume) > 0
    frame.write_parquet(tmp_path / "bars.parquet")
    assert load_trading_data(tmp_path / "bars.parquet").equals(frame)  # nothing in it is refused


def test_ranges_have_the_volatility_of_the_returns():
    """Parkinson: E[ln(high/low)²] = 4 ln 2 σ², a little less since ticks are few."""
    frame = generate("random_walk", 20_000, 0)
    span = np.log(frame["high"].to_numpy() / frame["low"].to_numpy())
    estimate = math.sqrt(np.mean(span**2) / (4 * math.log(2)))
    assert 0.75 * 0.01 < estimate < 0.01


def test_so_many_bars_that_days_would_leave_the_calendar_are_minutes():
    assert _times(DAILY_ROWS)[-1].year == 9939
    minutes = _times(DAILY_ROWS + 1)
    assert (minutes[1] - minutes[0]).total_seconds() == 60


@pytest.mark.parametrize("smooth", [1, 5])
def test_sine_wave(smooth):
    given = {"base": 100.0, "amplitude": 20.0, "period": 37.0, "slope": 0.1, "phase": 0.7}
    close = generate("sine_wave", 120, 0, {**given, "mean_close": smooth})["close"]
    for t in range(120):
        terms = [
            100 + 20 * math.sin(2 * math.pi * bar / 37 + 0.7) + 0.1 * bar
            for bar in range(t - smooth + 1, t + 1)
        ]
        assert close[t] == pytest.approx(sum(terms) / smooth, rel=1e-12)


def test_sine_wave_defaults():
    close = generate("sine_wave", 500, 0)["close"].to_numpy()
    assert (close.min(), close.max()) == pytest.approx((42_000, 58_000))
    assert close[0] == close[100] == pytest.approx(50_000)


def test_upward_drift():
    frame = generate("upward_drift", 5_000, 0)
    rest = np.log(frame["close"].to_numpy() / 50_000) - 0.0015 * np.arange(5_000)
    assert abs(rest.mean()) < 4 * 5e-4 / math.sqrt(5_000)
    assert rest.std() == pytest.approx(5e-4, rel=0.04)


def test_mean_reversion_is_an_autoregression_of_the_log_price_over_its_base():
    x = np.log(generate("mean_reversion", MANY, 0, {"base": 7.0})["close"].to_numpy() / 7.0)
    slope = np.sum(x[1:] * x[:-1]) / np.sum(x[:-1] ** 2)
    assert slope == pytest.approx(0.9, abs=0.006)
    assert np.std(x[1:] - slope * x[:-1]) == pytest.approx(0.01, rel=0.01)
    assert x.std() == pytest.approx(0.01 / math.sqrt(0.1 * 1.9), rel=0.03)
    starts = [math.log(generate("mean_reversion", 2, seed)["open"][0] / 100) for seed in range(400)]
    assert np.std(starts) == pytest.approx(x.std(), rel=0.15)  # stationary from the first bar


@pytest.mark.parametrize("reversion", [0.05, 0.1, 0.5])
def test_mean_reversion_pays_what_theory_says(reversion):
    close = generate("mean_reversion", MANY, 3, {"reversion": reversion})["close"].to_numpy()
    x = np.log(close / 100)
    move, known = np.diff(x), x[:-1]
    for weights, expected in (
        (-np.sign(known), math.sqrt(reversion / (math.pi - reversion))),
        (-known, math.sqrt(reversion / (reversion + 2))),
    ):
        earned = weights * move
        assert earned.mean() / earned.std() == pytest.approx(expected, rel=0.05)


def test_trending():
    moves = returns_of("trending", 400_000)
    drift, noise = 0.003**2, 0.01**2
    assert moves.var() == pytest.approx(drift + noise, rel=0.02)
    for lag in (1, 10, 40):
        expected = 0.98**lag * drift / (drift + noise)
        assert autocorrelation(moves, lag) == pytest.approx(expected, abs=0.01)


def test_regime_switching():
    moves = returns_of("regime_switching", 400_000)
    drift, noise = 0.002**2, 0.01**2
    assert moves.var() == pytest.approx(drift + noise, rel=0.01)
    for lag in (1, 10, 40):
        expected = 0.98**lag * drift / (drift + noise)  # E[s s'] = 2·0.99 − 1
        assert autocorrelation(moves, lag) == pytest.approx(expected, abs=0.008)
    quiet = returns_of("regime_switching", 20_000, volatility=0.0)
    assert set(np.round(np.abs(quiet), 12)) == {0.002}
    assert np.mean(np.diff(np.sign(quiet)) != 0) == pytest.approx(0.01, abs=0.003)
    firsts = [
        returns_of("regime_switching", 2, seed, stay=1.0, volatility=0.0)[0] for seed in range(60)
    ]
    assert 15 < sum(first > 0 for first in firsts) < 45


def test_gbm():
    moves = returns_of("gbm")
    assert moves.std() * math.sqrt(252) == pytest.approx(0.2, rel=0.01)
    error = 0.2 / math.sqrt(252 * MANY)
    assert abs(moves.mean() - (0.08 - 0.02) / 252) < 4 * error


def looks_predictable(moves):
    """Whether past moves, their signs or their mean say anything about the next."""
    bound = 4 / math.sqrt(len(moves))
    lags = range(1, 21)
    signs = np.sign(moves - np.median(moves))
    past = np.convolve(moves, np.ones(5) / 5, mode="valid")[:-1]
    found = [autocorrelation(moves, lag) for lag in lags]
    found += [autocorrelation(signs, lag) for lag in lags]
    found.append(np.corrcoef(past, moves[5:])[0, 1])
    return max(map(abs, found)) > bound


@pytest.mark.parametrize("seed", range(3))
def test_random_walk_cannot_be_predicted(seed):
    assert not looks_predictable(returns_of("random_walk", seed=seed))


def test_what_can_be_predicted_is_seen_by_the_same_test():
    noise = 100 * np.exp(0.01 * np.cumsum(np.random.default_rng(0).standard_normal(MANY)))
    smooth = np.convolve(noise, np.ones(5) / 5, mode="valid")  # a mean of closes gives itself away
    assert looks_predictable(np.diff(np.log(smooth)))
    assert looks_predictable(returns_of("trending"))
    assert looks_predictable(returns_of("mean_reversion"))


@pytest.mark.parametrize("pattern", UNPREDICTABLE)
def test_martingales(pattern):
    growth = np.exp(returns_of(pattern, **UNPREDICTABLE[pattern]))
    error = growth.std() / math.sqrt(len(growth))
    assert abs(growth.mean() - 1) < 4 * error
    assert growth.var() / 2 > 8 * error  # what leaving the correction out would add can be seen


def test_garch_clusters():
    moves = returns_of("garch", 400_000)
    assert moves.var() == pytest.approx(2e-6 / 0.02, rel=0.05)
    assert autocorrelation(moves**2, 1) > 0.1
    assert abs(autocorrelation(moves, 1)) < 0.01


def test_garch_variance_is_a_slow_loop():
    rows, params = 50, pattern_params("garch", {})
    closes = PATTERNS["garch"].closes(rows, params, np.random.default_rng(3))
    z = np.random.default_rng(3).standard_normal(rows)
    variance, price = 2e-6 / (1 - 0.08 - 0.9), 100.0
    for t in range(rows):
        price *= math.exp(math.sqrt(variance) * z[t] - variance / 2)
        assert closes[t + 1] == pytest.approx(price, rel=1e-12)
        variance = 2e-6 + 0.08 * variance * z[t] ** 2 + 0.9 * variance


def test_jump_diffusion():
    moves = returns_of("jump_diffusion")
    assert moves.var() == pytest.approx(0.01**2 + 0.02 * (0.02**2 + 0.03**2), rel=0.03)
    centred = moves - moves.mean()
    assert np.mean(centred**4) / np.mean(centred**2) ** 2 > 5
    assert (moves < -0.06).mean() > 2 * (moves > 0.06).mean()


def test_heston():
    moves = returns_of("heston", 400_000)
    assert moves.var() * 252 == pytest.approx(0.04, rel=0.05)
    assert autocorrelation(moves**2, 1) > 0.02
    assert np.corrcoef(moves[:-1], moves[1:] ** 2)[0, 1] < -0.01  # falls raise the variance


def test_bootstrap_draws_blocks_of_the_source(source):
    known = np.diff(np.log(load_trading_data(source)["close"].to_numpy()))
    drawn = np.diff(
        np.log(generate("bootstrap", 20_000, 0, {"source": str(source)})["close"].to_numpy())
    )
    order = np.argsort(known)
    place = order[np.clip(np.searchsorted(known[order], drawn - 1e-12), 0, len(known) - 1)]
    np.testing.assert_allclose(known[place], drawn, atol=1e-11)
    follows = (place[1:] - place[:-1]) % len(known) == 1  # the first comes after the last
    assert follows.mean() == pytest.approx(1 - 1 / 20, abs=0.01)
    assert np.bincount(place, minlength=len(known)).min() > 0


def test_patterns_describe_themselves():
    described = {each["pattern"]: each for each in describe_patterns()}
    assert set(described) == {
        "sine_wave", "upward_drift", "mean_reversion", "trending", "random_walk", "gbm",
        "regime_switching", "garch", "jump_diffusion", "heston", "bootstrap",
    }  # fmt: skip
    for each in described.values():
        assert each["description"] and all(param["meaning"] for param in each["params"])
    amplitude = next(p for p in described["sine_wave"]["params"] if p["name"] == "amplitude")
    assert amplitude["default"] == 8_000


def test_settings_are_completed_with_defaults_of_their_type():
    resolved = pattern_params("sine_wave", {"amplitude": 10, "mean_close": 5.0})
    assert resolved["amplitude"] == 10.0 and isinstance(resolved["amplitude"], float)
    assert resolved["mean_close"] == 5 and isinstance(resolved["mean_close"], int)
    assert resolved["base"] == 50_000.0


MISTAKES = [
    ("sin_wave", {}, "data.pattern: no pattern 'sin_wave'; did you mean sine_wave?"),
    ("zzz", {}, "names all: sine_wave, upward_drift"),
    ("sine_wave", {"amplitud": 1}, "data.params.amplitud: sine_wave has no such setting; did you mean amp"),
    ("random_walk", {"zzz": 1}, "random_walk has no such setting; it has: base, volatility"),
    ("sine_wave", {"base": 0}, "data.params.base: 0 is not allowed: must be more than 0"),
    ("sine_wave", {"mean_close": 0}, "data.params.mean_close: 0 is not allowed: must be at least 1"),
    ("sine_wave", {"mean_close": 1.5}, "data.params.mean_close: expected a whole number, got 1.5"),
    ("sine_wave", {"base": "high"}, "data.params.base: expected a number, got 'high'"),
    ("sine_wave", {"base": True}, "data.params.base: expected a number, got True"),
    ("sine_wave", {"base": math.inf}, "data.params.base: expected a number, got inf"),
    ("sine_wave", {"amplitude": 60_000.0}, "sine_wave has the price"),
    ("sine_wave", {"slope": -5_000.0}, "no price; bring it back"),
    ("upward_drift", {"drift": 9.0}, "upward_drift has the price inf at bar 79"),
    ("trending", {"persistence": 1}, "data.params.persistence: 1 is not allowed: must be less than 1"),
    ("regime_switching", {"stay": 1.1}, "must be at most 1"),
    ("garch", {"alpha": 0.2}, "data.params.beta: alpha + beta is 1.1"),
    ("bootstrap", {}, "data.params.source: bootstrap needs the parquet or CSV"),
    ("bootstrap", {"source": 3}, "data.params.source: expected text, got 3"),
    ("bootstrap", {"source": "absent.parquet"}, "absent.parquet: no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "params", "words"), MISTAKES)
def test_mistakes_are_named(pattern, params, words):
    with pytest.raises(ProximaError) as told:
        generate(pattern, 100, 0, params)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("rows", "seed", "words"), [(1, 0, "data.rows: 1"), (9, -1, "data.seed: -1")]
)
def test_impossible_sizes_are_named(rows, seed, words):
    with pytest.raises(ProximaError, match=words):
        generate("sine_wave", rows, seed)
