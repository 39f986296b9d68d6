"""Finished runs' directories for tests of pages, as far as a report reads them; numbers are made up."""

import json
from typing import Any

import numpy as np
from rollout_frames import random_prices, rollout

from proxima.domains.trading.accounting import account
from proxima.domains.trading.config import TradingEnvConfig
from proxima.domains.trading.page import METRICS
from proxima.domains.trading.results import (
    Chance,
    References,
    SplitReferences,
    SplitResult,
    TradingSummary,
    TradingTrial,
)
from proxima.domains.trading.trades import trades_frame, trades_of
from proxima.run import results
from proxima.run.files import create_run
from proxima.run.results import (
    Aggregate,
    Outcome,
    RunInfo,
    StageResult,
    Summary,
    TrialResult,
    aggregate_of,
    described,
)

BARS = 80
TRIALS = 3
EVIL = """<script>alert("x")</script> & 'so on' https://example.org"""
SPLITS = ("train", "validation", "test")
STEPS, SECONDS = 4_096, 1.5


def prices():
    return random_prices(BARS + 1)


def sheet(frame):
    """Every metric that a table can have, most of them made up."""
    log_return = float(frame["log_return"].sum())
    values = {name: 0.25 for name in METRICS} | {"sortino": None, "trades": 12}
    return values | {"log_return": log_return, "total_return": float(np.expm1(log_return))}


def stage_result(trial: int, **changes: Any) -> StageResult:
    """A stage that ended when its budget was used."""
    usual = dict(
        stage="",
        trial=trial,
        seed=trial,
        stopped="budget",
        steps=STEPS,
        updates=64,
        episodes=20,
        converged=False,
        converged_at_step=None,
        nan_at_step=None,
        best=12.0,
        compile_seconds=0.5,
        training_seconds=SECONDS,
        evaluate_seconds=0.1,
        phases=None,
        first={},
        last={},
        outcome=Outcome(),
    )
    return StageResult(**(usual | changes))


def trial_result(trial: int, frame=None, **changes: Any) -> TrialResult:
    """A trial that ended when its budget was used; with a rollout, one that traded."""
    usual = dict(
        scenario="cartpole",
        domain="control" if frame is None else "trading",
        algorithm="ppo",
        run_id="",
        trial=trial,
        seed=trial,
        environment_steps=STEPS,
        updates=64,
        episodes=20,
        compile_seconds=0.5,
        training_seconds=SECONDS,
        steps_per_second=1_000.0,
        converged=False,
        converged_at_step=None,
        stopped="budget",
        nan_at_step=None,
        best_return=12.0,
        phases=None,
        evaluation=described([10.0 + trial, 12.0], [5, 5]),
        sampled=described([9.0 + trial, 11.0], [5, 5]),
        random=described([1.0, 2.0], [5, 5]),
        reference=None,
        baselines={"random": 1.5},
        scores={},
        details=None if frame is None else traded(frame),
        stages={"train": stage_result(trial)},
        time={"total": 2.0},
    )
    return TrialResult(**(usual | changes))


def traded(frame) -> TradingTrial:
    agent = sheet(frame) | {"log_return_low": -1.0, "log_return_high": 1.0}
    judged = SplitResult(agent=agent, score={"foresight": 0.5, "model": None}, too_good=())
    return TradingTrial(splits=dict.fromkeys(SPLITS, judged))


def over_trials(trials, part) -> dict[str, Aggregate]:
    rows = [trial.details.splits["test"][part] for trial in trials]
    return {name: aggregate_of([row[name] for row in rows]) for name in rows[0]}


def trading_summary(trials, references) -> TradingSummary:
    known = {name: sheet(frame) for name, frame in references.items()}
    chance = Chance(mean=-0.1, low=-0.3, high=0.1, runs=200)
    beside = SplitReferences(**known, model=None, random={"log_return": chance})
    scores = over_trials(trials, "score") | {"model": None}
    return TradingSummary(
        references=References(splits=dict.fromkeys(SPLITS, beside)),
        aggregate=dict.fromkeys(SPLITS, over_trials(trials, "agent")),
        score=dict.fromkeys(SPLITS, scores),
        chosen_trial=min(1, len(trials) - 1),
        deflated_sharpe=0.61,
        alarms=(),
        periods_per_year=365.0,
        periods_from="the times of the train split",
    )


def summary_of(files, trials, **changes: Any) -> Summary:
    """A run's summary, made of its trials."""
    usual = dict(
        scenario="cartpole",
        domain=trials[0].domain,
        algorithm="ppo",
        run_id=files.run_id,
        metric="return",
        target_reward=11.5,
        converged=1,
        environment_steps=STEPS * len(trials),
        trials=tuple(trials),
        aggregate=aggregate_of([each.evaluation.return_mean for each in trials]),
        sampled=aggregate_of([each.sampled.return_mean for each in trials]),
        baselines={"random": Aggregate(iqm=1.5, low=1.5, high=1.5, n=len(trials), failed=0)},
        references={},
        scores={},
        figures={},
        alarms=(),
        details=None,
        paths={"run": str(files.root)},
        time={"total": 2.0},
        memory_peak_mb=100.0,
    )
    return Summary(**(usual | changes))


def info_of(files, trials, **changes: Any) -> RunInfo:
    """What run.json says of a run that has ended."""
    usual = dict(
        run_id=files.run_id,
        name="cartpole",
        domain=trials[0].domain,
        trials=len(trials),
        started="2026-01-02T03:04:05+00:00",
        status="finished",
        versions={"proxima": "0.1.0"},
        data=None,
        mlflow_run_id="abc123",
    )
    return RunInfo(**(usual | changes))


def made_up_trades(seed):
    """The trades of one who tosses a coin at every bar."""
    targets = np.random.default_rng(seed).choice([-1.0, 1.0], BARS)
    done = account(targets, prices()[1:] / prices()[:-1] - 1, 0.001, 0.0)
    time = np.datetime64("2020-01-01", "us") + np.arange(BARS + 1) * np.timedelta64(1, "D")
    return trades_frame(trades_of(done, prices(), TradingEnvConfig()), time)


def write_run(output, trials=TRIALS, trading=False):
    """A finished run's directory, as far as a report reads it."""
    files = create_run(str(output), "cartpole", trials)
    name, backend = ("SineWave-v0", "trading") if trading else ("CartPole-v1", "gymnax")
    data = "data: {pattern: sine_wave, periods_per_year: null, leaky: false}\n" if trading else ""
    files.scenario.write_text(
        f"name: cartpole\ndescription: {json.dumps(EVIL)}\n{data}"
        f"env: {{name: {name}, backend: {backend}}}\nevaluation: {{checkpoint: best}}\n"
    )
    held = [
        np.repeat(np.random.default_rng(k).choice([-1.0, 1.0], BARS // 10), 10)
        for k in range(trials)
    ]
    frames = [rollout(prices(), each) for each in held]
    judged = [
        trial_result(k, frames[k] if trading else None, run_id=files.run_id) for k in range(trials)
    ]
    details = None
    if trading:
        ahead = np.sign(np.diff(prices()))
        chosen = {"buy_and_hold": np.ones(BARS), "momentum": np.roll(ahead, 1), "foresight": ahead}
        references = {name: rollout(prices(), each) for name, each in chosen.items()}
        details = trading_summary(judged, references)
        (files.root / "rollouts").mkdir()
        for name, frame in references.items():
            frame.write_parquet(files.root / "rollouts" / f"{name}_test.parquet")
    for trial in range(trials):
        rows = [{"step": 1_024 * k, "eval/return_mean": 3.0 * k + trial} for k in range(1, 5)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (files.trial(trial) / "metrics.jsonl").write_text(lines)
        if trading:
            (files.trial(trial) / "rollouts").mkdir()
            frames[trial].write_parquet(files.trial(trial) / "rollouts" / "test.parquet")
            (files.trial(trial) / "trades").mkdir()
            made_up_trades(trial).write_parquet(files.trial(trial) / "trades" / "test.parquet")
    results.write(files.summary, summary_of(files, judged, details=details))
    results.write(files.info, info_of(files, judged))
    return files
