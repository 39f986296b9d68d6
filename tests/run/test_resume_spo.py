"""SPO runs that were killed and resumed: ring, target, duals and both optimizers go on as they were."""

import signal

import numpy as np
import pytest
from resume import Case, check_same, latest
from tiny import SIZES, SMALL, flags, run_main, stop_at_row, tensors_of

from proxima import resume_experiment
from proxima.train import checkpoint

pytestmark = pytest.mark.optimized

CASE = Case(
    "cartpole_spo",
    *SMALL,
    *SIZES["spo"],  # a ring of 40 sequences, which is overwritten from its start within the run
    "seed=3",
    "algorithm.normalize_observations=true",
    "training.max_steps=1600",
    "checkpoint.frequency=1",
)


def test_a_killed_run_ends_as_if_it_had_not_been(workdir, tmp_path_factory):
    metrics = f"logs/{CASE.name}/latest/trial_0/metrics.jsonl"
    said = stop_at_row(CASE.command(), workdir, metrics, 25, signal.SIGKILL)
    assert said.code == -signal.SIGKILL
    run = latest(workdir, CASE)
    assert 320 < checkpoint.common_step([run / "trial_0"]) < 1600
    resume_experiment(CASE.name)
    check_same(run, CASE.uninterrupted(tmp_path_factory.mktemp("whole")))
    tensors = tensors_of(run / "trial_0")
    assert tensors["learner.replay.rows"].shape[0] == 40
    assert tensors["learner.replay.size"] == 40
    assert tensors["learner.replay.position"] == 1600 // 8 % 40
    updates = 1600 // (4 * 8)
    assert (
        tensors["learner.optimizer.count"] == tensors["learner.dual_optimizer.count"] == 2 * updates
    )
    assert np.all(tensors["learner.duals"] != 0.0), "both have moved"


def test_spo_on_host_environments_is_refused_in_words(workdir, capsys, monkeypatch):
    settings = flags("env.backend=gymnasium", "tracking.enabled=false")
    said = run_main(["experiment", "--scenario", "cartpole_spo", *settings], capsys, monkeypatch)
    assert said.code != 0
    assert "algorithm.name: spo searches copies of the environment's state" in said.err
    assert "gymnasium has none to copy" in said.err
    assert "Traceback" not in said.err
