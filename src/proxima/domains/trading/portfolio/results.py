"""What a run of portfolios says besides returns, as types: each split of each trial, beside others."""

from collections.abc import Mapping
from dataclasses import dataclass

from proxima.domains.trading.edge import Evidence
from proxima.domains.trading.results import Chance, Fold, Metrics
from proxima.run.results import Aggregate, Number, Result, Summary

# Rules by name, as reports call them; those of hindsight know the end.
RULES = {
    "buy_and_hold": "uniform buy and hold",
    "rebalanced": "uniform rebalanced",
    "anticor": "Anticor",
    "olmar": "OLMAR",
    "newton": "online Newton step",
    "expected": "best expected return",
}
HINDSIGHT = {
    "best_asset": "best asset",
    "best_constant": "best constant weights",
    "foresight": "perfect foresight",
}
NAMES = {**RULES, **HINDSIGHT}


@dataclass(frozen=True, kw_only=True)
class Attribution(Result):
    """Where a log return comes from; assets, costs and interest add up to it."""

    assets: Mapping[str, Number]
    costs: Number
    interest: Number
    weights: Mapping[str, Number]  # mean weight of every asset


@dataclass(frozen=True, kw_only=True)
class PortfolioSplit(Result):
    """A trial's greedy run over one split."""

    agent: Metrics
    score: Metrics  # by oracle: 0 is chance, 1 the oracle; null where it earned nothing
    attribution: Attribution
    too_good: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PortfolioTrial(Result):
    """What a trial made of the prices."""

    splits: Mapping[str, PortfolioSplit]
    periods_per_year: Number = None  # bars in a year that annual figures assume


@dataclass(frozen=True, kw_only=True)
class PortfolioReferences(Result):
    """What others made of a split; a rule that there is not for these prices is left out."""

    rules: Mapping[str, Metrics]
    random: Chance  # the log return of random weights
    best_weights: Mapping[str, Number]  # of the best constant portfolio in hindsight


@dataclass(frozen=True, kw_only=True)
class PortfolioWalk(Result):
    """All folds one after the other: seed s is trials s·F … s·F + F − 1, of F folds."""

    folds: tuple[Fold, ...]
    seeds: tuple[PortfolioTrial, ...]  # each its folds' accounts end to end
    overfitting: Number  # probability, of choosing the best of all that was tried on these bars
    strategies: int  # that were tried on them: the seeds of this run and of earlier ones


@dataclass(frozen=True, kw_only=True)
class PortfolioSummary(Result):
    """All trials on all splits."""

    assets: tuple[str, ...]
    references: Mapping[str, PortfolioReferences]  # by split
    aggregate: Mapping[str, Mapping[str, Aggregate]]
    score: Mapping[str, Mapping[str, Aggregate | None]]
    chosen_trial: int  # the one that one would choose without having seen the test split
    deflated_sharpe: Number
    alarms: tuple[str, ...]  # sentences about trials that are too good to be true
    periods_per_year: float
    periods_from: str
    # Where every fold was trained; all of the above is then over its seeds.
    walk: PortfolioWalk | None = None


def judged(summary: Summary) -> tuple[str, list[PortfolioTrial]]:
    """What a run is judged by, in a word, and all of these: its trials, or walks over all folds."""
    details: PortfolioSummary = summary.details
    if details.walk is not None:
        return "walk", list(details.walk.seeds)
    return "trial", [trial.details for trial in summary.trials]


def evidence(summary: Summary) -> Evidence:
    """What a run's figures say for and against an edge."""
    details: PortfolioSummary = summary.details
    _, trials = judged(summary)
    return Evidence(
        earned=details.aggregate["test"]["log_return"],
        held=details.references["test"].rules["buy_and_hold"]["log_return"],
        sharpe=trials[details.chosen_trial].splits["test"].agent["sharpe"],
        deflated=details.deflated_sharpe,
        overfitting=None if details.walk is None else details.walk.overfitting,
    )
