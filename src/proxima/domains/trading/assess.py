"""How good recorded actions are, next to baselines and oracles on the same bars at the same costs.

    references(prepared, env, data)                    once per experiment
    assess(prepared, env, data, actions, references)   per trial: metrics, score, and what is too good

The score of an agent is (its log return − chance's) / (the oracle's − chance's): 0 trades at random, 1 is
as good as the oracle. Chance is the mean of many random runs, never the run of a mean. An oracle that
earned nothing is no yardstick: where the best is to stay out, all that divides by is chance's fees.
"""

import math
from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.accounting import Account, account
from proxima.domains.trading.baselines import (
    RANDOM_RUNS,
    buy_and_hold,
    model_optimal,
    momentum,
    random_targets,
)
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.domains.trading.env import decisions, fill_prices, fill_returns, targets_of
from proxima.domains.trading.market import SPLITS, Market, Prepared
from proxima.domains.trading.metrics import (
    TOO_GOOD_BARS,
    deflated_sharpe,
    drawdowns,
    tear_sheet,
    too_good,
)
from proxima.domains.trading.oracles import foresight_targets
from proxima.domains.trading.resampling import INTERVAL, mean_interval
from proxima.domains.trading.results import (
    Chance,
    Metrics,
    References,
    SplitReferences,
    SplitResult,
    TradingTrial,
)
from proxima.run.files import plain

Floats = NDArray[np.float64]
Targets = Mapping[str, Mapping[str, Floats | None]]  # by split, then by reference

RANDOM_BARS = 40_000_000  # runs times bars; past it there are fewer runs
LEAST_RANDOM_RUNS = 20
ROUNDING = 1e-9  # a log return that small is nothing
# What no baseline reaches and an agent should not either, of more than TOO_GOOD_BARS bars.
TOO_GOOD_HIT_RATE = 0.99
TOO_GOOD_SCORE = 0.98


def reference_targets(prepared: Prepared, env: TradingEnvConfig) -> Targets:
    """Targets (T,) of buy_and_hold, momentum, foresight and model (or None) on every split."""
    targets = {}
    for split in SPLITS:
        market = prepared.split(split)
        targets[split] = {
            "buy_and_hold": buy_and_hold(market, env),
            "momentum": momentum(market, env),
            "foresight": foresight_targets(returns_of(market, env), env),
            "model": model_optimal(prepared.pattern, prepared.params, market, env),
        }
    return targets


def references(
    prepared: Prepared, env: TradingEnvConfig, data: DataConfig, targets: Targets | None = None
) -> References:
    """Metrics of baselines and oracles on every split; `targets` as reference_targets gives them."""
    targets = targets or reference_targets(prepared, env)
    splits = {}
    for split in SPLITS:
        market = prepared.split(split)
        sheets: dict[str, Metrics | None] = dict.fromkeys(targets[split])
        for name, chosen in targets[split].items():
            if chosen is not None:
                done = account_of(market, env, chosen)
                sheets[name] = plain(tear_sheet(done, data.periods_per_year))
        splits[split] = SplitReferences(**sheets, random={"log_return": _chance(market, env)})
    return References(splits=splits)


def _chance(market: Market, env: TradingEnvConfig) -> Chance:
    """Mean and interval of the log return of uniformly random targets."""
    returns = returns_of(market, env)
    runs = max(LEAST_RANDOM_RUNS, min(RANDOM_RUNS, RANDOM_BARS // len(returns)))
    ends = [
        float(account(targets, returns, env.fee, env.borrow_rate).log_value[-1])
        for targets in random_targets(market, env, runs)
    ]
    low, high = np.percentile(ends, INTERVAL)
    return Chance(mean=float(np.mean(ends)), low=float(low), high=float(high), runs=runs)


def assess(
    prepared: Prepared,
    env: TradingEnvConfig,
    data: DataConfig,
    actions: Mapping[str, ArrayLike],
    compared: References,
) -> TradingTrial:
    """One trial's recorded actions, (T,) or (T, 1) per split, against the references."""
    splits = {}
    for split, recorded in actions.items():
        done = account_of(prepared.split(split), env, targets_of(np.asarray(recorded), env))
        splits[split] = _assess_split(done, data, compared.splits[split])
    return TradingTrial(splits=splits)


def _assess_split(done: Account, data: DataConfig, compared: SplitReferences) -> SplitResult:
    low, high = mean_interval(done.log_return)
    bars, total = len(done.log_return), float(done.log_value[-1])
    agent = tear_sheet(done, data.periods_per_year)
    agent |= {"log_return_low": low * bars, "log_return_high": high * bars}
    scores = {
        "foresight": _score(total, compared, "foresight"),
        # The best without looking ahead is no measure for one who does.
        "model": None if data.leaky else _score(total, compared, "model"),
    }
    alarms = (*too_good(done), *_suspicious(done, agent["hit_rate"], compared))
    return SplitResult(agent=plain(agent), score=scores, too_good=alarms)


def score(agent: float, chance: float, oracle: float) -> float | None:
    """How much of the way from chance to the oracle the agent is; None where the oracle earned nothing."""
    if oracle <= max(chance, ROUNDING):
        return None
    return (agent - chance) / (oracle - chance)


def _score(log_return: float, compared: SplitReferences, oracle: str) -> float | None:
    if compared[oracle] is None:
        return None
    chance = compared.random["log_return"].mean
    return score(log_return, chance, compared[oracle]["log_return"])


def _suspicious(done: Account, hit_rate: float, compared: SplitReferences) -> list[str]:
    """What an account is too good at, in words, unless a baseline on the same bars is too.

    Baselines do not look ahead: where one of them wins nearly every bar, or is as good as perfect
    foresight, the market is easy. Buying and holding is perfect where prices only rise.
    """
    held, bars = np.count_nonzero(done.weight), len(done.log_return)
    baselines = [compared[name] for name in ("buy_and_hold", "momentum")]
    usual = max(sheet["hit_rate"] or 0.0 for sheet in baselines)
    reached = _score(float(done.log_value[-1]), compared, "foresight")
    easy = _score(max(sheet["log_return"] for sheet in baselines), compared, "foresight")
    alarms = []
    # A hit rate of 1 is reported by too_good, whatever the baselines do.
    if held > TOO_GOOD_BARS and usual < TOO_GOOD_HIT_RATE <= hit_rate < 1:
        alarms.append(
            f"{_percent(hit_rate)} of its {held:,} bars with a position won, of the best baseline's "
            f"{_percent(usual)}"
        )
    if bars <= TOO_GOOD_BARS or reached is None or easy is None:
        return alarms
    if easy < TOO_GOOD_SCORE <= reached:
        alarms.append(
            f"it went {_percent(reached)} of the way from chance to perfect foresight over {bars:,} bars, "
            f"the best baseline {_percent(easy)}"
        )
    return alarms


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def deflated(
    prepared: Prepared,
    env: TradingEnvConfig,
    data: DataConfig,
    actions: NDArray,
    trial_sharpes: ArrayLike,
) -> float | None:
    """The deflated Sharpe ratio of one trial on the test split, given the annualised ratios of all."""
    done = account_of(prepared.test, env, targets_of(actions, env))
    ratio = deflated_sharpe(np.expm1(done.log_return), trial_sharpes, data.periods_per_year)
    return ratio if math.isfinite(ratio) else None


def returns_of(market: Market, env: TradingEnvConfig) -> Floats:
    """What each decision of an evaluation earns, (T,)."""
    return fill_returns(market, env.fill)[decisions(market, env)]


def account_of(market: Market, env: TradingEnvConfig, targets: Floats) -> Account:
    """The account of targets on a stretch; only a ruin may have ended them early."""
    returns = returns_of(market, env)
    missing = len(returns) - len(targets)
    padded = np.pad(targets, (0, max(0, missing)))[: len(returns)]
    done = account(padded, returns, env.fee, env.borrow_rate)
    if missing < 0 or (missing > 0 and not done.ruined[: len(targets)].any()):
        raise ProximaError(
            f"{len(targets)} recorded decisions on a stretch of {len(returns)}: the actions are of "
            "other data, or of another window or fill"
        )
    return done


def rollout_frame(market: Market, env: TradingEnvConfig, targets: Floats) -> pl.DataFrame:
    """An account bar by bar: what was decided at the bar's close, and what it led to.

    time and close are of the deciding bar; log_return, equity (from 1) and drawdown are those after
    the holding that began at fill_price.
    """
    done = account_of(market, env, targets)
    rows = decisions(market, env)
    return pl.DataFrame(
        {
            "time": market.time[rows],
            "close": market.close[rows],
            "fill_price": fill_prices(market, env.fill)[rows],
            "target": done.target,
            "weight": done.weight,
            "log_return": done.log_return,
            "equity": np.exp(done.log_value[1:]),
            "drawdown": drawdowns(done.log_value)[1:],
        }
    )
