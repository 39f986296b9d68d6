"""The page of a trading run: the tear sheet, the verdict, and what stands before everything else."""

from dataclasses import replace

import pytest
from page_reader import read
from run_directories import EVIL, write_run

from proxima.domains.trading.market import SPLITS
from proxima.domains.trading.page import METRICS, page
from proxima.domains.trading.results import TradingTrial
from proxima.domains.trading.rollouts import read_rollouts, read_trades
from proxima.report import html, numbers
from proxima.report.page import report
from proxima.run.report import read_run
from proxima.run.results import Aggregate


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read_run(write_run(tmp_path_factory.mktemp("market"), trading=True))


@pytest.fixture(scope="module")
def whole(run):
    return report(run, page(run))


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without their pictures, which take most of the time."""
    monkeypatch.setattr(html, "png", lambda figure, dots: b"")


def words_of(run):
    return read(report(run, page(run))).words


def test_a_trading_page_has_the_tear_sheet(whole, run):
    words = read(whole).words
    summary = run.summary
    earned = summary.details.aggregate["test"]["log_return"]
    assert f"log return after fees of {numbers.figure(earned['iqm'])}" in words
    for name, _ in METRICS.values():
        assert words.count(name) >= 3  # once for each split
    for word in ("Buy and hold", "Momentum", "Random", "Perfect foresight", "Validation split"):
        assert word in words
    assert "Best rule" not in words  # there is none for these prices
    assert "Returns by month in percent" in words and "2020" in words
    assert "probability that trial 1's true Sharpe ratio is above" in words
    assert "61 %" in words and "mean of 200 runs" in words
    returns = {k: frame["log_return"].sum() for k, frame in read_rollouts(run).trials.items()}
    median = sorted(returns, key=returns.get)[1]
    assert f"{median} (median)" in words and f"trial {median}, the one with the median" in words
    assert "Too good" not in words


def test_a_trading_page_lists_the_largest_trades_and_says_what_a_year_is(whole, run):
    words = read(whole).words
    assert (
        "Annual figures and ratios count 365 bars in a year, from the times of the train" in words
    )
    returns = {k: frame["log_return"].sum() for k, frame in read_rollouts(run).trials.items()}
    median = sorted(returns, key=returns.get)[1]
    assert f"Trades, trial {median}" in words and "with the largest returns either way" in words
    assert f'href="trial_{median}/trades/test.parquet"' in whole
    trades = read_trades(run, median)
    assert f"of {trades.height} trades" in words
    largest = trades.sort(trades["return"].abs(), descending=True)
    assert numbers.share(largest["return"][0]).replace("\xa0", " ") in words


@pytest.mark.parametrize("sharpe", [-0.2, None])
def test_a_trial_that_lost_has_no_probability_of_skill(run, undrawn, sharpe):
    split = run.summary.trials[1].details.splits["test"]
    lost = replace(split, agent={**split.agent, "sharpe": sharpe})
    trials = list(run.summary.trials)
    trials[1] = replace(trials[1], details=TradingTrial(splits={**dict.fromkeys(SPLITS, lost)}))
    words = words_of(run._replace(summary=replace(run.summary, trials=tuple(trials))))
    assert "trial 1's Sharpe ratio is not above 0" in words and "61 %" not in words
    assert "chance of skill" not in words


def with_trading(run, **changes):
    details = replace(run.summary.details, **changes)
    return run._replace(summary=replace(run.summary, details=details))


def test_alarms_come_before_everything_else(run, undrawn):
    words = words_of(with_trading(run, alarms=("trial 0, test split: its value <never> fell",)))
    assert "its value <never> fell" in words
    assert words.index("Too good to be true?") < words.index("Learning")


def test_a_leak_on_purpose_is_said_at_the_top(run, undrawn):
    data = run.scenario["data"] | {"leaky": True}
    words = words_of(run._replace(scenario=run.scenario | {"data": data}))
    assert words.index("The agent sees the future") < words.index("Learning")
    assert "sees the future" not in words_of(run)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (90.0, 99.0, "above buy and hold, momentum and random trading."),
        (-99.0, -90.0, "below buy and hold, momentum and random trading."),
        (-99.0, 99.0, "not told apart from buy and hold, momentum and random trading."),
    ],
)
def test_the_verdict_follows_the_interval(low, high, verdict, run, undrawn):
    known = run.summary.details.aggregate
    earned = Aggregate(iqm=(low + high) / 2, low=low, high=high, n=3, failed=0)
    changed = {**known, "test": {**known["test"], "log_return": earned}}
    words = words_of(with_trading(run, aggregate=changed))
    assert f"The interval is {verdict}" in words


def test_what_users_wrote_is_text(whole):
    assert "<script" not in whole and read(whole).words.count(EVIL) == 1


def test_one_trial_has_no_interval_and_says_so(tmp_path, undrawn):
    words = words_of(read_run(write_run(tmp_path, 1, trading=True)))
    assert "interval over" not in words
    assert "One trial says nothing about the next" in words


def test_a_run_without_recorded_rollouts_still_has_its_tables(tmp_path, undrawn):
    files = write_run(tmp_path, trading=True)
    for path in files.root.rglob("*.parquet"):
        path.unlink()
    words = words_of(read_run(files))
    assert "Maximum drawdown" in words and "median" not in words


def test_of_40_trials_the_table_names_some_and_the_pictures_stay_small(tmp_path):
    run = read_run(write_run(tmp_path, 40, trading=True))
    made = report(run, page(run))
    assert len(made) < 1_000_000
    shown = made[made.index("<h2>Trials</h2>") :]
    shown = shown[: shown.index("<details>")]
    assert 4 <= shown.count("<tr>") <= 6  # head, first, best, median, worst, best on validation
    assert "best on validation" in shown and "(median)" not in shown
    assert "All 40 trials" in read(made).words
