"""The end of a trading run: every trial's run over each whole split, beside baselines and oracles."""

from pathlib import Path
from typing import Any

import numpy as np

from proxima.build import Market
from proxima.core.types import PyTree
from proxima.domains.trading import assess
from proxima.domains.trading import plots as trading
from proxima.domains.trading.baselines import random_targets
from proxima.domains.trading.env import targets_of
from proxima.domains.trading.market import SPLITS
from proxima.report import statistics
from proxima.report.style import save
from proxima.run.files import RunFiles, read_json

Actions = dict[str, np.ndarray]  # by split


def judge(
    files: RunFiles, market: Market, learners: list[PyTree]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What each trial's results and the run's summary say about trading; rollouts and plots are written."""
    targets = assess.reference_targets(market.prepared, market.env)
    references = assess.references(market.prepared, market.env, market.data, targets)
    actions = [_actions(market, learner) for learner in learners]
    judged = [
        assess.assess(market.prepared, market.env, market.data, each, references)
        for each in actions
    ]
    for split in SPLITS:
        for name, chosen in targets[split].items():
            if chosen is not None:
                _write(files.root / "rollouts" / f"{name}_{split}.parquet", market, split, chosen)
    for trial, each in enumerate(actions):
        for split, recorded in each.items():
            path = files.trial(trial) / "rollouts" / f"{split}.parquet"
            _write(path, market, split, targets_of(recorded, market.env))
        _draw(files.trial(trial) / "plots", market, each["test"])
    chosen_trial = _best_on_validation(judged)
    return judged, {
        "references": references,
        "aggregate": {split: _aggregate(judged, split, "agent") for split in SPLITS},
        "score": {split: _scores(judged, split) for split in SPLITS},
        "chosen_trial": chosen_trial,
        "deflated_sharpe": assess.deflated(
            market.prepared,
            market.env,
            market.data,
            actions[chosen_trial]["test"],
            _sharpes(judged) + _earlier_sharpes(files),
        ),
        "alarms": _alarms(judged),
    }


def _actions(market: Market, learner: PyTree) -> Actions:
    return {split: record(learner).actions for split, record in market.record.items()}


def _write(path: Path, market: Market, split: str, targets: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    assess.rollout_frame(market.prepared.split(split), market.env, targets).write_parquet(path)


def _draw(plots: Path, market: Market, actions: np.ndarray) -> None:
    """The trial's run over the test split, alone and against a random one."""
    bars = market.prepared.test
    (random,) = random_targets(bars, market.env, 1)
    deterministic, by_chance = (
        assess.rollout_frame(bars, market.env, targets)
        for targets in (targets_of(actions, market.env), random)
    )
    save(trading.actions_over_price(deterministic), plots / "actions.png")
    save(trading.reward_plot(deterministic, by_chance), plots / "rewards.png")
    save(trading.compare_rollouts(deterministic, by_chance), plots / "rollouts.png")


def _aggregate(judged: list[dict[str, Any]], split: str, part: str) -> dict[str, Any]:
    """Interquartile mean and interval over trials of every number that all trials can have."""
    rows = [trial["splits"][split][part] for trial in judged]
    return {
        name: statistics.aggregate([np.nan if row[name] is None else row[name] for row in rows])
        for name in rows[0]
    }


def _scores(judged: list[dict[str, Any]], split: str) -> dict[str, Any]:
    """The same of the scores; null where there is none, which is no failure of any trial."""
    rows = [trial["splits"][split]["score"] for trial in judged]
    return {
        oracle: None if all(row[oracle] is None for row in rows) else found
        for oracle, found in _aggregate(judged, split, "score").items()
    }


def _best_on_validation(judged: list[dict[str, Any]]) -> int:
    """The trial one would choose without having seen the test split."""
    returns = [trial["splits"]["validation"]["agent"]["log_return"] for trial in judged]
    return int(np.argmax(returns))


def _sharpes(trials: list[dict[str, Any]]) -> list[float]:
    found = [trial["splits"]["test"]["agent"]["sharpe"] for trial in trials]
    return [sharpe for sharpe in found if sharpe is not None]


def _earlier_sharpes(files: RunFiles) -> list[float]:
    """Of the finished runs of this experiment: trying often enough makes any Sharpe ratio look good."""
    others = [path for path in files.root.parent.glob("*/trial_*/results.json")]
    results = [read_json(path) for path in sorted(others) if files.root not in path.parents]
    return _sharpes([each["trading"] for each in results if "trading" in each])


def _alarms(judged: list[dict[str, Any]]) -> list[str]:
    """A sentence for every split on which trials are too good: how many, and about what the first is."""
    found = []
    for split in SPLITS:
        told = {k: each["splits"][split]["too_good"] for k, each in enumerate(judged)}
        first = next((k for k in told if told[k]), None)
        if first is not None:
            count = sum(map(bool, told.values()))
            trials = f"{count} of {len(judged)} trials, the first being trial {first}"
            found.append(f"{split} split, {trials}: {'; '.join(told[first])}")
    return found
