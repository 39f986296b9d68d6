"""Trained policies on new bars: what trade says is what evaluation says, to the bit, also after restarts."""

import json
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bars import answers_to_bars, as_csv
from tiny import SIZES, SMALL, command, run_main

import proxima
from proxima.domains.trading.synthetic import generate
from proxima.domains.trading.trade_lines import line as _line
from proxima.run.files import find_trial
from proxima.scenario import load

KNOWN, NEW = 400, 60  # bars that are trained on, and bars that come later
ACCOUNT = ("env.fee=0.001", "env.slippage=0.0005", "env.borrow_rate=0.0002")
DATA = ("data.pattern=null", "data.params={}", "data.path=prices.parquet", "tracking.enabled=false")
RUNS = {
    # name: scenario and settings
    "discrete": (
        "sine_wave",
        (*SMALL, *SIZES["ppo"], "training.max_steps=512", "env.window=3", "data.features=null"),
    ),
    "continuous": ("sine_wave_ddpg", (*SMALL, *SIZES["ddpg"], "training.max_steps=512")),
    "remembering": (
        "sine_wave",
        (*SMALL, *SIZES["ppo"], "training.max_steps=512", "network={memory: gru, memory_size: 4}"),
    ),
}
SETTLED = ("target", "weight", "log_return", "equity", "drawdown")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with prices, and a run of each kind that was trained on the first of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("place"))
        prices = generate("mean_reversion", KNOWN + NEW, 3)
        volume = np.random.default_rng(0).lognormal(5.0, 1.0, prices.height)
        prices = prices.with_columns(volume=volume)
        prices.head(KNOWN).write_parquet("prices.parquet")
        prices.write_parquet("grown.parquet")
        Path("new.csv").write_text(as_csv(prices.tail(NEW)))
        for name, (scenario, settings) in RUNS.items():
            given = [*settings, *DATA, *ACCOUNT, f"name={name}"]
            proxima.run_multiple_experiments(load(scenario, given))
        yield Path.cwd()


@pytest.fixture
def main(place, capsys, monkeypatch):
    """The command line there; `trade` gives its answers."""
    monkeypatch.chdir(place)
    return lambda *arguments: run_main(arguments, capsys, monkeypatch)


@pytest.fixture
def trade(main, tmp_path, monkeypatch):
    """Answers of `proxima trade` to a file, or to lines of standard input."""
    return partial(answers_to_bars, main, tmp_path, monkeypatch, "new.csv")


def settled(answers: list[dict]) -> pl.DataFrame:
    """The decisions whose holdings are over, as an evaluation writes them."""
    rows = [answer["settled"] for answer in answers if answer["settled"] is not None]
    return pl.DataFrame({"time": [row["time"] for row in rows]}).with_columns(
        pl.Series(name, [row[name] for row in rows]) for name in SETTLED
    )


def same_bits(frame: pl.DataFrame, rollout: pl.DataFrame) -> None:
    assert frame.height == rollout.height > 20
    times = [f"{time}Z" for time in rollout["time"].dt.strftime("%Y-%m-%dT%H:%M:%S")]
    assert frame["time"].to_list() == times
    for name in SETTLED:
        assert frame[name].to_numpy().tobytes() == rollout[name].to_numpy().tobytes(), name


@pytest.mark.parametrize("name", RUNS)
def test_trade_is_the_closing_evaluation_to_the_bit(name, trade):
    """On the test split, whose bars are in the run's own file: the account begins at its first decision."""
    rollout = pl.read_parquet(find_trial(name) / "rollouts/test.parquet")
    begin = rollout["time"][0].strftime("%Y-%m-%d")
    answers, said = trade(name, "--from", begin, "--capital", "1", bars="prices.parquet")
    assert said.code == 0 and "Begins flat with 1 and" in said.err
    assert len(answers) == rollout.height + 2, "two more are decided than are filled and held"
    same_bits(settled(answers), rollout)
    assert len(set(rollout["target"].to_list())) > 1 or name == "discrete"


@pytest.mark.parametrize("name", RUNS)
def test_a_restart_at_any_bar_changes_nothing(name, trade):
    """A file at once, or its lines some at a time, each time by a command of its own."""
    whole, _ = trade(name, state="whole")
    header, *lines = Path("new.csv").read_text().splitlines()
    parts = []
    for start in range(0, NEW, 13):
        some = "\n".join([header, *lines[start : start + 13], ""])
        answers, said = trade(name, lines=some)
        assert said.code == 0
        parts += answers
    assert parts == whole and len(whole) == NEW


@pytest.mark.parametrize("name", RUNS)
def test_an_evaluation_on_new_prices_has_the_figures_of_trading_them(name, main, trade):
    figures = json.loads(main("evaluate", name, "--data", "new.csv", "--json").out)
    answers, _ = trade(name, "--capital", "1")
    rows = settled(answers)
    assert figures["past"] == "run" and figures["decisions"] == rows.height == NEW - 2
    assert figures["agent"]["log_return"] == answers[-1]["settled"]["log_value"]
    assert figures["agent"]["max_drawdown"] == rows["drawdown"].min()
    # the run's own file, grown longer, has the same new bars
    grown = json.loads(main("evaluate", name, "--data", "grown.parquet", "--json").out)
    assert grown["agent"] == figures["agent"] and grown["references"] == figures["references"]
    assert grown["notes"] == [*figures["notes"], "left out: 400 bars of the run's own data"]
    held = pl.read_csv("new.csv")["open"].to_numpy()
    bought = np.log(held[-1] / held[1]) - np.log(1.0005 / 0.999)  # slippage and fee
    log_return = figures["references"]["buy_and_hold"]["log_return"]
    np.testing.assert_allclose(log_return, bought, rtol=1e-9)
    said = main("evaluate", name, "--data", "new.csv").out
    assert "features know the run's past: the bars follow 2001-02-03" in said
    for words in ("policy ", "buy and hold ", "momentum ", "chance ", "drawdown", "Sharpe"):
        assert words in said
    assert max(map(len, said.splitlines())) <= 80


def test_an_account_is_cash_and_units_that_orders_change(trade):
    """Each fill is the order before, at the price that came; cash and units follow from the fills alone."""
    answers, _ = trade("discrete")
    opens = pl.read_csv("new.csv")["open"].to_list()
    cash, units, filled = 10_000.0, 0.0, 0
    for before, answer, price in zip([None, *answers], answers, opens, strict=False):
        assert (answer["fill"] is None) == (before is None or before["order"] is None)
        if answer["fill"] is not None:
            fill, order = answer["fill"], before["order"]
            assert fill["side"] == order["side"] and fill["price"] == price
            np.testing.assert_allclose(fill["units"], order["units"], rtol=0.1)  # the open moved
            signed = fill["units"] if fill["side"] == "buy" else -fill["units"]
            cash, units, filled = cash - signed * price - fill["cost"], units + signed, filled + 1
        account = answer["account"]
        interest = 1e-3 * filled  # of what was borrowed until then, settled at fills
        np.testing.assert_allclose(account["units"], units, rtol=interest, atol=1e-9)
        np.testing.assert_allclose(account["cash"], cash, rtol=interest, atol=1e-6)
        value = account["cash"] + account["units"] * answer["close"]
        np.testing.assert_allclose(account["equity"], value)
        cash, units = account["cash"], account["units"]
    assert filled > 3


def line(time: str = "2001-02-04", price: str = "100", **cells: str) -> str:
    """A bar after the run's last one, with these cells instead."""
    bar = {"open": price, "high": price, "low": price, "close": price, "volume": "5"} | cells
    return ",".join([time, *bar.values()])


REFUSED = [
    (
        line("2001-02-06"),
        "row 1, column time: 2001-02-06T00:00:00Z is 3 days after the bar before (2001",
    ),
    (
        line("2001-02-03T06:00:00"),
        "is 6 hours after the bar before (2001-02-03), which is too soon",
    ),
    (
        line("2001-02-03T12:00:00+14:00"),
        "is not after the last bar (2001-02-03), and no bar of this",
    ),
    (line("1999-01-01"), "row 1, column time: 1999-01-01T00:00:00Z is not after the last bar"),
    (line("2001-02-03"), "row 1, column open: 100 was 99.5194 when"),
    (line(price="1e9"), "row 1, column close: 1e+09 is a million times the last close (100.013"),
    (line(price="-1"), "row 1, column open: -1 is not a price: must be more than 0"),
    (line(close="x"), "row 1, column close: 'x' is not a number"),
    (line(high="50"), "row 1, column high: 50 is below the bar's open or close"),
    (
        line("4 Feb 2001"),
        "is neither a header such as time,open,high,low,close,volume nor a bar such",
    ),
    (
        "2001-02-04,1,2",
        "row 1: has 3 cells; without a header a line is time,open,high,low,close,vol",
    ),
    (line().removesuffix(",5"), "has no column volume, and the policy's features need one"),
    (f"{line()}\n{line()},7", "row 2: has 7 cells, the header has 6"),
    (
        f"{line()}\n{line('2001-02-04', '101')}",
        "row 2, column open: 101 was 100 when the bar of 2001",
    ),
    (f"{line()}\n{line('2001-02-07')}", "row 2, column time: 2001-02-07T00:00:00Z is 3 days after"),
]


@pytest.mark.parametrize(("lines", "words"), REFUSED)
def test_bars_that_do_not_continue_the_past_are_refused(lines, words, trade):
    answers, said = trade("discrete", lines=f"{lines}\n")
    assert said.code == 1 and words in said.err and "standard input: " in said.err
    assert len(answers) == lines.count("\n"), "what came before stays taken"


def test_a_line_that_may_be_cut_short_is_refused(trade):
    answers, said = trade("discrete", lines=f"{line()}\n{line('2001-02-05')}")
    assert said.code == 1 and "row 2: does not end with a line feed" in said.err
    assert len(answers) == 1


def test_a_bar_at_which_a_feature_is_no_number_is_refused(trade):
    """A volume that does not change has no deviation; before a whole window of it there is an answer."""
    flat = "".join(f"{line(f'2001-02-{day:02}', str(100 + day % 3))}\n" for day in range(4, 28))
    answers, said = trade("discrete", lines=flat)
    assert said.code == 1 and "row 20: the feature volume_zscore_20 is no finite" in said.err
    assert len(answers) == 19 and answers[-1]["target"] is not None
    answers, said = trade("discrete", lines=flat)
    assert said.code == 1 and len(answers) == 1, "still, after what is known"


def test_a_gap_is_gone_over_when_asked_to(trade):
    answers, said = trade("discrete", "--any-gap", lines=f"{line('2001-03-06')}\n")
    assert said.code == 0 and len(answers) == 1
    assert trade("discrete", lines=f"{line('2001-04-06')}\n")[1].code == 1, "once is not always"


def test_a_gap_is_refused_without_a_past_too(trade, tmp_path):
    """A policy says how far apart the bars were that it was trained on."""
    first, _ = trade("discrete", "--fresh", lines=f"{line()}\n")
    assert len(first) == 1
    _, said = trade("discrete", lines=f"{line('2001-03-06')}\n")
    assert said.code == 1 and "a gap: bars are missing" in said.err
    bars = pl.read_parquet("grown.parquet")
    pl.concat([bars.head(60), bars.slice(70)]).write_parquet(tmp_path / "holed.parquet")
    holed = str(tmp_path / "holed.parquet")
    answers, said = trade("discrete", "--fresh", bars=holed, state="other")
    assert said.code == 1 and not answers and "row 61, column time" in said.err
    answers, said = trade("discrete", "--fresh", "--any-gap", bars=holed, state="other")
    assert said.code == 0 and len(answers) == bars.height - 10


def test_stepping_over_a_gap_is_refused_unless_asked_for(place, monkeypatch):
    monkeypatch.chdir(place)
    bars, policy = pl.read_parquet("grown.parquet"), proxima.load_policy("discrete")
    _, state = policy.step(bars.head(60))
    words = "row 1, column time: .* a gap: bars are missing.* state._replace.any_gap=True. goes on"
    with pytest.raises(proxima.ProximaError, match=words):
        policy.step(bars.slice(70), state)
    over, _ = policy.step(bars.slice(70), state._replace(any_gap=True))
    _, begun = policy.step(bars.head(60), {"any_gap": True})
    assert policy.step(bars.slice(70), begun)[0] == over
    with pytest.raises(proxima.ProximaError, match=r"state: expected .*any_gap"):
        policy.step(bars, {"any_gap": "yes"})


def test_bars_before_the_start_are_only_looked_at(trade):
    """Weeks may lie between a run's data and today."""
    answers, _ = trade("discrete", "--from", "2001-02-20")
    watched, traded = answers[:16], answers[16:]
    assert traded[0]["time"] == "2001-02-20T00:00:00Z"
    assert {answer["target"] for answer in watched} == {None}
    assert {answer["account"]["equity"] for answer in [*watched, traded[0]]} == {10_000.0}
    assert None not in {answer["target"] for answer in traded}
    lines = Path("new.csv").read_text().splitlines(keepends=True)
    for some in (lines[:10], lines[10:]):
        again, _ = trade("discrete", "--from", "2001-02-20", state="b", lines="".join(some))
    assert again == answers[9:]


def test_bars_that_are_known_are_left_out_and_the_last_answer_told_again(trade):
    first, _ = trade("discrete", lines=f"{line()}\n{line('2001-02-05')}\n")
    again, said = trade("discrete", lines=f"{line('2001-02-05')}\n")
    assert again == first[1:] and "1 bar was known already" in said.err
    assert trade("discrete", lines=f"{line()}\n")[0] == []
    both, _ = trade("discrete", lines=f"{line('2001-02-05')}\n{line('2001-02-06', '101')}\n")
    assert both[0] == first[1] and both[1]["time"] == "2001-02-06T00:00:00Z"


def test_a_state_belongs_to_its_policy_and_its_start(trade, tmp_path):
    trade("discrete", "--capital", "500", lines=f"{line()}\n")
    for arguments, words in (
        (("--capital", "600"), "--capital: the trading in"),
        (
            ("--from", "2001-01-01"),
            "with 400 bars of past and a capital of 500; leave it out to go on",
        ),
        (("--fresh",), "--fresh: the trading in"),
    ):
        said = trade("discrete", *arguments)[1]
        assert said.code == 1 and words in said.err
    assert (
        trade("discrete", "--capital", "500")[1].code == 1
    )  # new.csv has that bar with other prices
    assert "was begun with another policy" in trade("continuous")[1].err
    bars = tmp_path / "state" / "bars.csv"
    bars.write_text(bars.read_text() + "2001-02-05T00:00:00.000000,1.0")  # killed before it counted
    answers, said = trade("discrete", lines=f"{line('2001-02-05')}\n")
    assert said.code == 0 and len(answers) == 1
    assert bars.read_text().count("\n") == 3
    for name, damage in (("bars.csv", "time\n"), ("past.parquet", ""), ("state.json", "{}")):
        shutil.copytree(tmp_path / "state", tmp_path / name)
        (tmp_path / name / name).write_text(damage)
        said = trade("discrete", state=name)[1]
        assert said.code == 1 and f"{name}/{name}: " in said.err and "damaged" in said.err


def test_what_nothing_was_traded_in_may_begin_otherwise(trade):
    """The first bars are refused, and the next try says how it should have begun."""
    far = f"{line('2011-02-06')}\n"
    assert trade("discrete", lines=far)[1].code == 1
    answers, said = trade("discrete", "--capital", "500", lines="")
    assert answers == [] and said.code == 0 and "No bars came" in said.err
    answers, said = trade("discrete", "--fresh", "--capital", "700", lines=far)
    assert said.code == 0 and "Begins flat with 700 and no past" in said.err
    assert answers[0]["account"]["cash"] == 700
    said = trade("discrete", "--capital", "500", lines=far)[1]
    assert said.code == 1 and "--capital: the trading in" in said.err


MISTAKES = [
    (("--capital", "-5"), "--capital -5: is no amount of money"),
    (("--from", "yesterday"), "--from yesterday: is not a time such as"),
    (("--from", "1990-01-01"), "so there is no bar before; --fresh trades without a past"),
    (("--fresh", "--from", "2001-01-01"), "--fresh: trades without the run's data"),
    (("--past", "absent.parquet"), "absent.parquet: no such file: the prices that the run was"),
    (("--past", "new.csv"), "its first 400 bars are not those that the run was trained on"),
    (("--trial", "7"), "has no trial 7; there are: 0"),
    (("--bars", "absent.csv"), "absent.csv: no such file"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_mistake_is_told_and_begins_nothing(arguments, words, trade, tmp_path):
    said = trade("discrete", *arguments)[1]
    assert said.code == 1 and words in said.err
    assert not list(tmp_path.rglob("state.json"))


def test_without_a_past_features_warm_up_in_the_bars(main, trade):
    answers, said = trade("discrete", "--fresh", lines=Path("new.csv").read_text())
    assert "and no past" in said.err
    decided = [answer["target"] is not None for answer in answers]
    assert decided == [False] * 22 + [True] * 38, (
        "20 bars of volatility and volume, 2 of the window"
    )
    some, _ = trade("discrete", "--fresh", state="twice", bars="new.csv")
    assert some == answers


def test_prices_of_another_market_are_evaluated_by_themselves(main, place, tmp_path):
    """Other dates, another length of bar, other columns, a time zone."""
    frame = generate("gbm", 200, 1).with_columns(volume=pl.int_range(200) % 7 + 1.0)
    hours = pl.datetime_range(
        pl.datetime(2020, 1, 1), pl.datetime(2020, 1, 31), "1h", eager=True, time_zone="UTC"
    )
    frame = frame.with_columns(time=hours.head(200)).rename({"time": "Date"})
    text = frame.with_columns(pl.col("Date").dt.convert_time_zone("Asia/Tokyo").dt.strftime("%+"))
    text.with_columns(extra=1).write_csv(tmp_path / "other.csv")
    said = main("evaluate", "discrete", "--data", str(tmp_path / "other.csv"), "--json")
    figures = json.loads(said.out)
    assert figures["past"] == "none" and figures["decisions"] == 200 - 22 - 2
    assert figures["first"] == "2020-01-01T22:00:00.000000"
    warm, other, columns = sorted(figures["notes"], key=lambda note: note[0] != "f")
    assert "first 22 bars: the bars do not continue" in warm and "left out: extra" in (
        other,
        columns,
    )
    assert "a bar every 1 hour, and every 1 day in training" in " ".join(figures["notes"])
    assert figures["periods_per_year"] == 8_760


def test_data_that_cannot_be_evaluated_is_refused_in_words(main, place, tmp_path):
    bad = Path("new.csv").read_text().splitlines()
    bad[3] = bad[3].replace(",", ",-", 1)
    (tmp_path / "bad.csv").write_text("\n".join(bad))
    (tmp_path / "short.csv").write_text(as_csv(generate("gbm", 15, 1)))
    (tmp_path / "one.csv").write_text("\n".join(Path("new.csv").read_text().splitlines()[:3]))
    checkpoint = str(find_trial("discrete") / "checkpoints/last")
    for arguments, words in (
        (("discrete", "--data", str(tmp_path / "bad.csv")), "row 3, column open: -"),
        (
            ("discrete", "--data", str(tmp_path / "short.csv")),
            "15 bars are too few for the features",
        ),
        (("discrete", "--data", str(tmp_path / "one.csv")), "leaves no bar to trade on"),
        (("discrete", "--data", "prices.parquet"), "has no bar that the run has not seen"),
        (("discrete", "--data", "new.csv", "--film", "a.gif"), "--film: shows an episode"),
        ((checkpoint, "--data", "new.csv"), "name its run or trial"),
    ):
        said = main("evaluate", *arguments)
        assert said.code == 1 and words in said.err and "Traceback" not in said.err, said.err


def test_a_run_whose_prices_are_gone_is_still_used(main, trade, place, tmp_path):
    """Moved, they are named; gone, an evaluation does without them."""
    (place / "prices.parquet").rename(place / "moved.parquet")
    try:
        said = trade("discrete")[1]
        assert (
            said.code == 1 and "prices.parquet: no such file" in said.err and "--past" in said.err
        )
        answers, said = trade("discrete", "--past", "moved.parquet")
        assert said.code == 0 and len(answers) == NEW
        figures = json.loads(main("evaluate", "discrete", "--data", "new.csv", "--json").out)
        assert (
            figures["past"] == "none" and "the run's own data cannot be read" in figures["notes"][0]
        )
    finally:
        (place / "moved.parquet").rename(place / "prices.parquet")
    assert trade("discrete", bars="grown.parquet")[0] == answers[-1:], "the state has its own past"


def test_predict_takes_raw_bars_in_any_form(place, trade, monkeypatch):
    """And gives what trade said at that bar, for who holds what it held."""
    pandas = pytest.importorskip("pandas")
    answers, _ = trade("continuous")
    frame, policy = pl.read_parquet("grown.parquet"), proxima.load_policy("continuous")
    assert policy.about["raw"]["bars"] == 15 and policy.about["raw"]["data"]["rows"] == KNOWN
    row = 30
    known, account = frame.head(KNOWN + row + 1), answers[row]["account"]
    held = {"cash": account["cash"], "units": account["units"]}
    columns = {name: known[name].to_numpy() for name in known.columns}
    table = pandas.DataFrame(columns)
    prices = known.select("open", "high", "low", "close", "volume").to_numpy()
    for raw in (known, columns, table, table.set_index("time"), prices, known.to_arrow()):
        np.testing.assert_allclose(policy.predict(raw, held), answers[row]["target"], atol=2e-4)
    assert policy.predict(known, {"weight": account["weight"]}) == policy.predict(known, held)
    flat = policy.predict(frame.head(KNOWN + 1))
    assert flat == answers[0]["target"]
    seen = np.zeros(policy.about["observation"]["shape"], np.float32)
    assert policy.predict(seen).shape == (1,), "observations are taken as before"
    assert policy.predict(np.zeros((3, *seen.shape))).shape == (3, 1)
    for raw, state, words in (
        (known.head(9), None, "9 bars are too few; this policy needs 15"),
        (known, {"cash": 5}, "expected cash and units, or weight, .* got .*cash"),
        (known.with_columns(close=-1.0), None, "row 1, column close: -1 is not a price"),
        (seen, {"weight": 1.0}, "a state goes with raw input"),
    ):
        with pytest.raises(proxima.ProximaError, match=words):
            policy.predict(raw, state)


@pytest.mark.parametrize("name", RUNS)
def test_stepping_over_bars_gives_the_answers_of_trade(name, trade, tmp_path):
    """All bars there are at first, then the new ones, some of them known already; in turn with others."""
    answers, _ = trade(name)
    frame, policy = pl.read_parquet("grown.parquet"), proxima.load_policy(name)
    start, state = str(frame["time"][KNOWN].replace(tzinfo=None)), None
    assert policy.step(frame.head(KNOWN), {"from": start})[0] is None, "only looked at"
    for first, last in ((0, KNOWN + 20), (KNOWN + 20, KNOWN + 21), (KNOWN + 10, KNOWN + NEW)):
        bars = frame.slice(first, last - first)
        target, state = policy.step(bars, {"from": start} if state is None else state)
        assert state.answer == answers[last - KNOWN - 1] and target == state.answer["target"]
        policy.step(frame.head(50))
    saved = json.loads((tmp_path / "state/state.json").read_text())["trader"]["memory"]
    assert {part: list(numbers) for part, numbers in state.trader.memory.items()} == saved
    assert bool(saved) == (name == "remembering")
    again, same = policy.step(frame.tail(5), state)
    assert again == target and same is state, "what is known is not traded twice"


def test_a_policy_that_remembers_trades_the_bars_it_is_asked_about(trade):
    fresh, _ = trade("remembering", "--fresh", bars="grown.parquet")
    frame, policy = pl.read_parquet("grown.parquet"), proxima.load_policy("remembering")
    targets = [answer["target"] for answer in fresh]
    first = next(row for row, target in enumerate(targets) if target is not None)
    changed = next(row for row in range(first + 20, KNOWN) if targets[row] != targets[row - 1])
    for row in (first, changed - 1, changed, len(targets) - 1):
        assert policy.predict(frame.head(row + 1)) == targets[row]
        held = {name: fresh[row]["account"][name] for name in ("cash", "units")}
        assert policy.predict(frame.head(row + 1), held) == targets[row]
    after_the_past, _ = trade("remembering", state="past")
    start = {"from": frame["time"][KNOWN].replace(tzinfo=None)}
    assert policy.predict(frame.head(KNOWN + 30), start) == after_the_past[29]["target"]
    _, state = policy.step(frame.head(40))
    assert policy.predict(frame.slice(40), state) == targets[-1]
    # what is said to be held changes the last decision, and not what is remembered before it
    remembered, loaded = [], policy._loaded

    def spy(observations, memory):
        remembered.append({part: numbers[0].tolist() for part, numbers in memory.items()})
        return loaded.step(observations, memory)

    policy._loaded = loaded._replace(step=spy)
    policy.predict(frame.head(41), {"weight": 0.25})
    assert remembered[-1] == {part: list(numbers) for part, numbers in state.trader.memory.items()}


def test_a_copy_says_how_it_is_used_and_needs_no_run(main, trade, tmp_path):
    said = main("export", "remembering", "--out", str(tmp_path / "copy")).out
    for words in ("policy.step(observation, None)", "takes bars, the oldest", "gives the target"):
        assert words in said
    assert all(len(row) <= 80 for row in said.splitlines() if str(tmp_path) not in row)
    bars = pl.read_parquet("grown.parquet").tail(50)
    copy, original = proxima.load_policy(tmp_path / "copy"), proxima.load_policy("remembering")
    assert copy.predict(bars) == original.predict(bars)
    answers, _ = trade("remembering")
    said = main("trade", str(tmp_path / "copy"), "--bars", "new.csv", "--json")
    assert [json.loads(line) for line in said.out.splitlines()] == answers
    assert f"state in {tmp_path / 'copy/trade'}" in said.err
    again = copy.save(tmp_path / "again")
    assert len(list(again.iterdir())) == 3, "the account stays where it is"
    figures = [
        json.loads(main("evaluate", run, "--data", "new.csv", "--json").out)["agent"]
        for run in (str(tmp_path / "copy"), "remembering")
    ]
    assert figures[0] == figures[1]


def test_a_state_that_does_not_fit_is_refused_in_words(place, monkeypatch):
    monkeypatch.chdir(place)
    bars, policy = pl.read_parquet("grown.parquet"), proxima.load_policy("discrete")
    _, state = policy.step(bars.head(60))
    other = proxima.load_policy("remembering")
    changed = bars.with_columns(close=pl.col("close") * 1.01, high=pl.col("high") * 1.02)
    untimed = bars.drop("time")
    for bad, raw, given, words in (
        (other, bars, state, "state: is of another policy"),
        (policy, changed, state, "row 1, column high: .* was .* a bar does not change"),
        (policy, untimed, state, "no column time; .* go on from a state"),
        (policy, bars, {"form": "2001-01-01"}, "state: expected cash and units.*got .*form"),
        (policy, bars, {"weight": 1.0}, "state: expected cash and units.*got .*weight"),
        (policy, bars, {"from": "soon"}, "from soon: is not a time such as"),
        (policy, bars, {"capital": 0}, "capital 0: is no amount of money"),
        (policy, bars, {"capital": "all"}, "state: expected .*got .*all"),
    ):
        with pytest.raises(proxima.ProximaError, match=words):
            bad.step(raw, given)
    for given, words in (
        ({"weight": float("nan")}, "as finite numbers"),
        ("all of it", "got 'all of it'"),
        ({"from": "2031-01-01"}, "before the trading begins .2031-01-01"),
    ):
        with pytest.raises(proxima.ProximaError, match=words):
            policy.predict(bars, given)
    with pytest.raises(proxima.ProximaError, match="9 bars are too few; this policy needs"):
        other.predict(bars.head(9))
    with pytest.raises(proxima.ProximaError, match="episode_start: goes with observations"):
        policy.step(bars, episode_start=[True])


def test_a_policy_that_looks_ahead_or_says_nothing_of_bars_is_not_traded(main, place, tmp_path):
    trial = tmp_path / "trial_0"
    shutil.copytree(find_trial("discrete"), trial)
    path = trial / "policy/policy.json"
    about = json.loads(path.read_text())
    ahead = about | {"raw": about["raw"] | {"leaky": True}}
    ahead["raw"]["features"] = [about["raw"]["features"][0] | {"kind": "next_return"}]
    for content, words in (
        (ahead, "the policy sees next_return_1, which looks ahead"),
        (
            {**about, "raw": about["raw"] | {"bars": "many"}},
            "is damaged: raw.bars: input should be",
        ),
        (
            {name: value for name, value in about.items() if name != "raw"},
            "says nothing of raw bars",
        ),
    ):
        path.write_text(json.dumps(content))
        said = main("trade", str(trial), "--bars", "new.csv")
        assert said.code == 1 and words in said.err


@pytest.mark.parametrize("units", [0.0, 99.029, 0.17622, -0.17622, -197.91, 123456.0])
def test_a_line_has_80_columns_also_of_who_is_short(units):
    account = {"units": units, "cash": 20355.31, "equity": 9987.5, "log_return": -0.0013}
    order = {"side": "sell", "units": 0.35243, "cost": 19.98}
    answer = {"time": "2004-02-12T00:00:00Z", "close": 55255.7, "target": -1.0, "ruined": False}
    assert len(_line({**answer, "order": order, "account": account})) == 80


def test_lines_are_answered_as_they_come_and_ctrl_c_ends_it(place, tmp_path):
    """In a process of its own, whose input stays open."""
    arguments = ("trade", "discrete", "--bars", "-", "--state", tmp_path / "state")
    process = subprocess.Popen(
        command(*arguments),
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.stdin.write(f"{line()}\n")
        process.stdin.flush()
        header, answer = process.stdout.readline(), process.stdout.readline()
        assert header.split()[:3] == ["bar", "close", "target"] and answer.startswith("2001-02-04")
        assert len(header) == len(answer) == 81
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130 and "Stopped. The same command goes on" in err
    assert "Traceback" not in err
