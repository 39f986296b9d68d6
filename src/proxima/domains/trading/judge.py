"""The end of a trading run: every trial's run over each whole split, beside baselines and oracles."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proxima.core.types import PyTree
from proxima.domains.domain import Trained, Verdict
from proxima.domains.trading import assess, plots
from proxima.domains.trading.baselines import random_targets
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.domains.trading.env import targets_of
from proxima.domains.trading.market import SPLITS, Prepared
from proxima.domains.trading.results import (
    Chance,
    References,
    SplitReferences,
    SplitResult,
    TradingSummary,
    TradingTrial,
)
from proxima.run.files import read_json
from proxima.run.results import Aggregate, Outcome, aggregate_of
from proxima.train.program import Recording

BESIDE = ("buy_and_hold", "momentum", "foresight", "model")
Actions = dict[str, np.ndarray]  # by split


class PriceRun(NamedTuple):
    """What a trading run is about besides its program."""

    data: DataConfig
    env: TradingEnvConfig
    prepared: Prepared
    record: dict[str, Callable[[PyTree], Recording]]  # a learner's greedy run over each whole split


def judge(prices: PriceRun, trained: Trained, outcomes: list[Outcome]) -> Verdict:
    """The outcomes with what each trial made of the prices; rollouts are written."""
    root = trained.trials[0].parent
    targets = assess.reference_targets(prices.prepared, prices.env)
    compared = assess.references(prices.prepared, prices.env, prices.data, targets)
    actions = [_actions(prices, state.learner) for state in trained.lanes]
    judged = [
        _trial(assess.assess(prices.prepared, prices.env, prices.data, each, compared))
        for each in actions
    ]
    for split in SPLITS:
        for name, chosen in targets[split].items():
            if chosen is not None:
                _write(root / "rollouts" / f"{name}_{split}.parquet", prices, split, chosen)
    for directory, recorded in zip(trained.trials, actions, strict=True):
        for split, each in recorded.items():
            path = directory / "rollouts" / f"{split}.parquet"
            _write(path, prices, split, targets_of(each, prices.env))
    summary = _summary(prices, root, judged, actions, _references(compared))
    for alarm in summary.alarms:
        trained.say(f"Too good to be true? {alarm}. Look for a leak before you believe it.")
    beside = compared["splits"]["test"]
    known = {name: beside[name]["log_return"] for name in BESIDE if beside[name] is not None}
    outcomes = [
        dataclasses.replace(outcome, details=trial, baselines={**outcome.baselines, **known})
        for outcome, trial in zip(outcomes, judged, strict=True)
    ]
    return Verdict(outcomes, summary)


def draw(prices: PriceRun, trained: Trained, lane: int, outcome: Outcome) -> None:
    """The trial's run over the test split, alone and against a random one."""
    folder, bars = trained.trials[lane] / "plots", prices.prepared.test
    actions = prices.record["test"](trained.lanes[lane].learner).actions
    (random,) = random_targets(bars, prices.env, 1)
    deterministic, by_chance = (
        assess.rollout_frame(bars, prices.env, targets)
        for targets in (targets_of(actions, prices.env), random)
    )
    trained.paint(plots.draw, plots.actions_over_price, folder / "actions.png", deterministic)
    both = deterministic, by_chance
    trained.paint(plots.draw, plots.reward_plot, folder / "rewards.png", *both)
    trained.paint(plots.draw, plots.compare_rollouts, folder / "rollouts.png", *both)


def _summary(
    prices: PriceRun,
    root: Path,
    judged: list[TradingTrial],
    actions: list[Actions],
    references: References,
) -> TradingSummary:
    chosen = _best_on_validation(judged)
    return TradingSummary(
        references=references,
        aggregate={split: _aggregate(judged, split, "agent") for split in SPLITS},
        score={split: _scores(judged, split) for split in SPLITS},
        chosen_trial=chosen,
        deflated_sharpe=assess.deflated(
            prices.prepared,
            prices.env,
            prices.data,
            actions[chosen]["test"],
            _sharpes(judged) + _earlier_sharpes(root),
        ),
        alarms=tuple(_alarms(judged)),
    )


def _actions(prices: PriceRun, learner: PyTree) -> Actions:
    return {split: record(learner).actions for split, record in prices.record.items()}


def _trial(assessed: dict) -> TradingTrial:
    splits = assessed["splits"].items()
    return TradingTrial(
        splits={
            name: SplitResult(**{**each, "too_good": tuple(each["too_good"])})
            for name, each in splits
        }
    )


def _references(compared: dict) -> References:
    return References(
        splits={
            split: SplitReferences(
                **{**each, "random": {"log_return": Chance(**each["random"]["log_return"])}}
            )
            for split, each in compared["splits"].items()
        }
    )


def _write(path: Path, prices: PriceRun, split: str, targets: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    assess.rollout_frame(prices.prepared.split(split), prices.env, targets).write_parquet(path)


def _aggregate(judged: list[TradingTrial], split: str, part: str) -> dict[str, Aggregate]:
    """Interquartile mean and interval over trials of every number that all trials can have."""
    rows = [trial.splits[split][part] for trial in judged]
    return {name: aggregate_of([row[name] for row in rows]) for name in rows[0]}


def _scores(judged: list[TradingTrial], split: str) -> dict[str, Aggregate | None]:
    """The same of the scores; null where there is none, which is no failure of any trial."""
    rows = [trial.splits[split].score for trial in judged]
    return {
        oracle: None if all(row[oracle] is None for row in rows) else figure
        for oracle, figure in _aggregate(judged, split, "score").items()
    }


def _best_on_validation(judged: list[TradingTrial]) -> int:
    returns = [trial.splits["validation"].agent["log_return"] for trial in judged]
    return int(np.argmax([-np.inf if value is None else value for value in returns]))


def _sharpes(trials: list[TradingTrial]) -> list[float]:
    ratios = [trial.splits["test"].agent["sharpe"] for trial in trials]
    return [sharpe for sharpe in ratios if sharpe is not None]


def _earlier_sharpes(root: Path) -> list[float]:
    """Of the finished runs of this experiment: trying often enough makes any Sharpe ratio look good."""
    others = [path for path in root.parent.glob("*/trial_*/results.json")]
    results = [read_json(path) for path in sorted(others) if root not in path.parents]
    splits = [((each.get("details") or {}).get("splits") or {}) for each in results]
    ratios = [each["test"]["agent"]["sharpe"] for each in splits if "test" in each]
    return [sharpe for sharpe in ratios if sharpe is not None]


def _alarms(judged: list[TradingTrial]) -> list[str]:
    """A sentence for every split on which trials are too good: how many, and about what the first is."""
    sentences = []
    for split in SPLITS:
        suspicious = {k: trial.splits[split].too_good for k, trial in enumerate(judged)}
        first = next((k for k in suspicious if suspicious[k]), None)
        if first is not None:
            count = sum(map(bool, suspicious.values()))
            trials = f"{count} of {len(judged)} trials, the first being trial {first}"
            sentences.append(f"{split} split, {trials}: {'; '.join(suspicious[first])}")
    return sentences
