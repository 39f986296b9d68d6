"""Tracking against real sqlite stores: what was logged is read back with MLflow's own client."""

import json
import os
import queue
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.track import process, store
from proxima.track.messages import (
    Answer,
    Artifacts,
    Failed,
    Finish,
    Finished,
    Metrics,
    Opened,
    Plan,
    Registration,
    Warned,
    Work,
    decode,
    encode,
)
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
from proxima.track.writer import Writer

# MLflow's own client reads the stores here; what it and its database layer warn of is theirs.
pytestmark = pytest.mark.filterwarnings(r"ignore:::(mlflow|alembic|sqlalchemy)(\.|$)")

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
def first_outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[TrackingOutcome]:
    """What became of two runs that started together where there was no store."""
    config = TrackingConfig(uri=f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}")
    trackers = [connect(config, "template", "template", {}, []) for _ in range(2)]
    return [tracker.finish((), "finished") for tracker in trackers]


@pytest.fixture
def new_store(first_outcomes: list[TrackingOutcome]) -> Path:
    """A store that is already made, for copying: making one for each test takes much longer."""
    return Path(first_outcomes[0].uri.removeprefix("sqlite:///"))


@pytest.fixture
def default_store(new_store: Path, tmp_path: Path) -> str:
    """The default store of this test's directory, already there."""
    return f"sqlite:///{shutil.copy(new_store, tmp_path / 'mlflow.db')}"


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


def write(uri: str, *work: Work, resume_from: RunIds | None = None) -> list[Answer]:
    """What the tracking process answers when all this is in its inbox; here without a process."""
    inbox: queue.SimpleQueue = queue.SimpleQueue()
    for each in (*work, Finish(BOTH, "finished")):
        inbox.put(each)
    answers: list[Answer] = []
    plan = Plan(uri, "cartpole", "20260101-000000-aaaa", {}, [7, 8], *(resume_from or ()))
    Writer(plan, inbox, answers.append).run()
    assert isinstance(answers[-1], Finished)
    return answers


def only(kind: type, answers: list[Answer]) -> Any:
    (answer,) = [each for each in answers if isinstance(each, kind)]
    return answer


def process_of(tracker: Tracker) -> subprocess.Popen:
    return tracker.finish.__self__._started.process


def wait_until(condition: Callable[[], object], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def history(outcome: TrackingOutcome, trial: int, name: str) -> list[tuple[int, float]]:
    points = client_of(outcome).get_metric_history(outcome.child_run_ids[trial], name)
    return [(point.step, point.value) for point in points]


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
    tracker.register(0, plots, {})  # would be an error
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
    opened = only(Opened, answers)
    assert [size for size in sizes if size] == [1000, 500]
    points = MlflowClient(default_store).get_metric_history(opened.children[0], "train/24")
    assert [(point.step, point.timestamp) for point in points] == [
        (step, 1_000 + step) for step in range(60)
    ]


def test_a_resumed_run_goes_on_without_doubled_metrics(default_store):
    logged = [Metrics(0, step, step, {"episode/return": step}) for step in (100, 200, 300)]
    before = RunIds(*only(Opened, write(default_store, *logged)))

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
    assert only(Opened, answers).parent != unknown.parent
    assert "not in sqlite" in only(Warned, answers).text


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
    run = MlflowClient(default_store).get_run(only(Opened, answers).parent)
    assert run.info.status == "FINISHED"
    assert run.data.tags["proxima.tracking_error"] == only(Failed, answers).error


def test_a_policy_that_is_no_policy_is_an_error(default_store, tmp_path):
    answers = write(default_store, Registration(0, str(tmp_path), {}))
    assert "not an exported policy" in only(Failed, answers).error


def test_messages_survive_the_pipe():
    for message in (
        Plan("uri", "name\n", "run", {"ü": "1"}, [7, 8], "parent", ["a", "b"]),
        Metrics(None, 3, 4, {"loss/policy": -np.inf}),
        Finished(),
    ):
        line = encode(message)
        assert line.index(b"\n") == len(line) - 1
        assert decode(line) == message
    assert np.isnan(decode(encode(Metrics(0, 1, 2, {"a": np.nan}))).values["a"])


def test_a_process_that_is_killed_becomes_the_outcomes_error():
    warnings: list[str] = []
    tracker = track(warnings)
    process_of(tracker).kill()
    wait_until(lambda: warnings)
    tracker.log_metrics(0, 1, {"loss/policy": 1.0})
    outcome = tracker.finish(BOTH, "finished")
    assert "the tracking process ended by signal 9" in outcome.error
    assert tracker.finish(BOTH, "finished") == outcome
    assert warnings == [outcome.error]


def test_a_process_that_cannot_start_or_dies_says_why(tmp_path, monkeypatch):
    python = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    assert "could not be started" in track([]).finish(BOTH, "finished").error
    python.write_text(
        "#!/bin/sh\necho chatter\necho 'no such module' >&2\nexit 3\n".replace("echo chatter\n", "")
    )
    python.chmod(0o755)
    error = track([]).finish(BOTH, "finished").error
    assert "the tracking process ended with code 3 (no such module)" in error


def test_a_process_that_gets_nothing_done_is_given_up(monkeypatch):
    monkeypatch.setattr(process, "STALLED_SECONDS", 1)
    tracker = track([])
    process_of(tracker).send_signal(signal.SIGSTOP)
    assert "nothing was written for 1 seconds" in tracker.finish(BOTH, "finished").error
    assert process_of(tracker).returncode == -signal.SIGKILL


@pytest.mark.usefixtures("default_store")
def test_logging_never_waits_for_the_process():
    tracker = track([])
    process_of(tracker).send_signal(signal.SIGSTOP)
    began = time.monotonic()
    for step in range(10_000):
        tracker.log_metrics(0, step, {"loss/policy": 1.0})
    assert time.monotonic() - began < 5  # and would never end if it waited
    process_of(tracker).send_signal(signal.SIGCONT)
    outcome = tracker.finish(BOTH, "finished")
    assert outcome.error is None
    assert len(history(outcome, 0, "loss/policy")) == 10_000


# No `if __name__ == "__main__"`: a script that is run a second time would print twice.
SCRIPT = """
import os, time
from proxima.track.tracker import TrackingConfig, connect

tracker = connect(TrackingConfig(), "cartpole", "run", {}, [7])
for step in range(3_000):
    tracker.log_metrics(0, step, {"loss/policy": 1.0})
print(tracker.finish.__self__._started.process.pid, flush=True)
"""
ENDINGS = {
    "exits": "",
    "killed": """
while tracker.ids() is None:
    time.sleep(0.05)
if os.fork() == 0:  # as an environment's process does, it inherits the pipe
    time.sleep(60)
    os._exit(0)
print("ready", flush=True)
time.sleep(60)
""",
    "interrupted": """
while tracker.ids() is None:
    time.sleep(0.05)
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    assert tracker.finish(["finished"], "failed").error is None
""",
}


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")  # one that has ended but that nobody has collected yet
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(
    ("ending", "statuses"),
    [
        ("exits", ["KILLED", "KILLED"]),
        ("killed", ["KILLED", "KILLED"]),
        ("interrupted", ["FAILED", "FINISHED"]),
    ],
)
def test_however_a_script_ends_its_runs_are_closed(default_store, tmp_path, ending, statuses):
    from mlflow import MlflowClient

    (tmp_path / "script.py").write_text(SCRIPT + ENDINGS[ending])
    script = subprocess.Popen(
        [sys.executable, "script.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a process group to interrupt, as a terminal does
    )
    with script:
        writer = int(script.stdout.readline())
        try:
            if ending != "exits":
                assert script.stdout.readline() == "ready\n"
            if ending == "interrupted":
                os.kill(writer, signal.SIGTERM)  # as a batch system does, to every process
                os.killpg(script.pid, signal.SIGINT)
            if ending == "killed":
                script.kill()
            script.wait(timeout=40)
            wait_until(lambda: has_ended(writer))
        finally:
            if ending == "killed":
                os.killpg(script.pid, signal.SIGKILL)
        assert script.stdout.read() == ""
    client = MlflowClient(default_store)
    experiment = client.get_experiment_by_name("cartpole")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 2
    by_name = {run.info.run_name: run for run in runs}
    assert [by_name[name].info.status for name in ("run", "trial_0")] == statuses
    assert by_name["trial_0"].data.metrics == {"loss/policy": 1.0}
    points = client.get_metric_history(by_name["trial_0"].info.run_id, "loss/policy")
    assert len(points) == 3_000


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


def test_a_registered_policy_acts_where_there_is_no_proxima(
    new_store, tmp_path, policy, monkeypatch
):
    (tmp_path / "refuse").mkdir()
    (tmp_path / "refuse" / "jax.py").write_text("raise ImportError('not in this process')")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "refuse"), *sys.path])
    shutil.copy(new_store, tmp_path / "other.db")  # models are looked for there, not in the default
    tracker = track([], uri="sqlite:///other.db")
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
    assert store.resolve_uri(None) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere:5000")
    assert store.resolve_uri(None) == "http://somewhere:5000"
    assert store.resolve_uri("sqlite:///here.db") == f"sqlite:///{tmp_path}/here.db"
    assert store.without_password("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    error = store.explain_failure("http://me:secret@host", "no http://me:secret@host\nat all")
    assert "stopped: no http://me:***@host. The" in error


def test_nested_parameters_get_dotted_names():
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {
        "a.b.c": 1,
        "a.d": [2],
        "e": None,
    }
