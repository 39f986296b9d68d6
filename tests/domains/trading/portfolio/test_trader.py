"""A policy stepped over the bars of several assets as they arrive: an evaluation's account, to the bit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.core.types import Acted, View
from proxima.domains.trading.portfolio.assess import account_of, accounts_of
from proxima.domains.trading.portfolio.config import PortfolioEnvConfig
from proxima.domains.trading.portfolio.data import Stretch
from proxima.domains.trading.portfolio.env import portfolio_env, targets_of
from proxima.domains.trading.portfolio.recipe import PanelReader, PanelRecipe
from proxima.domains.trading.portfolio.trader import arrive, new_trader
from proxima.domains.trading.recipe import RunData
from proxima.domains.trading.stepping import Bar
from proxima.train.compiled.episodes import recorder


class Rule(eqx.Module):
    """An agent that needs no training: its weights times what it sees of every asset."""

    weights: jax.Array
    cash: bool = eqx.field(static=True)

    def policy(self, learner):
        return learner

    def exploit(self, policy, view):
        seen = jnp.concatenate([view.obs["features"], view.obs["weights"][..., None]], axis=-1)
        scores = jnp.clip(seen, -3.0, 3.0) @ self.weights
        if self.cash:
            scores = jnp.concatenate([scores[..., :1] / 2, scores], axis=-1)
        return Acted(scores)

    def memory(self, num_envs):
        return None


def stretch_of(bars: int, assets: int, deviation: float = 0.02) -> Stretch:
    random = np.random.default_rng(4)
    close = 100 * np.exp(np.cumsum(random.normal(0, deviation, (bars, assets)), axis=0))
    opens = close * np.exp(random.normal(0, deviation / 3, close.shape))
    time = np.datetime64("2020-01-01", "us") + np.arange(bars) * np.timedelta64(1, "D")
    return Stretch(time, opens, close, random.normal(size=(bars, assets, 2)).astype(np.float32))


def follow(stretch: Stretch, env: PortfolioEnvConfig, act) -> list:
    """The trader's answers from the first bar with a full window on."""
    assets = stretch.close.shape[1]
    recipe = PanelRecipe(
        bars=1,
        assets=tuple(map(str, range(assets))),
        columns=(),
        features=(),
        account=env,
        leaky=False,
        data=RunData(source="", rows=1, first="", last="", prices_sha256=""),
        periods_per_year=252.0,
        periods_from="",
    )
    reader = PanelReader(recipe, (None,) * stretch.features.shape[2])
    trader, answers = new_trader(1.0, assets), []
    for row in range(env.window - 1, len(stretch.close)):
        prices = (tuple(part[row].tolist()) for part in (stretch.open, stretch.close))
        seen = stretch.features[row - env.window + 1 : row + 1]
        bar = Bar(stretch.time[row], *prices)
        trader, answer = arrive(
            reader, lambda obs, memory: (np.asarray(act(obs)), memory), trader, bar, seen
        )
        answers.append(answer)
    return answers


@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
@pytest.mark.parametrize("weights", ["long_only", "long_short"])
def test_a_trader_is_an_evaluation_to_the_bit(fill, weights):
    """A reward that is no log return, penalties and a window change nothing."""
    env = PortfolioEnvConfig(
        fill=fill,
        weights=weights,
        leverage=1.0 if weights == "long_only" else 2.0,
        fee=0.002,
        borrow_rate=0.001,
        window=2,
        reward="differential_sharpe",
        turnover_penalty=0.1,
    )
    stretch = stretch_of(120, 9)
    random = np.random.default_rng(3)
    agent = Rule(jnp.asarray(random.normal(size=5), jnp.float32), weights == "long_only")
    evaluated = recorder(agent, portfolio_env(stretch, env, False), 0, 120)(None)
    done = account_of(stretch, env, targets_of(evaluated.actions, env))
    traded = follow(stretch, env, jax.jit(lambda obs: agent.exploit(None, View(obs)).action))
    rows = [answer.settled[1] for answer in traded if answer.settled is not None]
    assert len(rows) == len(done.target) > 110 and not done.ruined.any()
    for name, values in (
        ("weight", done.held),
        ("contribution", done.contribution),
        ("cost", done.cost),
        ("turnover", np.abs(done.traded).sum(axis=1)),
        ("log_return", done.log_return),
        ("log_value", done.log_value[1:]),
    ):
        assert np.array([getattr(row, name) for row in rows]).tobytes() == values.tobytes(), name


def test_who_is_ruined_stays_in_cash():
    env = PortfolioEnvConfig(weights="long_short", leverage=6.0, fee=0.0)
    stretch = stretch_of(60, 3, deviation=0.2)
    answers = follow(stretch, env, lambda obs: np.array([[1.0, -1.0, 1.0]]))
    done = account_of(stretch, env, np.tile([2.0, -2.0, 2.0], (58, 1)))
    ruin = int(np.argmax(done.ruined))
    assert done.ruined.any() and ruin < 40
    rows = [answer.settled[1] for answer in answers if answer.settled is not None]
    assert [row.log_value for row in rows] == done.log_value[1:].tolist()
    assert not answers[ruin + 1].ruined and answers[ruin + 2].ruined, "known at the next fill"
    for answer in answers[ruin + 2 :]:
        assert answer.target == answer.account.units == (0.0,) * 3 and answer.order is None


@pytest.mark.parametrize("decided", [40, 70])
def test_decisions_of_another_stretch_are_refused(decided):
    """Fewer are right only after a ruin, and no ruin explains more; nor does the ruin of a neighbour."""
    env = PortfolioEnvConfig(weights="long_short", leverage=6.0, fee=0.0)
    stretch = stretch_of(60, 3, deviation=0.2)
    ruinous, calm = np.tile([2.0, -2.0, 2.0], (40, 1)), np.zeros((decided, 3))
    assert account_of(stretch, env, ruinous).ruined.any()
    with pytest.raises(ProximaError, match=f"{decided} recorded decisions on a stretch of 58"):
        accounts_of(stretch, env, [ruinous, calm])
