"""Numbers of rollouts against slow loops, and pictures of them that show what was held and earned."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import BytesIO

import numpy as np
import polars as pl
import pytest
from PIL import Image
from rollout_frames import START, random_prices, rollout

from proxima.domains.trading import metrics, panels, rollouts
from proxima.domains.trading import plots as trading
from proxima.domains.trading.accounting import log_value
from proxima.report import style

GENERATOR = np.random.default_rng(0)


def pixels(figure, dots=50):
    return np.asarray(Image.open(BytesIO(style.png(figure, dots))).convert("RGB"), dtype=int)


def test_the_page_and_its_pictures_wait_with_heavy_imports():
    code = (
        "import sys; from proxima.domains.trading import page, plots;"
        "assert not {'matplotlib', 'PIL', 'polars', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rolling_sharpe_equals_a_slow_loop():
    log_returns = GENERATOR.normal(0.001, 0.02, size=60)
    found = rollouts.rolling_sharpe(log_returns, 10, 252)
    assert np.isnan(found[:9]).all()
    for bar in range(9, 60):
        window = np.exp(log_returns[bar - 9 : bar + 1]) - 1
        expected = window.mean() / window.std(ddof=1) * np.sqrt(252)
        assert found[bar] == pytest.approx(expected, rel=1e-9)


def test_rolling_sharpe_of_what_does_not_move_is_not_a_number():
    log_returns = np.concatenate([np.zeros(10), GENERATOR.normal(size=10), np.full(10, 0.1)])
    found = rollouts.rolling_sharpe(log_returns, 5, 252)
    assert np.isnan(found[:10]).all()  # every window of these holds zeros only
    assert np.isfinite(found[10:24]).all()
    assert np.isnan(found[24:]).all()
    assert np.isnan(rollouts.rolling_sharpe(log_returns[:3], 5, 252)).all()


def test_value_and_drawdown_start_before_the_first_bar():
    log_returns = np.log([0.9, 1.1, 1.2, 0.5])
    value = np.exp(log_value(log_returns))
    assert value == pytest.approx([1, 0.9, 0.99, 1.188, 0.594])
    found = metrics.drawdowns(np.log(value))
    assert found == pytest.approx([0, -0.1, -0.01, 0, -0.5])


def test_frames_agree_with_what_is_worked_out_from_their_returns():
    frame = rollout(random_prices(300), GENERATOR.choice([-1.0, 0.0, 1.0], size=299))
    value = log_value(frame["log_return"].to_numpy())
    assert metrics.drawdowns(value)[1:] == pytest.approx(frame["drawdown"].to_numpy())


@pytest.mark.parametrize(
    ("every", "unit", "rows", "columns"),
    [
        (timedelta(days=1), "month", ["2020", "2021"], 12),
        (timedelta(hours=2), "day", ["2020-11", "2020-12"], 31),
        (timedelta(minutes=5), "hour", ["2020-11-25", "2020-11-26"], 24),
    ],
)
def test_calendar_returns_equal_a_slow_loop(every, unit, rows, columns):
    start = datetime(2020, 11, 25, 3, tzinfo=UTC)
    stamps = [start + every * k for k in range(300)]
    log_returns = GENERATOR.normal(0, 0.01, size=300)
    time = rollouts.times(pl.DataFrame({"time": stamps}))
    found = rollouts.calendar(time, log_returns)
    assert (found.unit, found.rows[: len(rows)], len(found.columns)) == (unit, rows, columns)
    key, place = {
        "month": (lambda at: f"{at:%Y}", lambda at: at.month - 1),
        "day": (lambda at: f"{at:%Y-%m}", lambda at: at.day - 1),
        "hour": (lambda at: f"{at:%Y-%m-%d}", lambda at: at.hour),
    }[unit]
    expected = {}
    for at, each in zip(stamps, log_returns, strict=True):
        cell = (key(at), place(at))
        expected[cell] = (1 + expected.get(cell, 0.0)) * np.exp(each) - 1
    for row, name in enumerate(found.rows):
        for column in range(columns):
            value = expected.get((name, column), np.nan)
            assert found.values[row, column] == pytest.approx(value, nan_ok=True, abs=1e-12)
        inside = [np.exp(r) for at, r in zip(stamps, log_returns, strict=True) if key(at) == name]
        assert found.totals[row] == pytest.approx(np.prod(inside) - 1)


def test_thinned_lines_keep_their_ends_and_extremes():
    values = GENERATOR.normal(size=100_003)
    shown = panels.thinned(values)
    assert len(shown) <= panels.MOST_POINTS + 2
    assert (np.diff(shown) > 0).all()
    assert (shown[0], shown[-1]) == (0, 100_002)
    assert {values.argmin(), values.argmax()} <= set(shown)
    assert panels.thinned(values[:100]).tolist() == list(range(100))


@pytest.mark.parametrize(
    ("first", "last", "names"),
    [
        ("2000-01-01", "2001-03-01", ["2000-01", "2000-04", "2000-07", "2000-10", "2001-01"]),
        ("2000-01-03", "2000-02-20", ["2000-01-06", "2000-01-20", "2000-02-03", "2000-02-17"]),
        ("1999-02-03", "2031-02-20", ["2000", "2010", "2020", "2030"]),
        ("2000-01-03T22:10", "2000-01-04T03:50", ["01-04 00:00", "01-04 03:00"]),
        (
            "2000-01-03T22:10:00",
            "2000-01-03T22:11:40",
            ["22:10:00", "22:10:30", "22:11:00", "22:11:30"],
        ),
    ],
)
def test_times_are_named_at_round_places(first, last, names):
    found = panels.time_scale(np.datetime64(first), np.datetime64(last), most=5)
    assert found.names == names
    places = panels.seconds(np.array([first, last], dtype="M8[us]"))
    assert all(places[0] <= place <= places[1] for place in found.ticks)


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (-0.3, 0.45, ["0.7", "1", "1.5", "2"]),
        (0.0, 2.1, ["1", "2", "5", "10", "20", "50", "100"]),
        (-1.0, 4.2, ["0.1", "1", "10", "100", "1,000", "10k"]),
        (0.0, 30.0, ["1", "10k", "1e8", "1e12", "1e16", "1e20", "1e24", "1e28"]),
    ],
)
def test_shares_are_named_at_round_factors(low, high, names):
    assert panels.shares_scale(low, high).names == names


def frames(count, seed=0, continuous=False):
    generator = np.random.default_rng(seed)
    prices = random_prices(count + 1, seed)
    if continuous:
        return rollout(prices, generator.uniform(-1, 1, size=count))
    held = np.repeat(generator.choice([-1.0, 0.0, 1.0], size=count // 10 + 1), 10)[:count]
    return rollout(prices, held)


def references(count):
    prices = random_prices(count + 1)
    ahead = np.sign(np.diff(prices))
    return {
        "buy_and_hold": rollout(prices, np.ones(count)),
        "momentum": rollout(prices, np.roll(ahead, 1)),
        "model": rollout(prices, np.zeros(count)),
        "foresight": rollout(prices, ahead),
    }


def recorded(trials, references=None):
    return rollouts.Rollouts(trials, references or {}, periods_per_year=252)


FLAT = rollout(np.full(41, 100.0), np.zeros(40))
FEW, MANY = frames(50), frames(1_200)
PICTURES = {
    "few actions": lambda width: trading.actions_over_price(FEW, width=width),
    "many actions": lambda width: trading.actions_over_price(MANY, width=width),
    "weights": lambda width: trading.actions_over_price(frames(400, 1, True), width=width),
    "long": lambda width: trading.actions_over_price(frames(30_000), width=width),
    "one bar": lambda width: trading.actions_over_price(FEW.head(1), width=width),
    "no action": lambda width: trading.actions_over_price(FLAT, width=width),
    "equity": lambda width: trading.equity_and_drawdown(
        recorded({0: MANY, 3: frames(1_200, 2)}, references(1_200)), bold=3, width=width
    ),
    "short equity": lambda width: trading.equity_and_drawdown(
        recorded({0: FEW}), bold=0, width=width
    ),
    "flat equity": lambda width: trading.equity_and_drawdown(
        recorded({0: FLAT}), bold=0, width=width
    ),
    "sharpe": lambda width: trading.rolling_sharpe_plot(
        recorded({0: MANY, 1: frames(1_200, 2)}, references(1_200)), 100, bold=0, width=width
    ),
    "no sharpe": lambda width: trading.rolling_sharpe_plot(recorded({0: FLAT}), 20, 0, width=width),
    "rewards": lambda width: trading.reward_plot(MANY, frames(1_200, 5, True), width=width),
    "rollouts": lambda width: trading.compare_rollouts(MANY, frames(1_200, 5), width=width),
}


@pytest.mark.parametrize("width", [style.WIDTH, style.NARROW])
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_not_blank_and_nothing_reaches_their_edges(name, width):
    drawn = pixels(PICTURES[name](width))
    assert drawn.shape[1] == int(width * 50)
    assert drawn.std() > 5
    edges = np.concatenate([drawn[0], drawn[-1], drawn[:, 0], drawn[:, -1]])
    assert (edges == 255).all()  # no label, key or line is cut off


def shade(colour):
    """What a colour looks like behind prices when all of the money is in."""
    rgb = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)])
    return 255 - 0.3 * (255 - rgb)


def amount(drawn, colour):
    return (np.abs(drawn - shade(colour)).max(axis=2) <= 3).mean()


@pytest.mark.parametrize(
    ("weight", "seen", "unseen"),
    [(1.0, style.BLUE, style.VERMILLION), (-1.0, style.VERMILLION, style.BLUE)],
)
def test_shades_say_which_way_the_position_was(weight, seen, unseen):
    frame = rollout(random_prices(101), np.full(100, weight))
    drawn = pixels(trading.actions_over_price(frame))
    assert amount(drawn, seen) > 0.2
    assert amount(drawn, unseen) < 0.02  # the key's sample
    assert amount(pixels(trading.actions_over_price(FLAT)), seen) < 0.02


def test_buys_and_sells_are_marked_where_they_were_filled():
    frame = rollout(np.linspace(100, 110, 51), np.repeat([0.0, 1.0, -1.0], [10, 20, 20]))
    panel = trading.actions_over_price(frame).axes[0]
    marks = {line.get_marker(): line for line in panel.lines if line.get_marker() in ("^", "v")}
    at = panels.bar_edges(frame)
    assert marks["^"].get_xdata().tolist() == [at[10]]
    assert marks["v"].get_xdata().tolist() == [at[30]]
    assert marks["v"].get_ydata() == pytest.approx([frame["fill_price"][30]])


def test_foresight_leaves_the_picture_rather_than_press_the_agent_flat():
    mine = {0: frames(600)}
    near = references(600)
    figure = trading.equity_and_drawdown(recorded(mine, near), bold=0)
    words = [text.get_text() for text in figure.texts]
    assert any("perfect foresight" in word and "off the scale" in word for word in words)
    agent = log_value(mine[0]["log_return"].to_numpy()) / np.log(10)
    low, high = figure.axes[0].get_ylim()
    assert np.ptp(agent) > 0.1 * (high - low)


def test_many_bars_are_drawn_with_few_points():
    count = 200_000
    long = frames(count)
    for figure in (
        trading.actions_over_price(long),
        trading.equity_and_drawdown(recorded({0: long}, {"buy_and_hold": long}), bold=0),
        trading.compare_rollouts(long, long),
    ):
        points = [len(line.get_xdata()) for axes in figure.axes for line in axes.lines]
        assert max(points) <= 2 * panels.MOST_POINTS


def test_growth_is_written_as_a_factor():
    words = [
        trading._times(np.log(value)) for value in (1.0, 0.97531, 320.4, 12_345.0, 3.2e8, 1e-7)
    ]
    assert words == ["×1", "×0.975", "×320", "×12,300", "×3.2e8", "×1.0e−7"]


def test_times_are_utc_with_and_without_a_zone():
    stamps = [START, START + timedelta(hours=1)]
    aware = pl.DataFrame({"time": stamps})
    naive = pl.DataFrame({"time": [stamp.replace(tzinfo=None) for stamp in stamps]})
    assert (rollouts.times(aware) == rollouts.times(naive)).all()
