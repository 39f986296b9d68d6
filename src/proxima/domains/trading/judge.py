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
from proxima.domains.trading.results import Metrics, TradingSummary, TradingTrial
from proxima.run.files import read_json
from proxima.run.results import Aggregate, Outcome, aggregate_of
from proxima.train.program import Recording


class PriceRun(NamedTuple):
    """What a trading run is about besides its program."""

    data: DataConfig
    env: TradingEnvConfig
    prepared: Prepared
    record: dict[str, Callable[[PyTree], Recording]]  # a learner's greedy run over each whole split


def judge(prices: PriceRun, trained: Trained, outcomes: list[Outcome]) -> Verdict:
    """The outcomes with what each trial made of the prices; rollouts are written."""
    prepared, env, data = prices.prepared, prices.env, prices.data
    root = trained.trials[0].parent
    targets = assess.reference_targets(prepared, env)
    compared = assess.references(prepared, env, data, targets)
    for split, others in targets.items():
        for name, chosen in others.items():
            if chosen is not None:
                _write(root / "rollouts" / f"{name}_{split}.parquet", prices, split, chosen)
    judged, tested = [], []
    for state, directory in zip(trained.lanes, trained.trials, strict=True):
        actions = {split: record(state.learner).actions for split, record in prices.record.items()}
        judged.append(assess.assess(prepared, env, data, actions, compared))
        tested.append(actions["test"])
        for split, recorded in actions.items():
            path = directory / "rollouts" / f"{split}.parquet"
            _write(path, prices, split, targets_of(recorded, env))
    chosen_trial = _best_on_validation(judged)
    sharpes = [trial.splits["test"].agent["sharpe"] for trial in judged] + _earlier_sharpes(root)
    summary = TradingSummary(
        references=compared,
        aggregate={
            split: _aggregate([trial.splits[split].agent for trial in judged]) for split in SPLITS
        },
        score={split: _scores([trial.splits[split].score for trial in judged]) for split in SPLITS},
        chosen_trial=chosen_trial,
        deflated_sharpe=assess.deflated(
            prepared,
            env,
            data,
            tested[chosen_trial],
            [sharpe for sharpe in sharpes if sharpe is not None],
        ),
        alarms=tuple(_alarms(judged)),
    )
    for alarm in summary.alarms:
        trained.say(f"Too good to be true? {alarm}. Look for a leak before you believe it.")
    test = compared.splits["test"]
    known = {name: test[name]["log_return"] for name in targets["test"] if test[name] is not None}
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


def _write(path: Path, prices: PriceRun, split: str, targets: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    assess.rollout_frame(prices.prepared.split(split), prices.env, targets).write_parquet(path)


def _aggregate(trials: list[Metrics]) -> dict[str, Aggregate]:
    """Interquartile mean and interval over trials of every number that all trials can have."""
    return {name: aggregate_of([trial[name] for trial in trials]) for name in trials[0]}


def _scores(trials: list[Metrics]) -> dict[str, Aggregate | None]:
    """The same of the scores; null where there is none, which is no failure of any trial."""
    return {
        oracle: None if all(trial[oracle] is None for trial in trials) else over_trials
        for oracle, over_trials in _aggregate(trials).items()
    }


def _best_on_validation(judged: list[TradingTrial]) -> int:
    returns = [trial.splits["validation"].agent["log_return"] for trial in judged]
    return int(np.argmax([-np.inf if value is None else value for value in returns]))


def _earlier_sharpes(root: Path) -> list[float | None]:
    """Of the finished runs of this experiment: trying often enough makes any Sharpe ratio look good."""
    paths = sorted(root.parent.glob("*/trial_*/results.json"))
    results = [read_json(path) for path in paths if root not in path.parents]
    splits = [((result.get("details") or {}).get("splits") or {}) for result in results]
    return [parts["test"]["agent"]["sharpe"] for parts in splits if "test" in parts]


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
