"""Finished runs' directories for tests of pages, as far as a report reads them; numbers are made up."""

import json

import numpy as np
from rollout_frames import random_prices, rollout

from proxima.domains.trading.metric_names import METRICS
from proxima.report import statistics
from proxima.run.files import create_run, write_json

BARS = 80
TRIALS = 3
EVIL = """<script>alert("x")</script> & 'so on' https://example.org"""
SPLITS = ("train", "validation", "test")


def prices():
    return random_prices(BARS + 1)


def sheet(frame):
    """Every metric that a table can have, most of them made up."""
    log_return = float(frame["log_return"].sum())
    values = {name: 0.25 for name in METRICS} | {"sortino": None, "trades": 12}
    return values | {"log_return": log_return, "total_return": float(np.expm1(log_return))}


def trial_result(trial, frame=None):
    returns = [10.0 + trial, 12.0]
    result = {
        "trial": trial,
        "seed": trial,
        "environment_steps": 4_096,
        "steps_per_second": 1_000.0,
        "training_seconds": 1.5,
        "converged": False,
        "converged_at_step": None,
        "stopped": None,
        "nan_at_step": None,
        "evaluation": {"returns": returns, "return_mean": np.mean(returns), "return_std": 1.0}
        | {"return_min": min(returns), "return_max": max(returns)},
        "random": {"returns": [1.0, 2.0], "return_mean": 1.5},
    }
    if frame is None:
        return result
    agent = sheet(frame) | {"log_return_low": -1.0, "log_return_high": 1.0}
    judged = {"agent": agent, "score": {"foresight": 0.5, "model": None}, "too_good": []}
    return result | {"trading": {"splits": dict.fromkeys(SPLITS, judged)}}


def over_trials(results, part):
    rows = [result["trading"]["splits"]["test"][part] for result in results]
    return {
        name: statistics.aggregate([np.nan if row[name] is None else row[name] for row in rows])
        for name in rows[0]
    }


def trading_summary(results, references):
    known = {name: sheet(frame) for name, frame in references.items()} | {"model": None}
    known["random"] = {"log_return": {"mean": -0.1, "low": -0.3, "high": 0.1, "runs": 200}}
    return {
        "references": {"splits": dict.fromkeys(SPLITS, known)},
        "aggregate": dict.fromkeys(SPLITS, over_trials(results, "agent")),
        "score": dict.fromkeys(SPLITS, over_trials(results, "score") | {"model": None}),
        "chosen_trial": 1,
        "deflated_sharpe": 0.61,
        "alarms": [],
    }


def write_run(output, trials=TRIALS, trading=False):
    """A finished run's directory, as far as a report reads it."""
    files = create_run(str(output), "cartpole", trials)
    name, backend = ("SineWave-v0", "trading") if trading else ("CartPole-v1", "gymnax")
    data = "{periods_per_year: 252.0, leaky: false}" if trading else "null"
    files.scenario.write_text(
        f"name: cartpole\ndescription: {json.dumps(EVIL)}\ndata: {data}\n"
        f"env: {{name: {name}, backend: {backend}}}\nevaluation: {{checkpoint: best}}\n"
    )
    held = [
        np.repeat(np.random.default_rng(k).choice([-1.0, 1.0], BARS // 10), 10)
        for k in range(trials)
    ]
    frames = [rollout(prices(), each) for each in held]
    results = [trial_result(k, frames[k] if trading else None) for k in range(trials)]
    summary = {
        "scenario": "cartpole",
        "algorithm": "ppo",
        "run_id": files.run_id,
        "target_reward": 11.5,
        "converged": 1,
        "environment_steps": 4_096 * trials,
        "trials": results,
        "aggregate": statistics.aggregate([each["evaluation"]["return_mean"] for each in results]),
        "baselines": {"random": {"iqm": 1.5, "low": 1.5, "high": 1.5}},
    }
    if trading:
        ahead = np.sign(np.diff(prices()))
        chosen = {"buy_and_hold": np.ones(BARS), "momentum": np.roll(ahead, 1), "foresight": ahead}
        references = {name: rollout(prices(), each) for name, each in chosen.items()}
        summary["trading"] = trading_summary(results, references)
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
    write_json(files.summary, summary)
    started = {"started": "2026-01-02T03:04:05+00:00", "versions": {"proxima": "0.1.0"}}
    write_json(files.info, {"run_id": files.run_id, "mlflow_run_id": "abc123", **started})
    return files
