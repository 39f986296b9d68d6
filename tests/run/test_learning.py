"""Shipped scenarios learn: five trials, interquartile mean, fixed evaluation episodes."""

import gymnasium
import numpy as np
import pytest

import proxima
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

    # The exported policy in Gymnasium's own CartPole, which none of our code has touched.
    policy = load_exported(tmp_path / "cartpole" / "trial_0" / "policy")
    env, returns = gymnasium.make("CartPole-v1"), []
    for seed in range(20):
        obs, total, over = env.reset(seed=seed)[0], 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(int(policy(obs[None])[0]))
            total, over = total + reward, terminated or truncated
        returns.append(total)
    assert np.mean(returns) >= 475


@pytest.mark.slow
def test_pendulum_is_better_than_minus_250(tmp_path):
    summary = learn("pendulum", tmp_path)
    assert summary["aggregate"]["n"] == 5
    assert summary["aggregate"]["iqm"] > -250
    assert summary["baselines"]["random"]["iqm"] < -1000
