"""The end of a trading run: every trial's account on each whole split, beside baselines and oracles.

    references        once per run: metrics of the others on every split
    account_trades    per account: every trade from entry to exit
    assess            per trial and split: metrics, score, and what is too good to be true
    judge             all of it, for all trials; rollouts and trades are written
    draw              pictures of a trial

The score of an agent is (its log return − chance's) / (the oracle's − chance's): 0 trades at random, 1 is
as good as the oracle. Chance is the mean of many random runs, never the run of a mean. An oracle that
earned nothing is no yardstick: where the best is to stay out, all that divides by is chance's fees.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.domain import Trained, Verdict
from proxima.domains.trading import baselines, metrics, plots
from proxima.domains.trading.accounting import Account, Floats, account
from proxima.domains.trading.best_rule import BestRule, best_rule
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.domains.trading.env import targets_of
from proxima.domains.trading.market import SPLITS, Market, Prepared
from proxima.domains.trading.oracles import foresight_targets
from proxima.domains.trading.overall import Year, chance_of, overall, say_alarms, score, year_of
from proxima.domains.trading.preview import SPLIT, Previewed
from proxima.domains.trading.results import (
    Chance,
    Metrics,
    References,
    SplitReferences,
    SplitResult,
    TradingSummary,
    TradingTrial,
)
from proxima.domains.trading.timing import decisions, fill_prices, fill_returns
from proxima.domains.trading.trades import Trade, trades_frame, trades_of
from proxima.run.files import plain
from proxima.run.results import Outcome
from proxima.train.program import Recording

RANDOM_BARS = 40_000_000  # runs times bars; past it there are fewer runs
LEAST_RANDOM_RUNS = 20
# What no baseline reaches and an agent should not either, of more than metrics.TOO_GOOD_BARS bars.
TOO_GOOD_HIT_RATE = 0.99
TOO_GOOD_SCORE = 0.98


class PriceRun(NamedTuple):
    """What a trading run is about besides its program."""

    data: DataConfig
    env: TradingEnvConfig
    prepared: Prepared
    # A learner's greedy run over each whole split.
    record: Mapping[str, Callable[[PyTree], Recording]]
    tried: int = 1  # configurations among which the settings were chosen


class Played(NamedTuple):
    """An account and its trades."""

    done: Account
    trades: list[Trade]


def judge(prices: PriceRun, trained: Trained, outcomes: list[Outcome]) -> Verdict:
    """The outcomes with what each trial made of the prices; rollouts are written."""
    root = trained.trials[0].parent

    def keep(split: str, name: str, done: Account) -> None:
        _write(root / "rollouts" / f"{name}_{split}.parquet", prices, split, done)

    year = year_of(prices.data, prices.prepared.params, prices.prepared.train.time)
    compared = references(prices.prepared, prices.env, year, keep)
    trials, log_returns = [], []
    for state, directory in zip(trained.lanes, trained.trials, strict=True):
        played = play_splits(prices, state.learner, directory)
        trials.append(assess_splits(played, prices.data.leaky, compared, year))
        log_returns.append(played["test"].done.log_return)
    summary = summarize(prices.tried, year, root, compared, trials, log_returns)
    say_alarms(trained, summary.alarms)
    outcomes = [
        with_details(outcome, trial, compared)
        for outcome, trial in zip(outcomes, trials, strict=True)
    ]
    return Verdict(outcomes, summary)


def play_splits(prices: PriceRun, learner: PyTree, directory: Path) -> dict[str, Played]:
    """A learner's greedy run over every split; rollouts and trades are written to its trial's directory."""
    played = {}
    for split in prices.record:
        done = _recorded(prices, split, learner)
        _write(directory / "rollouts" / f"{split}.parquet", prices, split, done)
        trades = account_trades(prices.prepared.split(split), prices.env, done)
        _write_trades(directory / "trades" / f"{split}.parquet", prices, split, trades)
        played[split] = Played(done, trades)
    return played


def assess_splits(
    played: Mapping[str, Played], leaky: bool, compared: References, year: Year
) -> TradingTrial:
    """What was played on every split against the references there."""
    splits = {
        split: assess(
            done, metrics.tear_sheet(done, trades, year.bars), leaky, compared.splits[split]
        )
        for split, (done, trades) in played.items()
    }
    return TradingTrial(splits=splits, periods_per_year=year.bars)


def with_details(outcome: Outcome, trial: TradingTrial, compared: References) -> Outcome:
    """The outcome with what its trial made of the prices, and what others did."""
    sheets = vars(compared.splits["test"]).items()
    known = {name: sheet["log_return"] for name, sheet in sheets if sheet and name != "random"}
    return dataclasses.replace(outcome, details=trial, baselines={**outcome.baselines, **known})


def draw(prices: PriceRun, trained: Trained, lane: int, outcome: Outcome) -> None:
    """The trial's run over the test split, alone and against a random one."""
    folder, test = trained.trials[lane] / "plots", prices.prepared.test
    (targets,) = baselines.random_targets(test, prices.env, 1)
    done = _recorded(prices, "test", trained.lanes[lane].learner)
    deterministic = rollout_frame(test, prices.env, done)
    done = account_of(test, prices.env, targets)
    both = deterministic, rollout_frame(test, prices.env, done)
    trained.paint(plots.draw, plots.actions_over_price, folder / "actions.png", deterministic)
    trained.paint(plots.draw, plots.reward_plot, folder / "rewards.png", *both)
    trained.paint(plots.draw, plots.compare_rollouts, folder / "rollouts.png", *both)


def previewed(prices: PriceRun, record: Callable[[PyTree], Recording]) -> Previewed:
    """The validation split for onlookers; `record` plays a policy over all of it."""
    market, env = prices.prepared.split(SPLIT), prices.env
    rows = decisions(market, env)

    def log_value(played: Recording) -> Floats:
        return account_of(market, env, targets_of(played.actions, env)).log_value

    return Previewed(
        time=market.time[rows.start : rows.stop + 1],
        record=record,
        log_value=log_value,
        held=lambda: account_of(market, env, baselines.buy_and_hold(market, env)).log_value,
    )


def _recorded(prices: PriceRun, split: str, learner: PyTree) -> Account:
    """The account of a learner's greedy run over a split."""
    targets = targets_of(prices.record[split](learner).actions, prices.env)
    return account_of(prices.prepared.split(split), prices.env, targets)


def _write(path: Path, prices: PriceRun, split: str, done: Account) -> None:
    path.parent.mkdir(exist_ok=True)
    rollout_frame(prices.prepared.split(split), prices.env, done).write_parquet(path)


def _write_trades(path: Path, prices: PriceRun, split: str, trades: list[Trade]) -> None:
    path.parent.mkdir(exist_ok=True)
    market = prices.prepared.split(split)
    rows = decisions(market, prices.env)
    trades_frame(trades, market.time[rows.start : rows.stop + 1]).write_parquet(path)


def summarize(
    tried: int,
    year: Year,
    root: Path,
    compared: References,
    trials: list[TradingTrial],
    log_returns: list[Floats],
    what: str = "trials",
) -> TradingSummary:
    """What all trials come to; `log_returns` are those of each trial on the test split."""
    over_trials = overall(tried, year, root, trials, log_returns, what)
    return TradingSummary(
        references=compared,
        aggregate=over_trials.aggregate,
        score=over_trials.score,
        chosen_trial=over_trials.chosen,
        deflated_sharpe=over_trials.deflated_sharpe,
        alarms=over_trials.alarms,
        periods_per_year=year.bars,
        periods_from=year.source,
    )


def reference_targets(
    market: Market, first_row: int, env: TradingEnvConfig, rule: BestRule | None
) -> dict[str, Floats | None]:
    """Targets (T,) of buy_and_hold, momentum, foresight and the best rule (or None) on a stretch."""
    return {
        "buy_and_hold": baselines.buy_and_hold(market, env),
        "momentum": baselines.momentum(market, env),
        "foresight": foresight_targets(returns_of(market, env), env),
        "model": None if rule is None else rule.targets(market, first_row),
    }


def references(
    prepared: Prepared,
    env: TradingEnvConfig,
    year: Year,
    keep: Callable[[str, str, Account], None] = lambda split, name, done: None,
) -> References:
    """Metrics of baselines and oracles on every split; `keep` is given split, name and each account."""
    longest = max(len(returns_of(prepared.split(split), env)) for split in SPLITS)
    rule = best_rule(prepared.pattern, prepared.params, env, longest)
    splits = {
        split: stretch_references(
            prepared.split(split), env, year, rule, prepared.bounds[split][0], partial(keep, split)
        )
        for split in SPLITS
    }
    return References(splits=splits)


def stretch_references(
    market: Market,
    env: TradingEnvConfig,
    year: Year,
    rule: BestRule | None = None,
    first_row: int = 0,
    keep: Callable[[str, Account], None] = lambda name, done: None,
) -> SplitReferences:
    """Metrics of baselines and oracles on a stretch that begins at that row of its file."""
    sheets: dict[str, Metrics | None] = {}
    for name, targets in reference_targets(market, first_row, env, rule).items():
        sheets[name] = None
        if targets is not None:
            done = account_of(market, env, targets)
            trades = account_trades(market, env, done)
            sheets[name] = plain(metrics.tear_sheet(done, trades, year.bars))
            keep(name, done)
    return SplitReferences(**sheets, random={"log_return": _chance(market, env)})


def _chance(market: Market, env: TradingEnvConfig) -> Chance:
    """Mean and interval of the log return of uniformly random targets."""
    return chance_of(chance_ends(market, env))


def chance_ends(market: Market, env: TradingEnvConfig, seed: int = 0) -> list[float]:
    """The log returns of uniformly random targets, one for each run."""
    returns = returns_of(market, env)
    runs = max(LEAST_RANDOM_RUNS, min(baselines.RANDOM_RUNS, RANDOM_BARS // len(returns)))
    return [
        float(account(targets, returns, env.fee, env.borrow_rate, env.slippage).log_value[-1])
        for targets in baselines.random_targets(market, env, runs, seed)
    ]


def assess(
    done: Account, sheet: dict[str, float], leaky: bool, compared: SplitReferences
) -> SplitResult:
    """A trial's account on a split and its metrics against the references on the same."""
    low, high = metrics.mean_interval(done.log_return)
    bars, total = len(done.log_return), float(done.log_value[-1])
    agent = sheet | {"log_return_low": low * bars, "log_return_high": high * bars}
    scores = {
        "foresight": _score(total, compared, "foresight"),
        # The best without looking ahead is no measure for one who does.
        "model": None if leaky else _score(total, compared, "model"),
    }
    alarms = (*metrics.too_good(done), *_suspicious(done, agent["hit_rate"], compared))
    return SplitResult(agent=plain(agent), score=scores, too_good=alarms)


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
    if held > metrics.TOO_GOOD_BARS and usual < TOO_GOOD_HIT_RATE <= hit_rate < 1:
        alarms.append(
            f"{_percent(hit_rate)} of its {held:,} bars with a position won, of the best baseline's "
            f"{_percent(usual)}"
        )
    if bars <= metrics.TOO_GOOD_BARS or reached is None or easy is None:
        return alarms
    if easy < TOO_GOOD_SCORE <= reached:
        alarms.append(
            f"it went {_percent(reached)} of the way from chance to perfect foresight over {bars:,} bars, "
            f"the best baseline {_percent(easy)}"
        )
    return alarms


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def returns_of(market: Market, env: TradingEnvConfig) -> Floats:
    """What each decision of an evaluation earns, (T,)."""
    return fill_returns(market, env.fill)[decisions(market, env)]


def account_of(market: Market, env: TradingEnvConfig, targets: Floats) -> Account:
    """The account of targets on a stretch; only a ruin may have ended them early."""
    returns = returns_of(market, env)
    missing = len(returns) - len(targets)
    padded = np.pad(targets, (0, max(0, missing)))[: len(returns)]
    done = account(padded, returns, env.fee, env.borrow_rate, env.slippage)
    if missing < 0 or (missing > 0 and not done.ruined[: len(targets)].any()):
        raise ProximaError(
            f"{len(targets)} recorded decisions on a stretch of {len(returns)}: the actions are of "
            "other data, or of another window or fill"
        )
    return done


def account_trades(market: Market, env: TradingEnvConfig, done: Account) -> list[Trade]:
    """The trades of an account on a stretch."""
    first = decisions(market, env).start
    return trades_of(done, fill_prices(market, env.fill)[first:], env)


def rollout_frame(market: Market, env: TradingEnvConfig, done: Account) -> pl.DataFrame:
    """An account bar by bar: what was decided at the bar's close, and what it led to.

    time and close are of the deciding bar; log_return, equity (from 1) and drawdown are those after
    the holding that began at fill_price.
    """
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
            "drawdown": metrics.drawdowns(done.log_value)[1:],
        }
    )
