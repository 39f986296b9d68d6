"""The end of a run of portfolios: every trial's account on each whole split, beside rules and hindsight.

    judge    every trial assessed (assess.py) on each split, all trials together; rollouts are written
    draw     pictures of a trial

A run over one fold is a walk of one: trial k is of fold k modulo the number of folds, the accounts of a seed
are joined end to end, and so are those of every rule.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from proxima.core.types import PyTree
from proxima.domains.domain import Trained, Verdict
from proxima.domains.trading import metrics
from proxima.domains.trading.accounting import Floats, joined
from proxima.domains.trading.accounting import log_value as log_value_of
from proxima.domains.trading.market import SPLITS
from proxima.domains.trading.overall import Year, overall, say_alarms, year_of
from proxima.domains.trading.overfitting import overfitting_of
from proxima.domains.trading.portfolio import plots, rules
from proxima.domains.trading.portfolio.accounting import Account, held_log_value
from proxima.domains.trading.portfolio.assess import (
    Compared,
    account_of,
    accounts_of,
    assess,
    closes_known,
    compare_stretch,
    references_of,
    returns_of,
)
from proxima.domains.trading.portfolio.config import PanelConfig, PortfolioEnvConfig
from proxima.domains.trading.portfolio.data import PreparedPanel
from proxima.domains.trading.portfolio.env import targets_of
from proxima.domains.trading.portfolio.results import (
    NAMES,
    PortfolioReferences,
    PortfolioSummary,
    PortfolioTrial,
    PortfolioWalk,
)
from proxima.domains.trading.preview import SPLIT, Previewed
from proxima.domains.trading.results import Fold
from proxima.domains.trading.rollouts import end_to_end
from proxima.domains.trading.splits import day_of
from proxima.domains.trading.timing import decisions
from proxima.run.files import plain
from proxima.run.results import Outcome
from proxima.train.program import Recording

Frame = pl.DataFrame


class PanelRun(NamedTuple):
    """What a run is about besides its program: one fold of it."""

    data: PanelConfig
    env: PortfolioEnvConfig
    prepared: PreparedPanel
    # A learner's greedy run over each whole split.
    record: Mapping[str, Callable[[PyTree], Recording]]
    tried: int = 1  # configurations among which the settings were chosen


def judge(runs: Sequence[PanelRun], trained: Trained, outcomes: list[Outcome]) -> Verdict:
    """The outcomes with what each trial made of its fold, and all folds as one walk for each seed."""
    root, folds, first = trained.trials[0].parent, len(runs), runs[0].prepared
    year = year_of(runs[0].data, first.params, first.splits["train"].time)
    compared = [
        {split: compare(run, split, fold) for split in SPLITS} for fold, run in enumerate(runs)
    ]
    played = _played(runs, trained)
    of_fold = [_references(first.assets, [each], year) for each in compared]
    trials = [
        _assessed(first.assets, each, of_fold[k % folds], year) for k, each in enumerate(played)
    ]
    walks = [
        _joined_splits(played[start : start + folds]) for start in range(0, len(played), folds)
    ]
    others = _references(first.assets, compared, year)
    seeds = [_assessed(first.assets, walk, others, year) for walk in walks] if folds > 1 else trials
    log_returns = [walk["test"].log_return for walk in walks]
    _write_joined(root, runs, played, compared)
    what = "walks" if folds > 1 else "trials"
    over = overall(runs[0].tried, year, root, seeds, log_returns, what)
    summary = PortfolioSummary(
        assets=first.assets,
        references=others,
        aggregate=over.aggregate,
        score=over.score,
        chosen_trial=over.chosen,
        deflated_sharpe=over.deflated_sharpe,
        alarms=over.alarms,
        periods_per_year=year.bars,
        periods_from=year.source,
        walk=_walk(runs, root, trials, seeds, of_fold, log_returns) if folds > 1 else None,
    )
    say_alarms(trained, summary.alarms)
    judged = [
        _with_details(outcome, trial, of_fold[lane % folds]["test"])
        for lane, (outcome, trial) in enumerate(zip(outcomes, trials, strict=True))
    ]
    return Verdict(judged, summary)


def compare(run: PanelRun, split: str, seed: int = 0) -> Compared:
    """The accounts of all rules on a split, random weights beside them."""
    prepared = run.prepared
    closes = closes_known(prepared.splits[split], run.env)
    expected = rules.best_expected(prepared.pattern, prepared.params, closes)
    return compare_stretch(prepared.splits[split], run.env, expected, seed)


def previewed(run: PanelRun, record: Callable[[PyTree], Recording]) -> Previewed:
    """The validation split for onlookers; `record` plays a policy over all of it."""
    stretch, env = run.prepared.splits[SPLIT], run.env
    rows = decisions(stretch, env)

    def log_value(played: Recording) -> Floats:
        if env.pays_log_return:  # which is the account in float32, without a loop over the bars
            return log_value_of(
                np.pad(played.rewards, (0, rows.stop - rows.start - len(played.rewards)))
            )
        return account_of(stretch, env, targets_of(played.actions, env)).log_value

    def held() -> Floats:
        return held_log_value(returns_of(stretch, env), env.fee)

    return Previewed(stretch.time[rows.start : rows.stop + 1], record, log_value, held)


def _played(runs: Sequence[PanelRun], trained: Trained) -> list[dict[str, Account]]:
    """Every lane's greedy run over every split of its fold; rollouts are written to its trial's directory."""
    played: list[dict[str, Account]] = [{} for _ in trained.lanes]
    for fold, run in enumerate(runs):
        lanes = range(fold, len(trained.lanes), len(runs))
        for split in SPLITS:
            record = run.record[split]
            targets = [
                targets_of(record(trained.lanes[lane].learner).actions, run.env) for lane in lanes
            ]
            accounts = accounts_of(run.prepared.splits[split], run.env, targets)
            for lane, done in zip(lanes, accounts, strict=True):
                path = trained.trials[lane] / "rollouts" / f"{split}.parquet"
                path.parent.mkdir(exist_ok=True)
                rollout_frame(run, split, done).write_parquet(path)
                played[lane][split] = done
    return played


def rollout_frame(run: PanelRun, split: str, done: Account) -> Frame:
    """An account bar by bar: time of the decision, what it led to, and every asset's weight.

    weight and contribution are lists in the order of the assets; equity (from 1) and drawdown are those
    after the holding.
    """
    stretch = run.prepared.splits[split]
    return pl.DataFrame(
        {
            "time": stretch.time[decisions(stretch, run.env)],
            "log_return": done.log_return,
            "cost": done.cost,
            "turnover": np.abs(done.traded).sum(axis=1),
            "equity": np.exp(done.log_value[1:]),
            "drawdown": metrics.drawdowns(done.log_value)[1:],
            "weight": done.held,
            "contribution": done.contribution,
        },
        schema_overrides={
            name: pl.Array(pl.Float64, len(run.prepared.assets))
            for name in ("weight", "contribution")
        },
    )


def _joined_splits(folds: Sequence[Mapping[str, Account]]) -> dict[str, Account]:
    return {split: joined([fold[split] for fold in folds]) for split in SPLITS}


def _references(
    assets: tuple[str, ...], folds: Sequence[Mapping[str, Compared]], year: Year
) -> dict[str, PortfolioReferences]:
    """What others made of every split, the folds end to end."""
    return {split: references_of(assets, [fold[split] for fold in folds], year) for split in SPLITS}


def _assessed(
    assets: tuple[str, ...],
    played: Mapping[str, Account],
    compared: Mapping[str, PortfolioReferences],
    year: Year,
) -> PortfolioTrial:
    splits = {split: assess(assets, done, compared[split], year) for split, done in played.items()}
    return PortfolioTrial(splits=splits, periods_per_year=year.bars)


def _with_details(
    outcome: Outcome, trial: PortfolioTrial, compared: PortfolioReferences
) -> Outcome:
    known = {name: sheet["log_return"] for name, sheet in compared.rules.items()}
    return dataclasses.replace(outcome, details=trial, baselines={**outcome.baselines, **known})


def _walk(
    runs: Sequence[PanelRun],
    root: Path,
    trials: Sequence[PortfolioTrial],
    seeds: Sequence[PortfolioTrial],
    compared: Sequence[Mapping[str, PortfolioReferences]],
    log_returns: Sequence[Floats],
) -> PortfolioWalk:
    folds = len(runs)
    overfitted = overfitting_of(root, log_returns)
    return PortfolioWalk(
        folds=tuple(
            _fold(run, trials[k::folds], compared[k]["test"]) for k, run in enumerate(runs)
        ),
        seeds=tuple(seeds),
        overfitting=plain(overfitted.probability),
        strategies=overfitted.strategies,
    )


def _fold(run: PanelRun, trials: Sequence[PortfolioTrial], compared: PortfolioReferences) -> Fold:
    rows = decisions(run.prepared.splits["test"], run.env)
    return Fold(
        spans={
            split: (day_of(stretch.time[0]), day_of(stretch.time[-1]))
            for split, stretch in run.prepared.splits.items()
        },
        bars=rows.stop - rows.start,
        log_returns=tuple(trial.splits["test"].agent["log_return"] for trial in trials),
        buy_and_hold=compared.rules["buy_and_hold"]["log_return"],
    )


def _write_joined(
    root: Path,
    runs: Sequence[PanelRun],
    played: Sequence[Mapping[str, Account]],
    compared: Sequence[Mapping[str, Compared]],
) -> None:
    """The test rollouts of every rule, and of every seed where there are several folds, end to end."""
    folder = root / "rollouts"
    folder.mkdir(exist_ok=True)
    test = [fold["test"].accounts for fold in compared]
    for name in NAMES:
        if all(name in accounts for accounts in test):
            done = [accounts[name] for accounts in test]
            _joined_frame(runs, done).write_parquet(folder / f"{name}_test.parquet")
    folds = len(runs)
    if folds > 1:
        for seed, start in enumerate(range(0, len(played), folds)):
            done = [lane["test"] for lane in played[start : start + folds]]
            _joined_frame(runs, done).write_parquet(folder / f"walk_{seed}_test.parquet")


def _joined_frame(runs: Sequence[PanelRun], accounts: Sequence[Account]) -> Frame:
    frames = [rollout_frame(run, "test", done) for run, done in zip(runs, accounts, strict=True)]
    return end_to_end(frames, joined(accounts).log_value)


def draw(runs: Sequence[PanelRun], trained: Trained, lane: int, outcome: Outcome) -> None:
    """The trial's weights over the test split of its fold, and what each asset added."""
    folder, assets = trained.trials[lane], runs[0].prepared.assets
    frame = pl.read_parquet(folder / "rollouts" / "test.parquet")
    held = partial(plots.weights_over_time, frame, assets)
    added = partial(plots.contributions, outcome.details.splits["test"].attribution)
    trained.paint(plots.write, held, folder / "plots" / "weights.png")
    trained.paint(plots.write, added, folder / "plots" / "contributions.png")
