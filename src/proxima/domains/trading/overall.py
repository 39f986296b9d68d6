"""What the trials of a run come to, whatever each of them traded: intervals, the chosen one, alarms.

    year_of    bars in a year, for annual figures
    overall    figures over trials, the trial chosen on validation, its deflated Sharpe ratio, alarms

The Sharpe ratio is deflated by everything that was tried: the trials of this run, those of the experiment's
earlier ones, and the configurations among which the settings were chosen.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from proxima.domains.domain import Trained
from proxima.domains.trading import metrics
from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.config import DataConfig
from proxima.domains.trading.market import SPLITS
from proxima.domains.trading.results import Chance, Metrics
from proxima.run.files import plain, read_json
from proxima.run.results import Aggregate, Number, aggregate_of

ROUNDING = 1e-9  # a log return that small is nothing


class JudgedSplit(Protocol):
    """A trial on one split."""

    @property
    def agent(self) -> Metrics: ...
    @property
    def score(self) -> Metrics: ...
    @property
    def too_good(self) -> tuple[str, ...]: ...


class JudgedTrial(Protocol):
    """A trial on every split."""

    @property
    def splits(self) -> Mapping[str, JudgedSplit]: ...


class Year(NamedTuple):
    """Bars in a year, for annual figures, and where the number comes from."""

    bars: float
    source: str


class Overall(NamedTuple):
    """What all trials come to."""

    aggregate: Mapping[str, Mapping[str, Aggregate]]  # by split and metric
    score: Mapping[str, Mapping[str, Aggregate | None]]  # by split and oracle
    chosen: int  # the trial that one would choose without having seen the test split
    deflated_sharpe: Number  # of that trial
    alarms: tuple[str, ...]  # sentences about trials that are too good to be true


def year_of(
    data: DataConfig, params: Mapping[str, float | int | str], trained_on: NDArray[np.datetime64]
) -> Year:
    """As the settings say, else as a synthetic pattern does, else as the times of the train split do."""
    if data.periods_per_year is not None:
        return Year(data.periods_per_year, "data.periods_per_year")
    if "periods_per_year" in params:
        return Year(float(params["periods_per_year"]), "the pattern's periods_per_year")
    counted = metrics.bars_per_year(trained_on)
    return Year(counted, "the times of the train split; data.periods_per_year sets it")


def overall(
    tried: int,
    year: Year,
    root: Path,
    trials: Sequence[JudgedTrial],
    log_returns: Sequence[Floats],
    what: str = "trials",
) -> Overall:
    """Figures over the trials of the run in a directory; `log_returns` are each one's on the test split."""
    validated = [trial.splits["validation"].agent["log_return"] for trial in trials]
    chosen = int(np.argmax([-np.inf if value is None else value for value in validated]))
    sharpes = [trial.splits["test"].agent["sharpe"] for trial in trials] + _earlier_sharpes(
        root, year
    )
    ratio = metrics.deflated_sharpe(
        np.expm1(log_returns[chosen]),
        [sharpe for sharpe in sharpes if sharpe is not None],
        year.bars,
        tried,
    )
    agents = {split: [trial.splits[split].agent for trial in trials] for split in SPLITS}
    scores = {split: [trial.splits[split].score for trial in trials] for split in SPLITS}
    return Overall(
        aggregate={split: _aggregate(rows) for split, rows in agents.items()},
        score={split: _scores(rows) for split, rows in scores.items()},
        chosen=chosen,
        deflated_sharpe=plain(ratio),
        alarms=tuple(_alarms(trials, what)),
    )


def _aggregate(trials: list[Metrics]) -> dict[str, Aggregate]:
    """Interquartile mean and interval over trials of every number that all trials can have."""
    return {name: aggregate_of([trial[name] for trial in trials]) for name in trials[0]}


def _scores(trials: list[Metrics]) -> dict[str, Aggregate | None]:
    """The same of the scores; null where there is none, which is no failure of any trial."""
    return {
        oracle: None if all(trial[oracle] is None for trial in trials) else over_trials
        for oracle, over_trials in _aggregate(trials).items()
    }


def _earlier_sharpes(root: Path, year: Year) -> list[float]:
    """Of the finished runs of this experiment: trying often enough makes any Sharpe ratio look good."""
    paths = sorted(root.parent.glob("*/trial_*/results.json"))
    results = [read_json(path) for path in paths if root not in path.parents]
    sharpes = []
    for details in (result.get("details") or {} for result in results):
        sharpe = details.get("splits", {}).get("test", {}).get("agent", {}).get("sharpe")
        if sharpe is not None:
            theirs = details.get("periods_per_year") or year.bars  # older runs do not say
            sharpes.append(sharpe * math.sqrt(year.bars / theirs))
    return sharpes


def _alarms(judged: Sequence[JudgedTrial], what: str) -> list[str]:
    """A sentence for every split on which trials are too good: how many, and about what the first is."""
    sentences = []
    for split in SPLITS:
        reasons = [trial.splits[split].too_good for trial in judged]
        suspicious = [trial for trial, reason in enumerate(reasons) if reason]
        if suspicious:
            first = suspicious[0]
            trials = (
                f"{len(suspicious)} of {len(judged)} {what}, the first being {what[:-1]} {first}"
            )
            sentences.append(f"{split} split, {trials}: {'; '.join(reasons[first])}")
    return sentences


def say_alarms(trained: Trained, alarms: Sequence[str]) -> None:
    """What is too good to be true, to the user."""
    for alarm in alarms:
        trained.say(f"Too good to be true? {alarm}. Look for a leak before you believe it.")


def chance_of(ends: Sequence[float]) -> Chance:
    """Mean and interval of such runs."""
    low, high = np.percentile(ends, metrics.INTERVAL)
    return Chance(mean=float(np.mean(ends)), low=float(low), high=float(high), runs=len(ends))


def score(agent: float, chance: float, oracle: float) -> float | None:
    """How much of the way from chance to the oracle the agent is; None where the oracle earned nothing."""
    if oracle <= max(chance, ROUNDING):
        return None
    return (agent - chance) / (oracle - chance)
