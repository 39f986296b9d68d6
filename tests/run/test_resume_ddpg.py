"""DDPG runs that were killed and resumed: buffer, targets, noise and both optimizers go on as they were."""

import signal

import numpy as np
import pytest
from resume import Case, check_same, latest
from tiny import flags, run_main, stop_at_row, tensors_of

from proxima import resume_experiment
from proxima.train import checkpoint

pytestmark = pytest.mark.optimized

SETTINGS = (
    "trials=1",
    "seed=3",
    "env.num_envs=4",
    "env.max_steps_per_episode=21",
    "network.hidden=[8]",
    "algorithm.batch_size=32",
    "algorithm.buffer_size=600",  # is overwritten from its start within the run
    "algorithm.warmup_steps=100",
    "algorithm.steps_per_update=4",
    "algorithm.normalize_observations=true",
    "algorithm.exploration=ou",
    "training.max_steps=1600",
    "training.updates_per_chunk=1",
    "evaluation.eval_frequency=20",
    "evaluation.eval_episodes=4",
    "evaluation.final_episodes=4",
    "evaluation.film=false",
    "tracking.enabled=false",
)
COMPILED = Case("pendulum_td3", *SETTINGS, "checkpoint.frequency=1")
HOST = Case("pendulum_td3", *SETTINGS, "env.backend=gymnasium", "checkpoint.frequency=7")


def killed(case: Case, workdir, rows: int):
    """The run's directory after a kill once that many rows of metrics were written."""
    metrics = f"logs/{case.name}/latest/trial_0/metrics.jsonl"
    said = stop_at_row(case.command(), workdir, metrics, rows, signal.SIGKILL)
    assert said.code == -signal.SIGKILL
    run = latest(workdir, case)
    step = checkpoint.common_step([run / "trial_0"])
    assert 0 < step < 1600
    return run, step


def test_a_killed_run_ends_as_if_it_had_not_been(workdir, tmp_path_factory, capsys, monkeypatch):
    run, step = killed(COMPILED, workdir, 50)
    assert step > 600, "the ring has begun to overwrite itself"
    scenario = run / "scenario.yaml"
    text = scenario.read_text()
    assert "buffer_size: 600" in text
    scenario.write_text(text.replace("buffer_size: 600", "buffer_size: 500"))
    said = run_main(["resume", COMPILED.name], capsys, monkeypatch)
    assert said.code == 1 and "another shape" in said.err and "replay" in said.err

    scenario.write_text(text)
    resume_experiment(COMPILED.name)
    check_same(run, COMPILED.uninterrupted(tmp_path_factory.mktemp("whole")))
    tensors = tensors_of(run / "trial_0")
    assert tensors["learner.replay.rows"].shape[0] == 600
    assert tensors["learner.replay.size"] == 600
    assert tensors["learner.replay.position"] == 1600 % 600
    assert np.abs(tensors["learner.ou_path.value"]).max() > 0
    # a gradient step for each environment step since the warm-up, and an actor's for every second
    assert tensors["learner.nets.gradient_steps"] == 1600 - 96
    assert tensors["learner.nets.actor.optimizer.count"] == (1600 - 96) // 2


def test_a_killed_gymnasium_run_ends_as_if_it_had_not_been(workdir, tmp_path_factory):
    run, step = killed(HOST, workdir, 20)
    assert step % (7 * 16) == 0
    resume_experiment(HOST.name)
    check_same(run, HOST.uninterrupted(tmp_path_factory.mktemp("whole")))


def test_discrete_actions_are_refused_before_anything_is_written(workdir, capsys, monkeypatch):
    settings = flags("env.name=CartPole-v1", "tracking.enabled=false")
    said = run_main(["experiment", "--scenario", "pendulum_ddpg", *settings], capsys, monkeypatch)
    assert said.code != 0
    assert "algorithm.name: ddpg needs continuous actions" in said.err
    assert "Traceback" not in said.err
