"""Trained portfolios on new bars: trade says what evaluation says, to the bit, also after restarts."""

import json
import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bars import answers_to_bars, as_csv
from tiny import SIZES, SMALL, command, run_main, without_hidden

import proxima
from proxima.domains.trading.ohlcv import COLUMNS
from proxima.domains.trading.portfolio.trade_lines import HEADER, line
from proxima.domains.trading.synthetic import generate
from proxima.run.files import find_trial
from proxima.scenario import load

KNOWN, NEW = 300, 30  # bars that are trained on, and bars that come later
ASSETS = ("b", "a", "d", "c")  # in the order of the wide file
BUDGET = (*SIZES["ppo"], "training.max_steps=256", "data.pattern=null", "env.fee=0.001")
RUNS = {
    # a file of every price: filled at opens, features that need a volume, a window
    "long": (*SMALL, "data.path=long.parquet", "data.features=null", "env.window=2"),
    # a file of closes: short too, with interest, a net that looks at every asset by itself
    "wide": (
        *without_hidden(SMALL),
        "data.path=wide.parquet",
        "env.fill=next_close",
        "env.weights=long_short",
        "env.leverage=1.5",
        "env.borrow_rate=0.0002",
        "network={kind: assets, hidden: [8]}",
    ),
}
FIGURES = ("log_return", "cost", "turnover", "equity", "drawdown")
BY_ASSET = ("weight", "contribution")


def wide_of(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.pivot(on="symbol", index="time", values="close").select("time", *ASSETS)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with prices, and a run on the first of them for each shape of file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("place"))
        frames = [
            generate("mean_reversion", KNOWN + NEW, seed).with_columns(
                volume=np.random.default_rng(seed).lognormal(5.0, 1.0, KNOWN + NEW),
                symbol=pl.lit(name),
            )
            for seed, name in enumerate(ASSETS)
        ]
        prices = pl.concat(frames).sort("time", "symbol").select("time", "symbol", *COLUMNS[1:])
        prices.head(KNOWN * 4).write_parquet("long.parquet")
        prices.write_parquet("grown.parquet")
        wide_of(prices).head(KNOWN).write_parquet("wide.parquet")
        new = prices.tail(NEW * 4)
        Path("new_long.csv").write_text(
            as_csv(new.sample(fraction=1, shuffle=True, seed=0).sort("time"))
        )
        Path("new_wide.csv").write_text(as_csv(wide_of(new).select("time", "c", "a", "b", "d")))
        for name, settings in RUNS.items():
            given = [*settings, *BUDGET, f"name={name}"]
            proxima.run_multiple_experiments(load("portfolio_reversion", given))
        yield Path.cwd()


@pytest.fixture
def main(place, capsys, monkeypatch):
    """The command line there."""
    monkeypatch.chdir(place)
    return lambda *arguments: run_main(arguments, capsys, monkeypatch)


@pytest.fixture
def trade(main, tmp_path, monkeypatch):
    """Answers of `proxima trade` to a file, or to lines of standard input."""
    return partial(answers_to_bars, main, tmp_path, monkeypatch, "new_{run}.csv")


def same_bits(answers: list[dict], rollout: pl.DataFrame) -> None:
    rows = [answer["settled"] for answer in answers if answer["settled"] is not None]
    assert len(rows) == rollout.height > 20
    times = [f"{time}Z" for time in rollout["time"].dt.strftime("%Y-%m-%dT%H:%M:%S")]
    assert [row["time"] for row in rows] == times
    for name in FIGURES:
        values = np.array([row[name] for row in rows])
        assert values.tobytes() == rollout[name].to_numpy().tobytes(), name
    for name in BY_ASSET:
        values = np.array([list(row[name].values()) for row in rows])
        assert values.tobytes() == rollout[name].to_numpy().tobytes(), name


@pytest.mark.parametrize("name", RUNS)
def test_trade_is_the_closing_evaluation_to_the_bit(name, trade):
    """On the test split, whose bars are in the run's own file: the account begins at its first decision."""
    rollout = pl.read_parquet(find_trial(name) / "rollouts/test.parquet")
    begin = rollout["time"][0].strftime("%Y-%m-%d")
    answers, said = trade(name, "--from", begin, "--capital", "1", bars=f"{name}.parquet")
    assert said.code == 0 and "Begins flat with 1 and" in said.err
    assert len(answers) == rollout.height + 2, "two more are decided than are filled and held"
    same_bits(answers, rollout)


@pytest.mark.parametrize("name", RUNS)
def test_a_restart_at_any_bar_changes_nothing(name, trade):
    """A file at once, or its lines some at a time, each time by a command of its own."""
    whole, _ = trade(name, state="whole")
    header, *lines = Path(f"new_{name}.csv").read_text().splitlines()
    each = len(lines) // NEW  # lines of a bar
    parts = []
    for start in range(0, NEW, 11):
        some = "\n".join([header, *lines[start * each : (start + 11) * each], ""])
        answers, said = trade(name, lines=some)
        assert said.code == 0, said.err
        parts += answers
    assert parts == whole and len(whole) == NEW


def test_a_killed_process_goes_on_where_it_was(place, trade, tmp_path):
    """SIGKILL after an answer, at whatever point of saving it that comes."""
    whole, _ = trade("wide", state="whole")
    header, *lines = Path("new_wide.csv").read_text().splitlines(keepends=True)
    arguments = ("trade", "wide", "--bars", "-", "--json", "--state", tmp_path / "killed")
    process = subprocess.Popen(
        command(*arguments),
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        process.stdin.write(header + "".join(lines[:9]))
        process.stdin.flush()
        said = [json.loads(process.stdout.readline()) for _ in range(9)]
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
    assert said == whole[:9]
    rest, after = trade("wide", state="killed")
    assert after.code == 0 and rest[-(NEW - 9) :] == whole[9:]


def test_an_account_is_cash_and_units_that_orders_change(trade):
    """Each fill is the order before, at the prices that came; cash and units follow from the fills alone."""
    answers, _ = trade("long")
    new = pl.read_csv("new_long.csv")
    opens = {(row["time"], row["symbol"]): row["open"] for row in new.iter_rows(named=True)}
    cash, units, filled = 10_000.0, dict.fromkeys(sorted(ASSETS), 0.0), 0
    for before, answer in zip([None, *answers], answers, strict=False):
        assert set(answer["targets"]) == set(ASSETS)
        for asset, fill in answer["fills"].items():
            order = before["orders"][asset]
            assert fill["price"] == opens[answer["time"].removesuffix("Z"), asset]
            assert order["price"] == before["closes"][asset]
            signed = fill["units"] if fill["side"] == "buy" else -fill["units"]
            cash -= signed * fill["price"] + fill["cost"]
            units[asset] += signed
            filled += 1
        account = answer["account"]
        np.testing.assert_allclose(account["cash"], cash, rtol=1e-9)
        np.testing.assert_allclose([account["units"][name] for name in units], list(units.values()))
        worth = {name: units[name] * answer["closes"][name] for name in units}
        np.testing.assert_allclose(account["equity"], cash + sum(worth.values()))
        weights = [worth[name] / account["equity"] for name in units]
        np.testing.assert_allclose([account["weights"][name] for name in units], weights)
    assert filled > 50


def bar(day: str = "2000-10-27", shape: str = "wide", **cells: str) -> str:
    """The lines of a bar after the run's last one, with these cells instead."""
    closes = dict.fromkeys(ASSETS, "100") | cells
    if shape == "wide":
        return ",".join([day, *closes.values()]) + "\n"
    return "".join(
        f"{day},{name},{price},{price},{price},{price},5\n" for name, price in closes.items()
    )


WIDE, LONG = f"time,{','.join(ASSETS)}\n", "time,symbol,open,high,low,close,volume\n"
REFUSED = [
    # run, lines, what is said, answers before
    (
        "wide",
        WIDE + bar("2000-10-30"),
        "row 1, column time: 2000-10-30T00:00:00Z is 4 days after",
        0,
    ),
    ("wide", WIDE + bar("2000-10-26"), "row 1, column b: 100 was", 0),
    ("wide", WIDE + bar("1999-01-01"), "row 1, column time: 1999-01-01T00:00:00Z is not after", 0),
    ("wide", WIDE + bar(d="1e9"), "row 1, column d: 1e+09 is a million times the last close", 0),
    ("wide", WIDE + bar(d="x"), "row 1, column d: 'x' is not a number", 0),
    ("wide", WIDE + bar() + bar("2000-10-28", a="-1"), "row 2, column a: -1 is not a price", 1),
    (
        "wide",
        WIDE + bar() + bar(c="101"),
        "row 2, column c: 101 was 100 when the bar of 2000-10-27",
        1,
    ),
    ("wide", WIDE + "2000-10-27,1,2\n", "row 1: has 3 cells, the header has 5", 0),
    ("wide", bar(), "row 1: is a bar; the first line names the columns, such as time,b,a,…", 0),
    ("wide", "time,b,a,d\n2000-10-27,1,1,1\n", "has no c, which the policy trades", 0),
    ("wide", "time,b,a,d,e\n2000-10-27,1,1,1,1\n", "column 5: 'e' is no asset that the policy", 0),
    ("wide", WIDE + bar().strip(), "row 1: does not end with a line feed", 0),
    ("long", WIDE + bar(), "has no open and no volume, which the policy needs", 0),
    ("long", LONG + bar(shape="long", e="1"), "row 5, column symbol: 'e' is no asset", 1),
    ("long", LONG + bar(shape="long", a="-1"), "row 2, column open: -1 is not a price", 0),
    (
        "long",
        LONG + bar(shape="long") + bar("2000-10-28", "long", d="1e9"),
        "row 7, column close of d: 1e+09 is a million times the last close (100)",
        1,
    ),
    (
        "long",
        LONG + bar(shape="long") + bar("2000-10-30", "long"),
        "row 5, column time: 2000-10-30T00:00:00Z is 3 days after",
        1,
    ),
    (
        "long",
        LONG + "".join(bar(shape="long").splitlines(keepends=True)[:3]),
        "ends within the bar of 2000-10-27: c did not come, so it is not traded",
        0,
    ),
    (
        "long",
        LONG + "".join(bar(shape="long").splitlines(keepends=True)[:2]) + bar("2000-10-28", "long"),
        "row 3, column time: 2000-10-28T00:00:00Z begins another bar, and that of 2000-10-27 lacks c, d",
        0,
    ),
    (
        "long",
        LONG + bar(shape="long").splitlines(keepends=True)[0] * 2,
        "row 2, column symbol: b has come already in the bar of 2000-10-27, row 1",
        0,
    ),
]


@pytest.mark.parametrize(("run", "lines", "words", "before"), REFUSED)
def test_bars_that_do_not_continue_the_past_are_refused(run, lines, words, before, trade):
    answers, said = trade(run, lines=lines)
    assert said.code == 1 and words in said.err and "standard input: " in said.err, said.err
    assert len(answers) == before, "what came before stays taken"


def test_a_bar_at_which_a_feature_is_no_number_is_refused(trade):
    """A volume that does not change has no deviation; before a whole window of it there is an answer."""
    days = [np.datetime64("2000-10-27") + number for number in range(24)]
    flat = LONG + "".join(bar(str(day), "long", a=str(100 + k % 3)) for k, day in enumerate(days))
    answers, said = trade("long", lines=flat)
    assert said.code == 1 and len(answers) == 19 and answers[-1]["targets"] is not None
    # row 77 is the first of the twentieth bar, four lines each
    assert "standard input: row 77: the feature volume_zscore_20 of a is no finite" in said.err


def test_a_file_of_other_assets_is_refused(trade, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text(Path("new_long.csv").read_text().replace(",d,", ",x,"))
    row = next(k for k, text in enumerate(path.read_text().splitlines()) if ",x," in text)
    said = trade("long", bars=str(path))[1]
    assert f"other.csv: row {row}, column symbol: 'x' is no asset" in said.err
    text = Path("new_long.csv").read_text().splitlines(keepends=True)
    path.write_text("".join(text[:2] + text[3:]))
    said = trade("long", bars=str(path))[1]
    assert said.code == 1 and "every asset needs every bar" in said.err


def test_a_gap_is_gone_over_when_asked_to(trade):
    answers, said = trade("wide", "--any-gap", lines=WIDE + bar("2000-11-30"))
    assert said.code == 0 and len(answers) == 1
    assert trade("wide", lines=WIDE + bar("2000-12-30"))[1].code == 1, "once is not always"


def test_a_long_file_is_taken_where_closes_are_enough(trade):
    """By its closes alone, and in whichever order the assets come."""
    assert trade("wide", bars="new_long.csv", state="other")[0] == trade("wide")[0]


def test_the_runs_own_file_grown_longer_is_taken_from_its_first_new_bar(trade):
    answers, said = trade("long", bars="grown.parquet")
    assert said.code == 0 and "300 bars were known already" in said.err
    assert answers == trade("long", state="other")[0]
    again, _ = trade("long", bars="grown.parquet")
    assert again == answers[-1:], "the last answer is told again"


def test_without_a_past_features_warm_up_in_the_bars(trade):
    answers, said = trade("long", "--fresh")
    assert "and no past" in said.err
    decided = [answer["targets"] is not None for answer in answers]
    assert decided == [False] * 21 + [True] * 9, "20 bars of volatility and volume, 1 of the window"
    assert answers[0]["orders"] == answers[0]["fills"] == {}


def test_bars_before_the_start_are_only_looked_at(trade):
    answers, _ = trade("wide", "--from", "2000-11-05")
    watched, traded = answers[:9], answers[9:]
    assert traded[0]["time"] == "2000-11-05T00:00:00Z"
    assert {answer["account"]["equity"] for answer in [*watched, traded[0]]} == {10_000.0}
    assert all(answer["targets"] is None for answer in watched)


def test_a_state_belongs_to_its_policy_and_its_start(trade, tmp_path):
    trade("wide", "--capital", "500", lines=WIDE + bar())
    for arguments, words in (
        (("--capital", "600"), "--capital: the trading in"),
        (("--from", "2000-10-01"), "with 300 bars of past and a capital of 500"),
        (("--fresh",), "--fresh: the trading in"),
    ):
        said = trade("wide", *arguments)[1]
        assert said.code == 1 and words in said.err
    bars = tmp_path / "state" / "bars.csv"
    assert bars.read_text().splitlines()[0] == "time,b close,a close,d close,c close"
    for name, damage in (("bars.csv", "time\n"), ("past.parquet", ""), ("state.json", "{}")):
        shutil.copytree(tmp_path / "state", tmp_path / name)
        (tmp_path / name / name).write_text(damage)
        said = trade("wide", state=name)[1]
        assert said.code == 1 and f"{name}/{name}: " in said.err and "damaged" in said.err


def test_lines_for_people_have_80_columns(main, tmp_path):
    said = main("trade", "long", "--bars", "new_long.csv", "--state", str(tmp_path / "state"))
    header, *lines = said.out.splitlines()
    assert header == HEADER and len(lines) == NEW and max(map(len, said.out.splitlines())) <= 80
    assert lines[0].startswith("2000-10-27   10000.00 +0.0000      4")
    for name in (*ASSETS, "%"):
        assert f"{name} " in f"{header} {lines[0]} "


@pytest.mark.parametrize("name", ["a", "a name that is much longer than there is room for"])
def test_a_line_has_80_columns_whatever_assets_are_called(name):
    targets = {f"{name} {k}": -0.123 * k for k in range(30)}
    order = {"side": "sell", "units": 2.5, "price": 1234.5, "cost": 3.1}
    account = {"equity": 987654.321, "log_return": -0.1234}
    answer = {"time": "2004-02-12T00:00:00Z", "targets": targets, "ruined": False}
    text = line({**answer, "orders": dict.fromkeys(targets, order), "account": account})
    assert 60 < len(text) <= 80 and name[:10] in text


@pytest.mark.parametrize("name", RUNS)
def test_an_evaluation_on_new_prices_has_the_figures_of_trading_them(name, main, trade):
    figures = json.loads(main("evaluate", name, "--data", f"new_{name}.csv", "--json").out)
    answers, _ = trade(name, "--capital", "1")
    rows = [answer["settled"] for answer in answers if answer["settled"] is not None]
    assert figures["past"] == "run" and figures["decisions"] == len(rows) == NEW - 2
    assert figures["agent"]["log_return"] == rows[-1]["log_value"]
    assert figures["agent"]["max_drawdown"] == min(row["drawdown"] for row in rows)
    assert set(figures["attribution"]["assets"]) == set(ASSETS)
    # the run's own file, grown longer, has the same new bars
    grown = json.loads(main("evaluate", name, "--data", "grown.parquet", "--json").out)
    assert grown["agent"] == figures["agent"] and grown["references"] == figures["references"]
    assert grown["notes"] == [*figures["notes"], "left out: 300 bars of the run's own data"]
    said = main("evaluate", name, "--data", f"new_{name}.csv").out
    assert "features know the run's past: the bars follow 2000-10-26" in said
    for words in ("policy ", "uniform buy and hold ", "OLMAR ", "chance ", "drawdown", "Sharpe"):
        assert words in said
    assert max(map(len, said.splitlines())) <= 80


def test_prices_of_other_times_are_evaluated_by_themselves(main, place, tmp_path):
    """Bars of an hour, years later: features warm up in them."""
    hours = pl.datetime_range(
        pl.datetime(2020, 1, 1), pl.datetime(2020, 1, 31), "1h", eager=True, time_zone="UTC"
    )
    frame = pl.read_parquet("wide.parquet").with_columns(time=hours.head(KNOWN))
    frame.write_parquet(tmp_path / "other.parquet")
    said = main("evaluate", "wide", "--data", str(tmp_path / "other.parquet"), "--json")
    figures = json.loads(said.out)
    assert figures["past"] == "none" and figures["periods_per_year"] == 8_760
    assert "the bars do not continue" in figures["notes"][0]
    assert "a bar every 1 hour, and every 1 day in training" in figures["notes"][-1]
    said = main("evaluate", "long", "--data", str(tmp_path / "other.parquet"))
    assert said.code == 1 and "has no open and no volume, which the policy needs" in said.err


def test_predict_takes_raw_bars_in_any_form(place, trade, monkeypatch):
    """And gives what trade said at that bar, for who holds what it held."""
    pandas = pytest.importorskip("pandas")
    answers, _ = trade("wide")
    long = pl.read_parquet("grown.parquet")
    policy = proxima.load_policy("wide")
    assert policy.about["raw"]["assets"] == list(ASSETS)
    row = 20
    table, account = wide_of(long).head(KNOWN + row + 1), answers[row]["account"]
    held = {name: account[name] for name in ("cash", "units")}
    columns = {name: table[name].to_numpy() for name in table.columns}
    frame = pandas.DataFrame(columns)
    known = long.head(4 * (KNOWN + row + 1))
    for raw in (table, columns, frame, frame.set_index("time"), table.to_arrow(), known):
        target = policy.predict(raw, held)
        assert list(target) == list(ASSETS)
        np.testing.assert_allclose(
            list(target.values()), list(answers[row]["targets"].values()), atol=1e-5
        )
    assert policy.predict(table, {"weights": account["weights"]}) == policy.predict(table, held)
    assert policy.predict(wide_of(long).head(KNOWN + 1)) == answers[0]["targets"], "who has cash"
    seen = {
        name: np.zeros(field["shape"], np.float32)
        for name, field in policy.about["observation"]["fields"].items()
    }
    assert policy.predict(seen).shape == (4,), "observations are taken as before"
    for raw, state, words in (
        (table.head(1), None, "1 bars are too few; this policy needs 2"),
        (
            table,
            {"cash": 5},
            "expected cash and units by asset, or weights by asset, .* got .*cash",
        ),
        (table, {"weights": {"e": 1.0}}, "state.weights: 'e' is no asset"),
        (table, {"weights": {"a": float("nan")}}, "as finite numbers"),
        (table, {"cash": -1, "units": {}}, "are worth nothing together"),
        (table.with_columns(a=-1.0), None, "row 1, column a: -1 is not a price"),
        (table.with_columns(e=1.0), None, "'e' is no asset that the policy trades"),
        (table.drop("time"), None, "no column time"),
        (seen, {"weights": {}}, "a state goes with raw input"),
    ):
        with pytest.raises(proxima.ProximaError, match=words):
            policy.predict(raw, state)


@pytest.mark.parametrize("name", RUNS)
def test_stepping_over_bars_gives_the_answers_of_trade(name, trade):
    """All bars there are at first, then the new ones, some of them known already; in turn with others."""
    answers, _ = trade(name)
    long, policy = pl.read_parquet("grown.parquet"), proxima.load_policy(name)
    start, state = str(long["time"][4 * KNOWN].replace(tzinfo=None)), None
    assert policy.step(long.head(4 * KNOWN), {"from": start})[0] is None, "only looked at"
    for first, last in ((0, KNOWN + 10), (KNOWN + 10, KNOWN + 11), (KNOWN + 5, KNOWN + NEW)):
        bars = long.slice(4 * first, 4 * (last - first))
        target, state = policy.step(bars, {"from": start} if state is None else state)
        assert state.answer == answers[last - KNOWN - 1] and target == state.answer["targets"]
        policy.step(long.head(200))
    again, same = policy.step(long.tail(20), state)
    assert again == target and same is state, "what is known is not traded twice"
    changed = long.tail(4).with_columns(pl.col("open", "high", "low", "close") * 1.01)
    with pytest.raises(proxima.ProximaError, match=r"row \d, column .* a bar does not change"):
        policy.step(changed, state)
    with pytest.raises(proxima.ProximaError, match="state: is of another policy"):
        proxima.load_policy("wide" if name == "long" else "long").step(long, state)
