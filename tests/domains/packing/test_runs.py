"""Packings and mazes through whole runs: other environments of Jumanji's, resume, scores, pictures."""

import numpy as np
import pytest
from checkpoints import common_step
from resume import Case, check_same, latest
from tiny import BUDGET, read, without_hidden

from proxima import load, resume_experiment, run_multiple_experiments

LENGTH = 1280  # 20 chunks
SMALL = (*BUDGET, f"training.max_steps={LENGTH}", "evaluation.eval_frequency=20", "seed=3")
SCORES = {
    "binpack_ppo": {"utilisation", "utilisation_min"},
    "maze_ppo": {"success_rate", "path_ratio", "length_ratio"},
}
PACKING = (
    *without_hidden(SMALL),
    "env.params={max_num_items: 4, max_num_ems: 6}",
    "env.instances=8",
    "network={blocks: 1, heads: 2, width: 8}",
    "checkpoint.frequency=1",
    "evaluation.film=true",
)
MAZE = (
    *SMALL,
    "env.params={num_rows: 4, num_cols: 4}",
    "env.instances=8",
    "network={channels: 2, sweeps: 4}",
    "checkpoint.frequency=1",
    "evaluation.film=true",
)
OTHERS = {
    "Knapsack-v1": "{num_items: 6}",
    "Snake-v1": "{num_rows: 4, num_cols: 4, time_limit: 20}",
    "Game2048-v1": "{board_size: 3}",
    "JobShop-v0": "{num_jobs: 3, num_machines: 2, max_num_ops: 2, max_op_duration: 2}",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_environments_train_with_an_mlp(name, workdir):
    """No pool, no net of their own: they just work."""
    settings = (*SMALL, "training.max_steps=128", f"env.name={name}", f"env.params={OTHERS[name]}")
    scenario = load("maze_ppo", [*settings, "env.instances=0", "network.kind=mlp"])
    summary = run_multiple_experiments(scenario)
    assert np.isfinite(summary["aggregate"]["iqm"])
    assert summary["trials"][0]["environment_steps"] == 128


@pytest.mark.parametrize(("name", "settings"), [("binpack_ppo", PACKING), ("maze_ppo", MAZE)])
def test_a_stopped_run_ends_as_if_it_had_not_been(name, settings, workdir, tmp_path):
    """Env states, named observations with their masks and draws from the pool all go on as they were."""
    case, chunks = Case(name, *settings), []

    def stop(view):
        chunks.append(view)
        if len(chunks) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_multiple_experiments(load(name, settings), callback=stop)
    run = latest(workdir, case)
    assert 0 < common_step([run / "trial_0"]) < LENGTH
    resume_experiment(name)
    whole = case.uninterrupted(tmp_path / "whole")
    check_same(run, whole)
    scores = read(whole / "summary.json")["scores"]
    assert set(scores) == SCORES[name]
    assert (whole / "trial_0" / "film.gif").exists()
    assert (whole / "trial_0" / "plots" / "episode.png").exists()
