"""Walk-forward as one experiment: folds × seeds are trials, judged as one walk through time.

    trial k   fold k mod F, with a seed of its own: seeds s = k div F
    stitch    a seed's accounts on the folds' splits, end to end; every fold starts flat
    compare   buy and hold, momentum, oracles and chance, stitched in the same way
    deflate   the Sharpe ratio by everything tried; the probability of backtest overfitting

A fold's scalers are fit on its own train split, and the rows between its splits are left out as in any
split, so no fold knows anything of its test. Every fold's arrays are as long as the longest's: they are
leaves of one program, which is compiled once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from proxima.domains.domain import Trained, Verdict
from proxima.domains.trading import metrics
from proxima.domains.trading.accounting import Account, joined
from proxima.domains.trading.config import DataConfig
from proxima.domains.trading.data import one_fold, prepare_source, read_source
from proxima.domains.trading.judge import (
    Played,
    PriceRun,
    account_trades,
    assess_splits,
    chance_ends,
    draw,
    judge,
    play_splits,
    references,
    rollout_frame,
    summarize,
    with_details,
)
from proxima.domains.trading.market import SPLITS, Prepared
from proxima.domains.trading.overall import Year, chance_of, say_alarms, year_of
from proxima.domains.trading.overfitting import overfitting_of
from proxima.domains.trading.results import Fold, References, SplitReferences, TradingTrial, Walk
from proxima.domains.trading.rollouts import REFERENCES, end_to_end
from proxima.domains.trading.splits import day_of
from proxima.domains.trading.timing import decisions
from proxima.run.files import plain
from proxima.run.results import Outcome

# By split and name of a reference: one for each fold.
Accounts = Mapping[tuple[str, str], list[Account]]


def prepare_folds(config: DataConfig, name: str) -> list[Prepared]:
    """The scenario's market divided for each fold, or once where it is about one fold."""
    source = read_source(config, name)
    folds = config.split.folds if config.split.fold == "all" else 1
    return [prepare_source(source, one_fold(config, fold)) for fold in range(folds)]


def judge_folds(runs: Sequence[PriceRun], trained: Trained, outcomes: list[Outcome]) -> Verdict:
    """The outcomes with what each trial made of the prices: of one fold, or of all as walks."""
    if len(runs) == 1:
        return judge(runs[0], trained, outcomes)
    return judge_walk(runs, trained, outcomes)


def judge_walk(runs: Sequence[PriceRun], trained: Trained, outcomes: list[Outcome]) -> Verdict:
    """The outcomes with what each trial made of its fold, and all folds as one walk for each seed."""
    root, folds = trained.trials[0].parent, len(runs)
    first = runs[0].prepared
    year = year_of(runs[0].data, first.params, first.train.time)
    accounts: dict[tuple[str, str], list[Account]] = {}

    def keep(split: str, name: str, done: Account) -> None:
        accounts.setdefault((split, name), []).append(done)

    compared = [references(run.prepared, run.env, year, keep) for run in runs]
    played = [
        play_splits(runs[lane % folds], state.learner, directory)
        for lane, (state, directory) in enumerate(zip(trained.lanes, trained.trials, strict=True))
    ]
    leaky = runs[0].data.leaky
    trials = [
        assess_splits(each, leaky, compared[lane % folds], year) for lane, each in enumerate(played)
    ]
    walks = [stitch(played[first : first + folds]) for first in range(0, len(played), folds)]
    others = stitched_references(runs, accounts, year)
    seeds = [assess_splits(walk, leaky, others, year) for walk in walks]
    _write_walks(root, runs, played, accounts)
    log_returns = [walk["test"].done.log_return for walk in walks]
    summary = summarize(runs[0].tried, year, root, others, seeds, log_returns, "walks")
    overfitted = overfitting_of(root, log_returns)
    walk = Walk(
        folds=tuple(_fold(run, trials[k::folds], compared[k]) for k, run in enumerate(runs)),
        seeds=tuple(seeds),
        overfitting=plain(overfitted.probability),
        strategies=overfitted.strategies,
    )
    say_alarms(trained, summary.alarms)
    judged = [
        with_details(outcome, trial, compared[lane % folds])
        for lane, (outcome, trial) in enumerate(zip(outcomes, trials, strict=True))
    ]
    return Verdict(judged, replace(summary, walk=walk))


def draw_fold(runs: Sequence[PriceRun], trained: Trained, lane: int, outcome: Outcome) -> None:
    """The pictures of a trial on the test split of its fold."""
    draw(runs[lane % len(runs)], trained, lane, outcome)


def stitch(folds: Sequence[Mapping[str, Played]]) -> dict[str, Played]:
    """A seed's accounts on each split, end to end."""
    return {
        split: Played(
            joined([fold[split].done for fold in folds]),
            [trade for fold in folds for trade in fold[split].trades],
        )
        for split in SPLITS
    }


def stitched_references(runs: Sequence[PriceRun], accounts: Accounts, year: Year) -> References:
    """What others made of the same walk; one that some fold does not have, the walk has not either."""

    def of_split(split: str) -> SplitReferences:
        sheets: dict[str, Any] = dict.fromkeys(("buy_and_hold", "momentum", "foresight", "model"))
        for name in sheets:
            done = accounts.get((split, name), [])
            if len(done) == len(runs):
                trades = [
                    trade
                    for run, each in zip(runs, done, strict=True)
                    for trade in account_trades(run.prepared.split(split), run.env, each)
                ]
                sheets[name] = plain(metrics.tear_sheet(joined(done), trades, year.bars))
        chances = [
            chance_ends(run.prepared.split(split), run.env, fold) for fold, run in enumerate(runs)
        ]
        ends = [sum(walk) for walk in zip(*chances, strict=False)]
        return SplitReferences(**sheets, random={"log_return": chance_of(ends)})

    return References(splits={split: of_split(split) for split in SPLITS})


def _write_walks(
    root: Path, runs: Sequence[PriceRun], played: Sequence[Mapping[str, Played]], accounts: Accounts
) -> None:
    """The test rollouts of every seed and every reference, end to end."""
    folder, folds = root / "rollouts", len(runs)
    folder.mkdir(exist_ok=True)
    for seed in range(len(played) // folds):
        lanes = played[seed * folds : (seed + 1) * folds]
        _walk_frame(runs, [lane["test"].done for lane in lanes]).write_parquet(
            folder / f"walk_{seed}_test.parquet"
        )
    for name in REFERENCES:
        done = accounts.get(("test", name), [])
        if len(done) == folds:
            _walk_frame(runs, done).write_parquet(folder / f"{name}_test.parquet")


def _walk_frame(runs: Sequence[PriceRun], accounts: Sequence[Account]) -> pl.DataFrame:
    frames = [
        rollout_frame(run.prepared.test, run.env, done)
        for run, done in zip(runs, accounts, strict=True)
    ]
    return end_to_end(frames, joined(accounts).log_value)


def _fold(run: PriceRun, trials: Sequence[TradingTrial], compared: References) -> Fold:
    test = run.prepared.test
    held = compared.splits["test"].buy_and_hold
    rows = decisions(test, run.env)
    spans = {
        split: (day_of(market.time[0]), day_of(market.time[-1]))
        for split, market in ((name, run.prepared.split(name)) for name in SPLITS)
    }
    return Fold(
        spans=spans,
        bars=rows.stop - rows.start,
        log_returns=tuple(trial.splits["test"].agent["log_return"] for trial in trials),
        buy_and_hold=None if held is None else held["log_return"],
    )
