"""The trader and its books, bar by bar, against the environment and the account over a whole stretch."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from markets import random_market

from proxima.core.types import Acted
from proxima.domains.trading import metrics
from proxima.domains.trading.accounting import account
from proxima.domains.trading.config import FeatureConfig, TradingEnvConfig
from proxima.domains.trading.env import targets_of, trading_env
from proxima.domains.trading.features import FEATURES, Column, compute, resolve_features
from proxima.domains.trading.judge import account_of
from proxima.domains.trading.live_account import Books, settle
from proxima.domains.trading.recipe import Reader, Recipe, RunData
from proxima.domains.trading.synthetic import generate
from proxima.domains.trading.trader import Bar, Trader, arrive
from proxima.train.compiled.episodes import recorder


@pytest.mark.parametrize("deviation", [0.01, 0.4], ids=["calm", "ruinous"])
@pytest.mark.parametrize("rate", [0.0, 0.003], ids=["free", "interest"])
def test_the_books_are_the_account_to_the_bit(deviation, rate):
    random = np.random.default_rng(1)
    env = TradingEnvConfig(fee=0.001, slippage=0.002, borrow_rate=rate)
    ruins = 0
    for positions in ([-1, 0, 1], [-1, 0.5, 2], np.round(random.uniform(-1, 1, 40), 4)):
        kept = np.repeat(random.choice(positions, 300), random.integers(1, 6, 300))[:300]
        returns = np.expm1(random.normal(0, deviation, 300))
        whole = account(kept, returns, env.fee, env.borrow_rate, env.slippage)
        drawdowns = metrics.drawdowns(whole.log_value)[1:]
        books = Books()
        for bar in range(300):
            books, row = settle(books, float(kept[bar]), float(returns[bar]), env)
            assert row.weight == whole.weight[bar] and row.log_return == whole.log_return[bar]
            assert row.log_value == whole.log_value[bar + 1] and row.drawdown == drawdowns[bar]
            assert row.ruined == whole.ruined[: bar + 1].any()
        ruins += books.ruined
    assert (ruins > 0) == (deviation > 0.01)


class Rule(eqx.Module):
    """An agent that needs no training: its weights times what it sees."""

    weights: jax.Array
    discrete: bool = eqx.field(static=True)

    def policy(self, learner):
        return learner

    def exploit(self, policy, view):
        scores = jnp.clip(view.obs, -3.0, 3.0) @ self.weights
        return Acted(jnp.argmax(scores, axis=-1) if self.discrete else jnp.tanh(scores))

    def memory(self, num_envs):
        return None


def reader_of(env: TradingEnvConfig, features: int) -> Reader:
    data = RunData(source="", rows=1, first="", last="", prices_sha256="")
    recipe = Recipe(
        bars=1,
        columns=(),
        features=(),
        account=env,
        leaky=False,
        data=data,
        periods_per_year=252.0,
        periods_from="",
    )
    return Reader(recipe, (None,) * features)


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_a_trader_is_an_evaluation_to_the_bit(fill, actions):
    """Targets, weights, log returns; a reward that is no log return, and a window, change nothing."""
    env = TradingEnvConfig(
        fill=fill,
        actions=actions,
        positions=(-1.0, 0.0, 1.5),
        fee=0.002,
        slippage=0.001,
        borrow_rate=0.004,
        window=2,
        reward="differential_sharpe",
        turnover_penalty=0.1,
    )
    market, random = random_market(bars=150), np.random.default_rng(3)
    weights = random.normal(size=(7, 3 if actions == "discrete" else 1))
    agent = Rule(jnp.asarray(weights, jnp.float32), actions == "discrete")
    evaluated = recorder(agent, trading_env(market, env, training=False), 0, 150)(None)
    done = account_of(market, env, targets_of(evaluated.actions, env))
    traded = follow(market, env, jax.jit(lambda obs: agent.exploit(None, View(obs)).action))
    rows = [answer.settled[1] for answer in traded if answer.settled is not None]
    assert len(rows) == len(done.target) > 140
    assert len(np.unique(done.target)) > 2
    for name, values in (
        ("target", done.target),
        ("weight", done.weight),
        ("log_return", done.log_return),
        ("log_value", done.log_value[1:]),
    ):
        assert [getattr(row, name) for row in rows] == values.tolist(), name


class View:
    """What the rule looks at."""

    def __init__(self, obs):
        self.obs = obs


def follow(market, env, act):
    """The trader's answers from the first bar with a full window on."""
    reader, trader, answers = reader_of(env, market.features.shape[1]), Trader(1.0), []
    for row in range(env.window - 1, len(market.close)):
        bar = Bar(market.time[row], float(market.open[row]), float(market.close[row]))
        seen = market.features[row - env.window + 1 : row + 1]
        trader, answer = arrive(
            reader, lambda obs, memory: (np.asarray(act(obs)), memory), trader, bar, seen
        )
        answers.append(answer)
    return answers


def test_who_is_ruined_stays_in_cash():
    env = TradingEnvConfig(positions=(-3.0, 0.0, 3.0))
    market = random_market(bars=60, deviation=0.3)
    answers = follow(market, env, lambda obs: np.array([2]))  # on credit, always
    done = account_of(market, env, np.full(58, 3.0))
    ruin = int(np.argmax(done.ruined))
    assert done.ruined.any() and ruin < 40
    rows = [answer.settled[1] for answer in answers if answer.settled is not None]
    assert [row.log_value for row in rows] == done.log_value[1:].tolist()
    assert not answers[ruin + 1].ruined and answers[ruin + 2].ruined, "known at the next fill"
    for answer in answers[ruin + 2 :]:
        assert answer.target == 0 and answer.order is None and answer.account.units == 0


def test_a_feature_has_the_same_bits_whatever_follows():
    """Bars that arrive later change nothing, as they would where polars divides rows among threads."""
    frame = generate("heston", 3_000, 0)
    frame = frame.with_columns(volume=np.random.default_rng(0).lognormal(0.0, 1.0, 3_000))
    kinds = [name for name, feature in FEATURES.items() if not feature.leaks]
    columns = resolve_features([FeatureConfig(kind=kind) for kind in kinds if ":" not in kind])
    weekday = pl.col("close") / pl.col("close").rolling_mean(9).over(pl.lit(1))
    columns.append(Column("of one's own", weekday, 9, False, False))
    for column in columns:
        whole = compute(frame, column).to_numpy()
        for rows in (101, 1_409, 2_998):
            part = compute(frame.head(rows), column).to_numpy()
            np.testing.assert_array_equal(part, whole[:rows], err_msg=column.name)
