"""Passwords in addresses are in no file, parameter, message or command line of a run."""

import os
from pathlib import Path

import pytest
from tiny import read, tiny
from tracking import BOTH, THEIR_WARNINGS, process_of, track

from proxima import ProximaError, resume_experiment, run_multiple_experiments
from proxima.report.page import Page, RunData, report
from proxima.run.display import silent
from proxima.scenario import dump, load, to_mapping
from proxima.track import store
from proxima.track.process import connect, connect_spans
from proxima.track.tracker import RunIds, TelemetryConfig, TrackingConfig

SECRET = "hunter2"
NOWHERE = f"http://me:{SECRET}@127.0.0.1:1"  # nothing listens there
SHORT = ("training.max_steps=640", "checkpoint.frequency=2")


@pytest.fixture(autouse=True)
def alone(workdir, monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", *store.CREDENTIALS, "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def files_with(text: str, root: Path) -> list[Path]:
    return [
        path for path in root.rglob("*") if path.is_file() and text.encode() in path.read_bytes()
    ]


def run(settings: list[str]) -> tuple[dict, list[str]]:
    """A run's summary, and what it said."""
    said = []
    summary = run_multiple_experiments(
        tiny(Path("logs"), *SHORT, "tracking.enabled=true", *settings),
        display=silent()._replace(say=said.append),
    )
    return summary, said


def test_a_tracking_servers_password_is_nowhere(workdir):
    summary, said = run([f"tracking.uri={NOWHERE}"])
    assert "http://me:***@127.0.0.1:1 stopped" in summary["tracking_error"]
    assert SECRET not in repr(summary) and SECRET not in repr(said)
    assert files_with(SECRET, workdir) == []
    assert files_with("***", workdir) != []


def test_nor_is_it_in_the_tracking_process_s_command_line():
    tracker = track([], uri=NOWHERE)
    process = process_of(tracker)
    shown = Path(f"/proc/{process.pid}/cmdline")
    assert SECRET not in repr(process.args)
    assert not shown.exists() or SECRET.encode() not in shown.read_bytes()
    tracker.finish(BOTH, "finished")


@THEIR_WARNINGS
def test_nor_is_a_collectors_token_in_mlflow(workdir):
    token = f"telemetry.otlp_endpoint=http://127.0.0.1:1/otlp?token={SECRET}"
    summary, said = run([token, "tracking.uri=sqlite:///store.db"])
    assert summary["tracking_error"] is None and summary["mlflow_run_id"]
    assert any("Spans do not arrive at http://127.0.0.1:1/otlp?token=***" in text for text in said)
    assert SECRET not in repr(said)
    assert files_with(SECRET, workdir) == []
    assert workdir / "store.db" in files_with("token=***", workdir)


def test_a_resumed_run_says_that_its_password_is_missing(workdir):
    summary, _ = run([f"tracking.uri={NOWHERE}"])
    info = Path(summary["paths"]["run"]) / "run.json"
    info.write_text(info.read_text().replace('"finished"', '"interrupted"'))
    said = []
    resumed = resume_experiment("cartpole", display=silent()._replace(say=said.append))
    (words,) = [text for text in said if "password" in text]
    assert words.startswith(
        "tracking.uri was stored without its password (http://me:***@127.0.0.1:1); "
        "set MLFLOW_TRACKING_URI"
    )
    assert resumed["tracking_error"] == words and read(info)["status"] == "finished"


STORED = "http://me:***@host:5000/mlflow"


def test_the_environment_gives_a_resumed_run_its_password(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)
    assert store.resolve_uri(STORED) == "http://host:5000/mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    assert store.resolve_uri(STORED) == NOWHERE
    assert store.resolve_uri("http://host") == "http://host"


def test_without_a_password_the_ids_of_the_tracked_run_are_kept():
    ids, said = RunIds("parent", ("child",)), []
    tracker = connect(
        TrackingConfig(uri=STORED), "a", "b", {}, [0], resume_from=ids, warn=said.append
    )
    outcome = tracker.finish(["finished"], "finished")
    assert tracker.ids() == ids == (outcome.run_id, outcome.child_run_ids)
    assert said == [outcome.error]


def test_without_a_password_there_are_no_spans():
    said = []
    config = TelemetryConfig(otlp_endpoint="http://host/?token=***")
    connect_spans(config, "run", {}, said.append).finish("finished")
    assert "set OTEL_EXPORTER_OTLP_ENDPOINT" in said[0]


def test_a_password_stays_in_the_scenario_itself():
    scenario = load("cartpole", [f"tracking.uri={NOWHERE}"])
    assert to_mapping(scenario)["tracking"]["uri"] == NOWHERE
    assert SECRET not in dump(scenario)
    assert os.environ.get("MLFLOW_TRACKING_URI") is None


def test_errors_and_pages_of_older_runs_mask_passwords_too():
    with pytest.raises(ProximaError) as refused:
        load("cartpole", [f"trials={NOWHERE}"])
    assert "http://me:***@127.0.0.1:1" in str(refused.value)
    with pytest.raises(ProximaError) as refused:
        load("cartpole", [f"tracking.uri {NOWHERE}"])
    assert SECRET not in str(refused.value)
    stored = f"tracking:\n  uri: '{NOWHERE}?token={SECRET}'\n"
    run = RunData(
        summary={"scenario": "cartpole", "run_id": "a run", "trials": [{}]},
        info={"started": "2026", "versions": {}, "mlflow_run_id": None, "changes": []},
        scenario={"description": ""},
        scenario_text=stored,
        metrics=lambda trial, stage: [],
        directory=Path("logs"),
        root="logs",
        options="",
    )
    page = report(run, Page([], [], [], [], [], {}))
    assert SECRET not in page and "me:***@127.0.0.1" in page
