"""What a trading run says besides returns, as types: each split of each trial, beside others."""

from collections.abc import Mapping
from dataclasses import dataclass

from proxima.domains.trading.edge import Evidence
from proxima.run.results import Aggregate, Number, Result, Summary

Metrics = Mapping[str, Number]


@dataclass(frozen=True, kw_only=True)
class SplitResult(Result):
    """A trial's greedy run over one split."""

    agent: Metrics
    score: Metrics  # by oracle: 0 is chance, 1 the oracle; null where it earned nothing
    too_good: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TradingTrial(Result):
    """What a trial made of the prices."""

    splits: Mapping[str, SplitResult]
    periods_per_year: Number = None  # bars in a year that annual figures assume


@dataclass(frozen=True, kw_only=True)
class Chance(Result):
    """The log return of uniformly random targets."""

    mean: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class SplitReferences(Result):
    """What others made of a split; null where there is no such rule for these prices."""

    buy_and_hold: Metrics | None
    momentum: Metrics | None
    foresight: Metrics | None
    model: Metrics | None
    random: Mapping[str, Chance]  # its log_return


@dataclass(frozen=True, kw_only=True)
class References(Result):
    """What others made of the same prices."""

    splits: Mapping[str, SplitReferences]


@dataclass(frozen=True, kw_only=True)
class Fold(Result):
    """One fold of a walk: of each split its first and last bar, and what trials made of its test."""

    spans: Mapping[str, tuple[str, str]]
    bars: int  # decisions of its test split
    log_returns: tuple[Number, ...]  # on its test split, by seed
    buy_and_hold: Number


@dataclass(frozen=True, kw_only=True)
class Walk(Result):
    """All folds one after the other: seed s is trials s·F … s·F + F − 1, of F folds."""

    folds: tuple[Fold, ...]
    seeds: tuple[TradingTrial, ...]  # each its folds' accounts end to end
    overfitting: Number  # probability, of choosing the best of all that was tried on these bars
    strategies: int  # that were tried on them: the seeds of this run and of earlier ones


@dataclass(frozen=True, kw_only=True)
class TradingSummary(Result):
    """All trials on all splits."""

    references: References
    aggregate: Mapping[str, Mapping[str, Aggregate]]
    score: Mapping[str, Mapping[str, Aggregate | None]]
    chosen_trial: int  # the one that one would choose without having seen the test split
    deflated_sharpe: Number
    alarms: tuple[str, ...]  # sentences about trials that are too good to be true
    # Bars in a year that annual figures assume, and where the number comes from; null in runs that
    # say it in their scenario alone.
    periods_per_year: Number = None
    periods_from: str = "data.periods_per_year"
    # Where every fold was trained; all of the above is then over its seeds.
    walk: Walk | None = None


def judged(summary: Summary) -> tuple[str, list[TradingTrial]]:
    """What a run is judged by, in a word, and all of these: its trials, or walks over all folds."""
    details: TradingSummary = summary.details
    if details.walk is not None:
        return "walk", list(details.walk.seeds)
    return "trial", [trial.details for trial in summary.trials]


def evidence(summary: Summary) -> Evidence:
    """What a run's figures say for and against an edge."""
    details: TradingSummary = summary.details
    _, trials = judged(summary)
    sheet = details.references.splits["test"].buy_and_hold
    return Evidence(
        earned=details.aggregate["test"]["log_return"],
        held=None if sheet is None else sheet["log_return"],
        sharpe=trials[details.chosen_trial].splits["test"].agent["sharpe"],
        deflated=details.deflated_sharpe,
        overfitting=None if details.walk is None else details.walk.overfitting,
    )
