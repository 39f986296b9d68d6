"""What a trading run says besides returns, as types: each split of each trial, beside others."""

from collections.abc import Mapping
from dataclasses import dataclass

from proxima.run.results import Aggregate, Number, Result

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
