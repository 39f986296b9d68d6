"""Tracking against real sqlite stores: what was logged is read back with MLflow's own client."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.track import mlflow as writer
from proxima.track.registry import export_policy, load_exported
from proxima.track.served_policy import as_batch
from proxima.track.tracker import (
    RunIds,
    Tracker,
    TrackingConfig,
    TrackingOutcome,
    connect,
    flatten,
    no_tracker,
)

PARAMS = {"algorithm": {"name": "ppo", "gamma": 0.99}, "seed": 7, "trials": 2}
BOTH = ("finished", "finished")
WEIGHTS = {
    "hidden.weight": jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32),
    "out.weight": jnp.asarray(np.random.default_rng(1).normal(size=(8, 3)), jnp.float32),
    "scale": jnp.float32(2.0),
}
OBSERVATIONS = np.random.default_rng(2).normal(size=(64, 4)).astype(np.float32)


def greedy(weights, observations):
    hidden = jnp.tanh(observations @ weights["hidden.weight"])
    return jnp.argmax(hidden @ weights["out.weight"] * weights["scale"], axis=-1)


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test works in a directory of its own, where the default store lands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store MLflow has just made; copying it is much faster than making one for each test."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    plan = writer.RunPlan("template", "template", {}, (), None)
    outcome = writer.start_writer(TrackingConfig(uri=f"sqlite:///{path}"), plan, print).finish(
        (), "finished"
    )
    assert outcome.error is None
    return path


@pytest.fixture
def store(new_store: Path, tmp_path: Path) -> None:
    """The default store of this test's directory, already there."""
    shutil.copy(new_store, tmp_path / "mlflow.db")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    directory = tmp_path / "trial_0" / "policy"
    export_policy(greedy, WEIGHTS, (4,), np.float32, {"environment": "CartPole-v1"}, directory)
    return directory


def track(warnings: list[str], resume_from: RunIds | None = None, **config) -> Tracker:
    return connect(
        TrackingConfig(**config),
        "cartpole",
        "20260101-000000-aaaa",
        PARAMS,
        [7, 8],
        resume_from=resume_from,
        warn=warnings.append,
    )


def client_of(outcome: TrackingOutcome):
    from mlflow import MlflowClient

    return MlflowClient(outcome.uri)


def history(outcome: TrackingOutcome, trial: int, name: str) -> list[tuple[int, float]]:
    points = client_of(outcome).get_metric_history(outcome.child_run_ids[trial], name)
    return [(point.step, point.value) for point in points]


def test_a_run_is_read_back_as_it_was_logged(tmp_path, capfd):
    plots = tmp_path / "plots"
    plots.mkdir()
    (plots / "curve.png").write_bytes(b"png")
    (tmp_path / "scenario.yaml").write_text("name: cartpole\n")
    warnings: list[str] = []
    tracker = track(warnings)
    for step in (100, 200):
        for trial in (0, 1):
            tracker.log_metrics(trial, step, {"episode/return": step + trial})
    tracker.log_parent_metrics(200, {"aggregate/iqm": 200.5})
    tracker.log_artifacts(None, tmp_path / "scenario.yaml", None)
    tracker.log_artifacts(1, plots, "plots")
    tracker.log_artifacts(1, tmp_path / "pruned", None)
    outcome = tracker.finish(("finished", "interrupted"), "interrupted")

    assert outcome.error is None
    assert outcome.uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert tracker.ids() == RunIds(outcome.run_id, outcome.child_run_ids)
    assert history(outcome, 1, "episode/return") == [(100, 101.0), (200, 201.0)]
    client = client_of(outcome)
    parent = client.get_run(outcome.run_id)
    first, second = (client.get_run(run) for run in outcome.child_run_ids)
    assert client.get_experiment(parent.info.experiment_id).name == "cartpole"
    assert parent.data.params["algorithm.gamma"] == "0.99"
    assert parent.data.metrics == {"aggregate/iqm": 200.5}
    assert (second.data.params["trial"], second.data.params["seed"]) == ("1", "8")
    assert second.data.tags["mlflow.parentRunId"] == outcome.run_id
    statuses = [run.info.status for run in (parent, first, second)]
    assert statuses == ["KILLED", "FINISHED", "KILLED"]
    assert [file.path for file in client.list_artifacts(outcome.run_id)] == ["scenario.yaml"]
    assert client.list_artifacts(second.info.run_id, "plots")[0].path == "plots/curve.png"
    assert Path(parent.info.artifact_uri).is_relative_to(tmp_path / "mlruns")
    assert warnings == ["MLflow tracking left out: 1 files that were gone"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("store")
def test_nan_is_logged_and_infinities_are_counted():
    warnings: list[str] = []
    tracker = track(warnings)
    values = {"loss/a": -np.inf, "loss/b": jnp.inf, "loss/c": np.nan, "loss/d": jnp.float32(1.5)}
    tracker.log_metrics(0, 10, values)
    outcome = tracker.finish(BOTH, "finished")
    metrics = client_of(outcome).get_run(outcome.child_run_ids[0]).data.metrics
    assert set(metrics) == {"loss/c", "loss/d"}
    assert np.isnan(metrics["loss/c"])
    assert warnings == ["MLflow tracking left out: 2 infinite metric values"]


@pytest.mark.usefixtures("store")
def test_what_waits_is_sent_in_batches_of_at_most_a_thousand(monkeypatch):
    from mlflow import MlflowClient

    sizes: list[int] = []
    send = MlflowClient.log_batch

    def counted(self, run_id, metrics=(), params=(), tags=(), synchronous=None):
        sizes.append(len(metrics))
        return send(self, run_id, metrics=metrics, params=params)

    monkeypatch.setattr(MlflowClient, "log_batch", counted)
    tracker = track([])
    for step in range(60):
        tracker.log_metrics(0, step, {f"train/{index}": index for index in range(25)})
    outcome = tracker.finish(BOTH, "finished")
    assert sum(sizes) == 1500
    assert max(sizes) <= 1000
    assert len([size for size in sizes if size]) < 60
    assert [step for step, _ in history(outcome, 0, "train/24")] == list(range(60))


@pytest.mark.usefixtures("store")
def test_a_resumed_run_goes_on_without_doubled_metrics():
    tracker = track([])
    for step in (100, 200, 300):
        tracker.log_metrics(0, step, {"episode/return": step})
    killed = tracker.finish(("interrupted", "interrupted"), "interrupted")

    warnings: list[str] = []
    tracker = track(warnings, resume_from=RunIds(killed.run_id, killed.child_run_ids))
    for step in (200, 300, 400):  # the checkpoint was older than the newest metrics
        tracker.log_metrics(0, step, {"episode/return": step, "eval/new": step})
    outcome = tracker.finish(BOTH, "finished")
    assert (outcome.run_id, outcome.child_run_ids) == (killed.run_id, killed.child_run_ids)
    assert [step for step, _ in history(outcome, 0, "episode/return")] == [100, 200, 300, 400]
    assert [step for step, _ in history(outcome, 0, "eval/new")] == [200, 300, 400]
    assert client_of(outcome).get_run(outcome.run_id).info.status == "FINISHED"
    assert warnings == []


@pytest.mark.usefixtures("store")
def test_resuming_a_run_the_store_does_not_know_makes_a_new_one():
    warnings: list[str] = []
    unknown = RunIds("0" * 32, ("1" * 32, "2" * 32))
    outcome = track(warnings, resume_from=unknown).finish(BOTH, "finished")
    assert outcome.error is None
    assert outcome.run_id != unknown.parent
    assert "not in sqlite" in warnings[0]


def test_a_server_that_is_away_is_said_once_and_ends_quickly(tmp_path, capfd):
    warnings: list[str] = []
    began = time.monotonic()
    tracker = track(warnings, uri="http://127.0.0.1:9")
    tracker.log_metrics(0, 1, {"loss/policy": 1.0})
    tracker.log_artifacts(None, tmp_path, None)
    outcome = tracker.finish(("failed", "failed"), "failed")
    assert time.monotonic() - began < 15
    assert "http://127.0.0.1:9 stopped" in outcome.error
    assert warnings == [outcome.error]
    assert (outcome.run_id, tracker.ids()) == (None, None)
    tracker.log_metrics(0, 2, {"loss/policy": 1.0})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("problem", ["locked", "a directory", "not a database"])
def test_a_database_that_cannot_be_written_is_told_at_once(tmp_path, monkeypatch, problem):
    monkeypatch.setattr(writer, "LOCKED_SECONDS", 0.2)
    path = tmp_path / "mlflow.db"
    holder = sqlite3.connect(":memory:")
    if problem == "locked":
        holder.close()
        holder = sqlite3.connect(path)
        holder.execute("BEGIN EXCLUSIVE")
    elif problem == "a directory":
        path.mkdir()
    else:
        path.write_text("not a database, " * 100)
    began = time.monotonic()
    outcome = track([]).finish(BOTH, "finished")
    holder.close()
    assert time.monotonic() - began < 10
    expected = {"a directory": "unable to open database file"}.get(problem, problem)
    assert expected in outcome.error


@pytest.mark.usefixtures("store")
def test_a_failure_on_the_way_still_closes_the_runs(tmp_path):
    warnings: list[str] = []
    tracker = track(warnings)
    tracker.log_metrics(0, 1, {"loss/policy": 1.0})
    tracker.log_artifacts(0, tmp_path, "../outside")
    outcome = tracker.finish(BOTH, "finished")
    assert warnings == [outcome.error]
    run = client_of(outcome).get_run(outcome.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["proxima.tracking_error"] == outcome.error


def test_two_runs_may_start_together_on_a_new_store():
    trackers = [track([]), track([])]
    outcomes = [tracker.finish(BOTH, "finished") for tracker in trackers]
    assert [outcome.error for outcome in outcomes] == [None, None]


@pytest.mark.usefixtures("store")
def test_a_policy_that_is_no_policy_is_an_error_of_the_outcome(tmp_path):
    tracker = track([])
    tracker.register(0, tmp_path, {})
    assert "not an exported policy" in tracker.finish(BOTH, "finished").error


LOAD_WITHOUT_PROXIMA = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "proxima":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import mlflow
import numpy as np
import pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
policy = mlflow.pyfunc.load_model(sys.argv[2])
observations = np.load(sys.argv[3])
actions = policy.predict(observations)
assert "proxima" not in sys.modules
assert (policy.predict(observations.astype(np.float64)) == actions).all()
assert (policy.predict(observations.tolist()) == actions).all()
assert (policy.predict(pd.DataFrame(observations)) == actions).all()
assert policy.predict(observations[0]).tolist() == actions[:1].tolist()
np.save(sys.argv[4], actions)
"""


@pytest.mark.usefixtures("store")
def test_a_registered_policy_acts_where_there_is_no_proxima(tmp_path, policy):
    tracker = track([])
    tracker.register(0, policy, {"eval/return_mean": 199.5})
    tracker.register(1, policy, {"eval/return_mean": 200.0})
    outcome = tracker.finish(BOTH, "finished")
    assert outcome.error is None
    assert outcome.registered[1] == ("cartpole", "2", "models:/cartpole/2")
    version = client_of(outcome).get_model_version("cartpole", "2")
    assert (version.status, version.run_id) == ("READY", outcome.child_run_ids[1])
    assert version.tags["eval/return_mean"] == "200.0"

    np.save("observations.npy", OBSERVATIONS)
    script = [outcome.uri, outcome.registered[1].uri, "observations.npy", "actions.npy"]
    result = subprocess.run(
        [sys.executable, "-I", "-c", LOAD_WITHOUT_PROXIMA, *script],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert result.returncode == 0, result.stderr
    assert np.array_equal(np.load("actions.npy"), greedy(WEIGHTS, OBSERVATIONS))

    files = [path for path in (tmp_path / "mlruns").rglob("*") if path.is_file()]
    assert {"served_policy.py", "policy.stablehlo"} <= {path.name for path in files}
    assert not [path for path in files if path.suffix in {".pkl", ".pickle", ".cloudpickle"}]
    (description, _) = [path.read_text() for path in files if path.name == "MLmodel"]
    assert "python_model:" not in description  # where MLflow would name a pickled model


@pytest.mark.usefixtures("store")
def test_registering_can_be_turned_off(policy):
    tracker = track([], register=False)
    tracker.register(0, policy, {})
    assert tracker.finish(BOTH, "finished").registered == ()


def test_an_exported_policy_gives_the_functions_actions_for_any_batch(policy):
    act = load_exported(policy)
    for size in (1, 3, 64):
        batch = OBSERVATIONS[:size]
        assert np.array_equal(act(batch), greedy(WEIGHTS, batch))
    described = json.loads((policy / "policy.json").read_text())
    assert described["environment"] == "CartPole-v1"
    assert described["observation"] == {"shape": [4], "dtype": "float32"}
    assert described["weights"] == sorted(WEIGHTS)
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy"]
    (policy / "policy.json").unlink()
    with pytest.raises(ProximaError, match=r"policy\.json missing"):
        load_exported(policy)


def test_observations_become_a_batch_or_are_refused_in_words():
    assert as_batch([[1, 2], [3, 4], [5, 6]], (2,), "float32").shape == (3, 2)
    assert as_batch(3, (), "int32").tolist() == [3]
    assert as_batch(np.zeros((5, 12)), (2, 6), "float32").shape == (5, 2, 6)
    with pytest.raises(ValueError, match=r"shape \(5, 3\)"):
        as_batch(np.zeros((5, 3)), (2,), "float32")


def test_no_tracker_does_nothing(tmp_path):
    for tracker in (no_tracker(), track([], enabled=False)):
        tracker.log_metrics(0, 1, {"loss/policy": 1.0})
        tracker.log_parent_metrics(1, {})
        tracker.log_artifacts(None, tmp_path, None)
        tracker.register(0, tmp_path, {})
        assert tracker.ids() is None
        assert tracker.finish(BOTH, "finished") == (None, (), (), None, None)
    assert list(tmp_path.iterdir()) == []


def test_the_store_is_the_settings_then_the_environments_then_a_file_here(tmp_path, monkeypatch):
    assert writer.resolve_uri(None) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere:5000")
    assert writer.resolve_uri(None) == "http://somewhere:5000"
    assert writer.resolve_uri("sqlite:///here.db") == f"sqlite:///{tmp_path}/here.db"
    assert (
        writer.without_password("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    )


def test_nested_parameters_get_dotted_names():
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {
        "a.b.c": 1,
        "a.d": [2],
        "e": None,
    }
