"""Shipped scenarios learn: five trials, interquartile mean, fixed evaluation episodes."""

import gymnasium
import numpy as np
import pytest

import proxima
from proxima.report.statistics import interquartile_mean
from proxima.track.registry import load_exported

pytestmark = pytest.mark.optimized


def learn(name, workdir, **overrides):
    settings = {"trials": 5, "tracking.enabled": False, "evaluation.film": False} | overrides
    scenario = proxima.load(name, settings | {"output_directory": str(workdir)})
    return proxima.run_multiple_experiments(scenario)


@pytest.mark.slow
def test_cartpole_reaches_475_within_100k_steps(tmp_path):
    summary = learn("cartpole", tmp_path)
    assert summary["aggregate"]["n"] == 5
    assert all(trial["environment_steps"] <= 101_000 for trial in summary["trials"])
    assert summary["aggregate"]["iqm"] >= 475
    assert summary["converged"] >= 4
    assert summary["baselines"]["random"]["iqm"] < 50  # the yardstick itself is not broken

    # The exported policies in Gymnasium's own CartPole, which none of our code has touched.
    policies = [
        load_exported(tmp_path / "cartpole" / f"trial_{k}" / "policy").act for k in range(5)
    ]
    assert interquartile_mean([np.mean(cartpole_returns(policy, 20)) for policy in policies]) >= 475


def cartpole_returns(policy, episodes: int) -> np.ndarray:
    """Of Gymnasium's episodes with the seeds from 0, played side by side."""
    envs = [gymnasium.make("CartPole-v1") for _ in range(episodes)]
    obs = np.stack([env.reset(seed=seed)[0] for seed, env in enumerate(envs)])
    returns, over = np.zeros(episodes), np.zeros(episodes, bool)
    while not over.all():
        actions = policy(obs)
        for k in np.flatnonzero(~over):
            obs[k], reward, terminated, truncated, _ = envs[k].step(int(actions[k]))
            returns[k] += reward
            over[k] = terminated or truncated
    return returns


@pytest.mark.slow
def test_pendulum_is_better_than_minus_250(tmp_path):
    summary = learn("pendulum", tmp_path)
    assert summary["aggregate"]["n"] == 5
    assert summary["aggregate"]["iqm"] > -250
    assert summary["baselines"]["random"]["iqm"] < -1000
