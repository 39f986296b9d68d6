"""Assessment: references, scores and frames of a small prepared dataset."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from markets import market_of, random_market

from proxima.core.errors import ProximaError
from proxima.domains.trading import metrics
from proxima.domains.trading.accounting import account
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.domains.trading.env import targets_of
from proxima.domains.trading.judge import (
    Year,
    account_of,
    account_trades,
    assess,
    reference_targets,
    references,
    returns_of,
    rollout_frame,
    score,
)
from proxima.domains.trading.market import SPLITS, Prepared
from proxima.domains.trading.metrics import deflated_sharpe
from proxima.domains.trading.overall import year_of

METRICS = {
    "log_return", "total_return", "sharpe", "sortino", "max_drawdown", "cagr", "calmar", "volatility",
    "omega", "tail_ratio", "var_5", "profit_factor", "psr", "turnover", "exposure_long", "exposure_short",
    "exposure_flat", "trades", "win_rate", "fills", "hit_rate", "holding_time",
}  # fmt: skip
ENV, DATA = TradingEnvConfig(fee=0.001, window=2), DataConfig()
YEAR = Year(252.0, "a test")


def prepared(pattern="random_walk", params=None, bars=150):
    markets = [random_market(seed, bars) for seed in range(3)]
    bounds = {split: (0, bars) for split in SPLITS}
    return Prepared(*markets, ("a", "b", "c"), "prices.parquet", pattern, params or {}, bounds)


@pytest.fixture(scope="module")
def known():
    data = prepared()
    return data, references(data, ENV, YEAR)


def assessed(data, env, config, split, actions, compared):
    """Recorded actions on a split, against the references."""
    market = data.split(split)
    done = account_of(market, env, targets_of(actions, env))
    sheet = metrics.tear_sheet(done, account_trades(market, env, done), YEAR.bars)
    return assess(done, sheet, config.leaky, compared["splits"][split])


def bars_of(data, split):
    return len(returns_of(data.split(split), ENV))


def test_references_have_every_name_and_are_json(known):
    data, found = known
    json.dumps(asdict(found), allow_nan=False)
    for split in SPLITS:
        parts = found["splits"][split]
        assert set(asdict(parts)) == {"buy_and_hold", "momentum", "random", "foresight", "model"}
        assert set(parts["buy_and_hold"]) == METRICS
        chance = parts["random"]["log_return"]
        assert chance["low"] < chance["mean"] < chance["high"]
        assert chance["runs"] == 200
        assert parts["foresight"]["log_return"] > parts["momentum"]["log_return"]
        assert parts["model"]["log_return"] == 0.0  # a random walk: stay out
    market = data.test
    held = market.open[-1] / market.open[2]  # decided at bar 1, the first with a window of 2
    expected = math.log(held) + math.log(1 - ENV.fee)
    assert found["splits"]["test"]["buy_and_hold"]["log_return"] == pytest.approx(expected)


def test_an_unknown_process_has_no_model(known):
    assert reference_targets(prepared(pattern=None).test, 0, ENV, None)["model"] is None
    other = references(prepared(pattern="sine_wave", bars=20), ENV, YEAR)
    assert other["splits"]["test"]["model"] is None


def test_scores_of_the_oracle_and_of_cash(known):
    data, compared = known
    for split in SPLITS:
        targets = reference_targets(data.split(split), 0, ENV, None)["foresight"]
        actions = np.searchsorted(ENV.positions, targets)
        part = assessed(data, ENV, DATA, split, actions, compared)
        json.dumps(asdict(part), allow_nan=False)
        assert set(asdict(part)) == {"agent", "score", "too_good"}
        assert set(part["agent"]) == METRICS | {"log_return_low", "log_return_high"}
        assert part["score"]["foresight"] == pytest.approx(1.0)
    cash = np.full((bars_of(data, "test"), 1), 1)
    part = assessed(data, ENV, DATA, "test", cash, compared)
    assert part["score"]["model"] is None  # the model stays out too: nothing to be measured by
    assert 0 < part["score"]["foresight"] < 1
    assert part["agent"]["sharpe"] is None  # cash has no deviation
    assert part["too_good"] == ()


def test_score_is_where_between_chance_and_oracle():
    assert score(2.0, 1.0, 3.0) == 0.5
    assert score(0.0, 1.0, 3.0) == -0.5
    assert score(1.0, 2.0, 2.0) is None
    assert score(1.0, 3.0, 2.0) is None


def test_an_oracle_that_earned_nothing_is_no_yardstick():
    assert score(-1.0, -2.0, 0.0) is None  # one who stays out; chance only pays fees
    assert score(-1.0, -2.0, -0.1) is None  # one who ignores fees
    assert score(-1.0, -2.0, 1e-15) is None  # a continuous weight of 1e-17
    assert score(-1.0, -2.0, 0.5) == pytest.approx(0.4)


REVERTING = {"base": 100.0, "reversion": 0.1, "volatility": 0.01}


def test_a_model_is_no_yardstick_for_one_who_looks_ahead():
    data, free = prepared("mean_reversion", REVERTING), TradingEnvConfig(fee=0.0)
    compared = references(data, free, YEAR)
    compared["splits"]["test"]["model"]["log_return"] = 0.1
    actions = np.full(len(returns_of(data.test, free)), 2)
    leaking = DataConfig(leaky=True)
    assert assessed(data, free, DATA, "test", actions, compared)["score"]["model"]
    found = assessed(data, free, leaking, "test", actions, compared)["score"]
    assert found["model"] is None and found["foresight"] is not None


FREE = TradingEnvConfig(fee=0.0)


def alarms(market, targets, env=FREE):
    """What is told about an agent with these targets on the test split."""
    data = prepared()._replace(test=market)
    actions = np.searchsorted(env.positions, targets)
    compared = references(data, env, YEAR)
    return list(assessed(data, env, DATA, "test", actions, compared)["too_good"])


def leaked(market, mistakes):
    """Targets that know the next return but at these bars, where they are turned around."""
    targets = np.sign(returns_of(market, FREE))
    targets[mistakes] *= -1
    return targets


def test_one_who_sees_tomorrow_is_found_out_even_with_a_few_mistakes():
    market = random_market(5, bars=500)
    perfect = alarms(market, leaked(market, []))
    assert any("won" in told for told in perfect) and any("never fell" in told for told in perfect)
    smallest = np.argsort(np.abs(returns_of(market, FREE)))[:4]
    won, scored = alarms(market, leaked(market, smallest))
    assert "99.2 % of its 498 bars with a position won, of the best baseline's" in won
    assert "way from chance to perfect foresight over 498 bars, the best baseline" in scored
    # the many small mistakes that leave almost all of the return, and the few large ones that do not
    (scored,) = alarms(market, leaked(market, np.argsort(np.abs(returns_of(market, FREE)))[:25]))
    assert "of the way" in scored
    (won,) = alarms(market, leaked(market, np.argsort(-np.abs(returns_of(market, FREE)))[:4]))
    assert "won" in won


def test_what_is_merely_good_raises_no_alarm():
    market = random_market(5, bars=500)
    for seed in range(3):
        wrong = np.random.default_rng(seed).permutation(498)[:25]  # 95 % right
        assert alarms(market, leaked(market, wrong)) == []
    short = random_market(5, bars=103)  # 101 bars, 100 of them with a position
    targets = leaked(short, np.argsort(np.abs(returns_of(short, FREE)))[:1])
    targets[50] = 0.0
    assert [told for told in alarms(short, targets) if "won" in told] == []


def test_a_market_in_which_anyone_wins_raises_no_alarm():
    random = np.random.default_rng(0)
    log_price = 0.0015 * np.arange(400) + random.normal(0, 0.0004, 400)
    market, env = market_of(100 * np.exp(log_price)), TradingEnvConfig(fee=0.001)
    targets = np.ones(398)
    data = prepared()._replace(test=market)
    held = references(data, env, YEAR)["splits"]["test"]["buy_and_hold"]
    assert held["hit_rate"] > 0.99
    assert alarms(market, targets, env) == []


def test_interval_contains_the_return_and_alarm_reaches_the_result(known):
    data, compared = known
    actions = np.full(bars_of(data, "test"), 2)
    agent = assessed(data, ENV, DATA, "test", actions, compared)["agent"]
    assert agent["log_return_low"] < agent["log_return"] < agent["log_return_high"]
    rising = data._replace(test=market_of(100 * 1.01 ** np.arange(150.0)))
    free = TradingEnvConfig(fee=0.0, window=2)
    compared = references(rising, free, YEAR)
    part = assessed(rising, free, DATA, "test", actions, compared)
    assert len(part["too_good"]) == 2


def test_deflated_sharpe_needs_the_other_trials(known):
    data, _ = known
    actions = np.random.default_rng(0).integers(3, size=bars_of(data, "test"))

    def deflated(actions, sharpes):
        done = account_of(data.test, ENV, targets_of(actions, ENV))
        return deflated_sharpe(np.expm1(done.log_return), sharpes, YEAR.bars)

    alone, among = deflated(actions, [0.3]), deflated(actions, [0.3, 1.0, -2.0, 0.5])
    assert among < alone
    assert math.isnan(deflated(np.full_like(actions, 1), [0.3]))


def test_rollout_frame_is_the_account_bar_by_bar():
    market = random_market(4, bars=40)
    targets = np.random.default_rng(0).choice([-1.0, 0, 1], 37)
    frame = rollout_frame(market, ENV, account_of(market, ENV, targets))
    names = ["time", "close", "fill_price", "target", "weight", "log_return", "equity", "drawdown"]
    assert frame.columns == names
    assert len(frame) == 37  # 40 bars, less the window's first and those whose fills lie ahead
    np.testing.assert_array_equal(frame["close"], market.close[1:38])
    np.testing.assert_array_equal(frame["fill_price"], market.open[2:39])
    done = account(targets, market.open[3:] / market.open[2:-1] - 1, ENV.fee, 0.0)
    np.testing.assert_allclose(np.log(frame["equity"]), done.log_value[1:], atol=1e-12)
    np.testing.assert_allclose(frame["log_return"].sum(), done.log_value[-1])
    assert frame["drawdown"].max() <= 0


def test_actions_of_other_data_are_refused_and_ruin_ends_early():
    market = random_market(4, bars=40)
    for wrong in (36, 38):
        with pytest.raises(ProximaError, match=f"{wrong} recorded decisions on a stretch of 37"):
            account_of(market, ENV, np.zeros(wrong))
    doubling = market_of([100.0, 100, 100, 250, 100, 100, 100])
    done = account_of(doubling, TradingEnvConfig(fill="same_close"), np.full(3, -1.0))
    assert done.ruined.tolist() == [False, False, True, False, False, False]


def test_a_year_has_the_bars_that_are_said_or_known_or_counted():
    data = prepared()
    assert year_of(DataConfig(periods_per_year=5_800.0), data.params, data.train.time) == (
        5_800.0,
        "data.periods_per_year",
    )
    grown = data._replace(params={"periods_per_year": 252})
    assert year_of(DATA, grown.params, grown.train.time) == (
        252.0,
        "the pattern's periods_per_year",
    )
    counted = year_of(DATA, data.params, data.train.time)
    assert counted.bars == 365.0  # a bar on every day
    assert "times of the train split" in counted.source
