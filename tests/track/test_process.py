"""The tracking process: nobody waits for it, and however it or its script ends is told."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tracking import BOTH, THEIR_WARNINGS, history, process_of, track, wait_until

from proxima.track import process
from proxima.track.messages import ChildRun, Finished, Metrics, Plan, decode, encode

pytestmark = THEIR_WARNINGS


def test_messages_survive_the_pipe():
    for message in (
        Plan(
            "uri",
            "name\n",
            "run",
            {"ü": "1"},
            [ChildRun("trial_0", 0, 7), ChildRun("trial_0_sft", 0, 8, "sft")],
            {"mlflow.user": "me"},
            "parent",
            ["a", "b"],
        ),
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
    for step in range(10_000):  # would never end if it waited
        tracker.log_metrics(0, step, {"loss/policy": 1.0})
    process_of(tracker).send_signal(signal.SIGCONT)
    outcome = tracker.finish(BOTH, "finished")
    assert outcome.error is None
    assert len(history(outcome, 0, "loss/policy")) == 10_000


# No `if __name__ == "__main__"`: a script that is run a second time would print twice.
SCRIPT = """
import os, time
from proxima.track.process import connect
from proxima.track.tracker import TrackingConfig

tracker = connect(TrackingConfig(), "cartpole", "run", {}, [7], warn=print)
for step in range(3_000):
    tracker.log_metrics(0, step, {"loss/policy": 1.0})
print(tracker.finish.__self__._process.pid, flush=True)
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

    # Ctrl-C is to reach the script even where it does not reach us, as under nohup.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    (tmp_path / "script.py").write_text(listen + SCRIPT + ENDINGS[ending])
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
