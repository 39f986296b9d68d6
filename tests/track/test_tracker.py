"""Tracking against real sqlite stores: what was logged is read back with MLflow's own client."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tracking import BOTH, THEIR_WARNINGS, client_of, history, only, track, wait_until, write

from proxima.track import store
from proxima.track.messages import Artifacts, Failed, Metrics, Warned
from proxima.track.process import flatten
from proxima.track.tracker import Candidate, RunIds, no_tracker

pytestmark = THEIR_WARNINGS


def test_two_runs_may_start_together_where_there_is_no_store(first_outcomes):
    assert [outcome.error for outcome in first_outcomes] == [None, None]


@pytest.mark.usefixtures("default_store")
def test_a_run_is_read_back_as_it_was_logged(tmp_path, capfd):
    plots = tmp_path / "plots"
    plots.mkdir()
    (plots / "curve.png").write_bytes(b"png")
    (tmp_path / "scenario.yaml").write_text("name: cartpole\n")
    warnings: list[str] = []
    tracker = track(warnings, register=False)
    tracker.register(0, Candidate(str(plots), "", {}, None))  # would be an error
    for step in (100, 200):
        for trial in np.arange(2):
            tracker.log_metrics(trial, step, {"episode/return": step + trial})
    values = {"loss/a": -np.inf, "loss/b": jnp.inf, "loss/c": np.nan, "loss/d": jnp.float32(1.5)}
    tracker.log_metrics(0, 200, values)
    tracker.log_parent_metrics(200, {"aggregate/iqm": 200.5})
    tracker.log_artifacts(None, tmp_path / "scenario.yaml", None)
    tracker.log_artifacts(1, plots, "plots")
    tracker.log_artifacts(1, tmp_path / "pruned", None)
    outcome = tracker.finish(("finished", "interrupted"), "interrupted")

    assert (outcome.error, outcome.registered) == (None, ())
    assert outcome.uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert tracker.ids() == RunIds(outcome.run_id, outcome.child_run_ids)
    assert history(outcome, 1, "episode/return") == [(100, 101.0), (200, 201.0)]
    client = client_of(outcome)
    parent = client.get_run(outcome.run_id)
    first, second = (client.get_run(run) for run in outcome.child_run_ids)
    assert client.get_experiment(parent.info.experiment_id).name == "cartpole"
    assert parent.data.params["algorithm.gamma"] == "0.99"
    assert parent.data.tags["mlflow.note.content"] == "Balance a pole."
    assert parent.data.tags["mlflow.source.name"] and parent.data.tags["mlflow.user"]
    assert parent.data.metrics == {"aggregate/iqm": 200.5}
    assert set(first.data.metrics) == {"episode/return", "loss/c", "loss/d"}
    assert np.isnan(first.data.metrics["loss/c"])
    assert (second.data.params["trial"], second.data.params["seed"]) == ("1", "8")
    assert second.data.tags["mlflow.parentRunId"] == outcome.run_id
    statuses = [run.info.status for run in (parent, first, second)]
    assert statuses == ["KILLED", "FINISHED", "KILLED"]
    assert [file.path for file in client.list_artifacts(outcome.run_id)] == ["scenario.yaml"]
    assert client.list_artifacts(second.info.run_id, "plots")[0].path == "plots/curve.png"
    assert Path(parent.info.artifact_uri).is_relative_to(tmp_path / "mlruns")
    left_out = "2 infinite metric values, 1 files that were gone"
    assert warnings == [f"MLflow tracking left out: {left_out}"]
    assert capfd.readouterr() == ("", "")


def test_what_waits_is_sent_in_batches_of_at_most_a_thousand(default_store, monkeypatch):
    from mlflow import MlflowClient

    sizes: list[int] = []
    send = MlflowClient.log_batch

    def counted(self, run_id, metrics=(), params=(), tags=(), synchronous=None):
        sizes.append(len(metrics))
        return send(self, run_id, metrics=metrics, params=params)

    monkeypatch.setattr(MlflowClient, "log_batch", counted)
    values = {f"train/{index}": index for index in range(25)}
    answers = write(default_store, *(Metrics(0, step, 1_000 + step, values) for step in range(60)))
    opened = only(RunIds, answers)
    assert [size for size in sizes if size] == [1000, 500]
    points = MlflowClient(default_store).get_metric_history(opened.children[0], "train/24")
    assert [(point.step, point.timestamp) for point in points] == [
        (step, 1_000 + step) for step in range(60)
    ]


def test_a_resumed_run_goes_on_without_doubled_metrics(default_store):
    logged = [Metrics(0, step, step, {"episode/return": step}) for step in (100, 200, 300)]
    before = only(RunIds, write(default_store, *logged))

    warnings: list[str] = []
    tracker = track(warnings, resume_from=before)
    for step in (200, 300, 400):  # the checkpoint was older than the newest metrics
        tracker.log_metrics(0, step, {"episode/return": step, "eval/new": step})
    outcome = tracker.finish(BOTH, "failed")
    assert (outcome.run_id, outcome.child_run_ids) == before
    assert [step for step, _ in history(outcome, 0, "episode/return")] == [100, 200, 300, 400]
    assert [step for step, _ in history(outcome, 0, "eval/new")] == [200, 300, 400]
    assert client_of(outcome).get_run(outcome.run_id).info.status == "FAILED"
    assert warnings == []


def test_resuming_a_run_the_store_does_not_know_makes_a_new_one(default_store):
    unknown = RunIds("0" * 32, ("1" * 32, "2" * 32))
    answers = write(default_store, resume_from=unknown)
    assert only(RunIds, answers).parent != unknown.parent
    assert "not in sqlite" in only(Warned, answers).text


def test_a_server_that_is_away_is_said_once_and_ends_quickly(tmp_path, capfd):
    warnings: list[str] = []
    began = time.monotonic()
    tracker = track(warnings, uri="http://127.0.0.1:9")
    tracker.log_metrics(0, 1, {"loss/policy": 1.0})
    tracker.log_artifacts(None, tmp_path, None)
    outcome = tracker.finish(("failed", "failed"), "failed")
    assert time.monotonic() - began < 60  # left alone, MLflow asks again for minutes
    assert "http://127.0.0.1:9 stopped" in outcome.error
    assert warnings == [outcome.error]
    assert (outcome.run_id, tracker.ids()) == (None, None)
    tracker.log_metrics(0, 2, {"loss/policy": 1.0})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("problem", ["unable to open database file", "not a database"])
def test_a_database_that_cannot_be_opened_is_told_at_once(tmp_path, problem):
    path = tmp_path / "mlflow.db"
    if problem == "not a database":
        path.write_text("not a database, " * 100)
    else:
        path.mkdir()
    warnings: list[str] = []
    tracker = track(warnings)
    wait_until(lambda: warnings)
    outcome = tracker.finish(BOTH, "finished")
    assert problem in outcome.error
    assert warnings == [outcome.error]


def test_a_locked_database_is_not_waited_for_long(default_store, monkeypatch):
    monkeypatch.setattr(store, "LOCKED_SECONDS", 0.2)
    with closing(sqlite3.connect("mlflow.db")) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert "locked" in only(Failed, write(default_store)).error


def test_a_failure_on_the_way_still_closes_the_runs(default_store, tmp_path):
    from mlflow import MlflowClient

    metrics = Metrics(0, 1, 1, {"loss/policy": 1.0})
    outside = Artifacts(0, str(tmp_path), "../outside")
    answers = write(default_store, metrics, outside, metrics)
    run = MlflowClient(default_store).get_run(only(RunIds, answers).parent)
    assert run.info.status == "FINISHED"
    assert run.data.tags["proxima.tracking_error"] == only(Failed, answers).error


def test_no_tracker_does_nothing(tmp_path):
    for tracker in (no_tracker(), track([], enabled=False)):
        tracker.log_metrics(0, 1, {"loss/policy": 1.0})
        tracker.log_parent_metrics(1, {})
        tracker.log_artifacts(None, tmp_path, None)
        tracker.register(0, Candidate(str(tmp_path), "", {}, None))
        assert tracker.ids() is None
        assert tracker.finish(BOTH, "finished") == (None, (), (), None, None)
    assert list(tmp_path.iterdir()) == []


def test_the_store_is_the_settings_then_the_environments_then_a_file_here(tmp_path, monkeypatch):
    assert store.resolve_uri(None) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere:5000")
    assert store.resolve_uri(None) == "http://somewhere:5000"
    assert store.resolve_uri("sqlite:///here.db") == f"sqlite:///{tmp_path}/here.db"
    error = store.explain_failure("http://me:secret@host", "no http://me:secret@host\nat all")
    assert "stopped: no http://me:***@host. The" in error


def test_nested_parameters_get_dotted_names():
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {
        "a.b.c": 1,
        "a.d": [2],
        "e": None,
    }
