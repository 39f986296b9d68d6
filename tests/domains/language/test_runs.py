"""Language runs end to end on a tiny budget: files, tracked runs, exact resume of every stage."""

import errno
import json
import math
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from texts import TINY, write_texts

import proxima
from proxima.core.errors import ProximaError
from proxima.run.display import silent
from proxima.run.files import read_rows
from proxima.scenario import load


def scenario(**more):
    return load("movie_critic", TINY | more)


class Stop(Exception):
    """What the process died of."""


def dies_at(stage: str, step: int):
    def callback(view):
        if (view["stage"], view["step"]) == (stage, step):
            raise Stop

    return callback


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run from start to end, in a directory of its own."""
    directory = tmp_path_factory.mktemp("whole")
    write_texts(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        summary = proxima.run_multiple_experiments(scenario())
    return summary, directory


def trial_of(summary, directory) -> Path:
    return directory / "logs" / "movie_critic" / "runs" / summary["run_id"] / "trial_0"


def test_a_run_leaves_all_its_files(whole):
    summary, directory = whole
    trial = trial_of(summary, directory)
    for stage, updates in (("sft", 5), ("reward_model", 6), ("ppo", 4)):
        results = json.loads((trial / stage / "stage.json").read_text())
        assert (results["updates"], results["stopped"]) == (updates, "budget")
        rows = read_rows(trial / stage / "metrics.jsonl")
        assert [row["step"] for row in rows] == list(range(updates + 1))
        assert any(key.startswith("eval/") for key in rows[0])
        assert (trial / stage / "plots" / f"{stage}.png").exists()
        for row in rows:
            assert all(math.isfinite(value) for key, value in row.items() if "loss/" in key)
    for name in ("reference", "model"):
        assert (trial / name / "config.json").exists()
        assert (trial / name / "model.safetensors").exists()
        assert (trial / name / "tokenizer.json").exists()
    assert len(json.loads((trial / "samples.json").read_text())) == 3
    (preview,) = trial.glob("*/preview.json")  # only the policy writes
    shown = json.loads(preview.read_text())
    assert (preview.parent.name, shown["step"], len(shown["samples"])) == ("ppo", 4, 3)
    assert {"action", "kl"} <= shown["samples"][0]["after"]["tokens"][0].keys()
    assert "<script" not in (trial / "samples.html").read_text()
    assert json.loads((directory / "logs/movie_critic/summary.json").read_text())["trials"]


def test_what_a_run_says_agrees_with_itself(whole):
    summary, directory = whole
    rows = read_rows(trial_of(summary, directory) / "ppo" / "metrics.jsonl")
    figures = summary["figures"]
    assert figures["ppo/reward"]["before"]["iqm"] == pytest.approx(rows[0]["eval/reward"])
    assert figures["ppo/reward"]["after"]["iqm"] == pytest.approx(rows[-1]["eval/reward"])
    gains = summary["trials"][0]["details"]["gains"]["reward"]
    assert gains["after"] == pytest.approx(rows[-1]["eval/reward"], abs=1e-6)
    assert rows[0]["eval/kl"] == pytest.approx(0.0, abs=1e-4)
    for row in rows[1:]:
        assert row["train/log_prob_gap"] < 1e-4
        assert row["train/first_ratio_gap"] < 1e-5
    assert {row["train/optimizer_steps"] for row in rows[1:]} == {4.0}


def test_the_same_seed_repeats_bit_for_bit(whole, tmp_path, monkeypatch):
    summary, directory = whole
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    again = proxima.run_multiple_experiments(scenario())
    same_weights(trial_of(summary, directory), trial_of(again, tmp_path))


# run/test_resume.py kills a process within the stage of PPO
@pytest.mark.parametrize(
    ("stage", "step"), [("sft", 3), ("reward_model", 4), ("ppo", 0), ("ppo", 4)]
)
def test_a_run_that_died_and_was_resumed_ends_bit_for_bit_alike(
    stage, step, whole, tmp_path, monkeypatch
):
    summary, directory = whole
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Stop):
        proxima.run_multiple_experiments(scenario(), callback=dies_at(stage, step))
    resumed = proxima.resume_experiment("movie_critic")
    ours, theirs = trial_of(summary, directory), trial_of(resumed, tmp_path)
    same_weights(ours, theirs)
    for each in ("sft", "reward_model", "ppo"):
        first, second = (read_rows(trial / each / "metrics.jsonl") for trial in (ours, theirs))
        assert [learnt(row) for row in first] == [learnt(row) for row in second]


def learnt(row):
    """What a row says of learning, not of time or memory."""
    return {key: value for key, value in row.items() if not key.startswith(("time/", "memory/"))}


def same_weights(first: Path, second: Path) -> None:
    for name in ("reference", "model"):
        ours, theirs = (load_file(trial / name / "model.safetensors") for trial in (first, second))
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("stage", ["sft", "ppo"])
def test_ctrl_c_saves_and_the_resumed_run_ends_bit_for_bit_alike(
    stage, whole, tmp_path, monkeypatch
):
    summary, directory = whole
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)

    def press(view):
        if (view["stage"], view["step"]) == (stage, 2):
            os.kill(os.getpid(), signal.SIGINT)

    seldom = scenario(**{"checkpoint.frequency": 100})  # only the stop itself saves
    with pytest.raises(KeyboardInterrupt):
        proxima.run_multiple_experiments(seldom, callback=press)
    info = json.loads(Path("logs/movie_critic/latest/run.json").read_text())
    assert info["status"] == "interrupted"
    heard = []
    resumed = proxima.resume_experiment(
        "movie_critic", callback=lambda view: heard.append((view["stage"], view["step"]))
    )
    assert heard[0] == (stage, 3)
    same_weights(trial_of(summary, directory), trial_of(resumed, tmp_path))


def test_resuming_on_other_texts_is_refused(tmp_path, monkeypatch):
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Stop):
        proxima.run_multiple_experiments(scenario(), callback=dies_at("sft", 2))
    table = pl.read_parquet("texts.parquet")
    table[:-1].write_parquet("texts.parquet")
    with pytest.raises(ProximaError, match="has changed since the run was started"):
        proxima.resume_experiment("movie_critic")


def test_a_finished_run_is_not_run_again(whole, tmp_path, monkeypatch):
    summary, directory = whole
    shutil.copytree(directory / "logs", tmp_path / "logs", symlinks=True)
    monkeypatch.chdir(tmp_path)
    assert proxima.resume_experiment("movie_critic")["run_id"] == summary["run_id"]


def test_a_callback_may_end_a_stage_and_the_next_begins(tmp_path, monkeypatch):
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    heard = []

    def callback(view):
        heard.append((view["stage"], view["step"]))
        return (view["stage"], view["step"]) != ("sft", 2)

    summary = proxima.run_multiple_experiments(scenario(), callback=callback)
    assert ("sft", 3) not in heard and ("ppo", 4) in heard
    assert summary["trials"][0]["stages"]["sft"]["stopped"] == "callback"


BY_FUNCTION = {
    "reward_model": None,
    "reward.kind": "function",
    "reward.function": "texts.good_words",
}


# Few runs with much in each: compiling is what takes long.
@pytest.mark.parametrize(
    "more",
    [
        {
            "lora": {"rank": 2},
            "ppo.micro_batches": 2,
            "ppo.target_kl": 0.01,
            "model.gradient_checkpointing": True,
        },
        BY_FUNCTION | {"ppo.advantage": "leave_one_out", "ppo.kl.target": None},
        BY_FUNCTION | {"ppo.advantage": "group", "model.mesh.data": 2, "model.mesh.tensor": 2},
    ],
    ids=["lora", "rloo", "grpo over a mesh"],
)
def test_variants_run(more, tmp_path, monkeypatch):
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    summary = proxima.run_multiple_experiments(scenario(**more, **{"ppo.updates": 2}))
    trial = trial_of(summary, tmp_path)
    assert (trial / "model" / "model.safetensors").exists()
    assert (trial / "adapter").exists() == ("lora" in more)


def test_a_reward_that_fails_ends_the_run_with_words_and_what_was_saved_stays(
    tmp_path, monkeypatch
):
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    more = {"reward_model": None, "reward.kind": "function"}
    more["reward.function"] = "texts.broken"
    with pytest.raises(ProximaError, match=r"texts\.broken"):
        proxima.run_multiple_experiments(scenario(**more))
    trial = tmp_path / "logs" / "movie_critic" / "trial_0"
    assert (trial / "reference" / "model.safetensors").exists()
    info = json.loads((tmp_path / "logs/movie_critic/latest/run.json").read_text())
    assert info["status"] == "failed"


def test_a_loss_that_is_no_number_ends_its_trial_with_its_last_good_state(tmp_path, monkeypatch):
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    said = []
    summary = proxima.run_multiple_experiments(
        scenario(**{"sft.learning_rate": 1e30}), display=silent()._replace(say=said.append)
    )
    assert any("A lower sft.learning_rate or sft.max_grad_norm" in words for words in said)
    (result,) = summary.trials
    assert result.stopped == "nan" and result.nan_at_step == result.stages["sft"].nan_at_step > 0
    assert list(result.stages) == ["sft"]  # nothing to start the others from
    assert summary.aggregate is None and not summary.converged
    trial = trial_of(summary, tmp_path)
    state = load_file(trial / "sft" / "checkpoints" / "last" / "state.safetensors")
    assert all(np.isfinite(each).all() for each in state.values() if each.dtype.kind == "f")
    assert summary.figures["sft/loss"].after.failed == 1
    page = (trial.parent / "report.html").read_text()
    assert f"trial 0, after update {result.nan_at_step}" in page
    assert "No trial came as far as PPO" in page


@pytest.mark.filterwarnings(r"ignore:::(mlflow|alembic|sqlalchemy)(\.|$)")
def test_every_stage_is_a_tracked_run_of_its_own(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    summary = proxima.run_multiple_experiments(scenario(**{"tracking.enabled": True}))
    client = MlflowClient(summary["mlflow_uri"])
    experiment = client.get_experiment_by_name("movie_critic")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    stages = {f"trial_0_{stage}" for stage in ("sft", "reward_model", "ppo")}
    assert set(runs) == {summary["run_id"], *stages}
    ppo = runs["trial_0_ppo"]
    assert ppo.data.params["stage"] == "ppo"
    assert [m.step for m in client.get_metric_history(ppo.info.run_id, "eval/reward")] == [0, 2, 4]
    names = {each.path for each in client.list_artifacts(ppo.info.run_id)}
    assert {"samples.html", "samples.json", "results.json", "plots"} <= names
    names = {each.path for each in client.list_artifacts(summary["mlflow_run_id"])}
    assert {"report.html", "summary.json", "scenario.yaml"} <= names


def test_a_full_disk_is_told_and_the_checkpoint_before_is_kept(tmp_path, monkeypatch, whole):
    from proxima.train import atomic

    summary, directory = whole
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    write = atomic.write_directory

    def full(target, *rest):
        if target.parent.parent.name == "ppo" and target.name.endswith("3"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(target, *rest)

    monkeypatch.setattr(atomic, "write_directory", full)
    with pytest.raises(
        ProximaError, match=r"No space left on device.*step_000000000002, is intact"
    ):
        proxima.run_multiple_experiments(scenario())
    monkeypatch.setattr(atomic, "write_directory", write)
    resumed = proxima.resume_experiment("movie_critic")
    same_weights(trial_of(summary, directory), trial_of(resumed, tmp_path))
