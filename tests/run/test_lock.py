"""One process at a time works on a run: live ones are refused by name, dead ones do not stand in the way."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from resume import Case, latest
from tiny import TINY, command, count_rows, read, rows_of, run_process, stop_at_row
from tracking import wait_until

from proxima import ProximaError
from proxima.run import lock
from proxima.run.lock import locked

HOLDER = """
import sys
from pathlib import Path
from proxima.core.errors import ProximaError
from proxima.run.lock import locked
try:
    with locked(Path(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.readline()
except ProximaError as error:
    print(error, flush=True)
"""
LONG = Case("cartpole", *TINY, "training.max_steps=200000", "checkpoint.frequency=1")
SHORT = Case("cartpole", *TINY, "training.max_steps=8192", "checkpoint.frequency=1")
METRICS = "logs/cartpole/latest/trial_0/metrics.jsonl"


@pytest.fixture
def holding(tmp_path):
    """Starts processes that lock the directory, or say why they cannot."""
    started = []

    def start() -> tuple[subprocess.Popen, str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, tmp_path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_lock_is_gone_when_it_is_left(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        assert (tmp_path / lock.NAME).exists()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        pass


def test_the_second_process_is_told_who_has_it(tmp_path, holding):
    process, words = holding()
    assert words == "held"
    since = read(tmp_path / lock.NAME)["since"]
    with pytest.raises(ProximaError) as refused, locked(tmp_path):
        pytest.fail("it is locked")
    host = lock.this_process().host
    assert str(refused.value) == (
        f"{tmp_path} is running in process {process.pid} on {host} since {since}; "
        "wait for it, or stop it first"
    )
    process.communicate("\n")
    with locked(tmp_path):
        pass


def test_a_killed_process_leaves_its_lock_to_the_next(tmp_path, holding):
    process, _ = holding()
    process.kill()
    process.wait()
    assert read(tmp_path / lock.NAME)["process"] == process.pid
    with locked(tmp_path):
        assert read(tmp_path / lock.NAME)["process"] == os.getpid()


def test_a_thread_nests_its_lock_and_another_thread_is_refused(tmp_path):
    refused = []

    def try_it() -> None:
        try:
            with locked(tmp_path):
                pass
        except ProximaError as error:
            refused.append(str(error))

    with locked(tmp_path), locked(tmp_path):
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
        assert (tmp_path / lock.NAME).exists()
    assert f"is running in process {os.getpid()} " in refused[0]
    try_it()
    assert len(refused) == 1


def test_a_forked_child_does_not_keep_its_parents_lock(tmp_path):
    script = (
        "import os, sys, time; from pathlib import Path; from proxima.run.lock import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    child = os.fork()\n"
        "    if not child: os.close(1); time.sleep(600)\n"
        "    print(child, flush=True); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE)
    child = int(done.stdout)
    try:
        with locked(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def left_by(path: Path, **changed) -> None:
    (path / lock.NAME).write_text(json.dumps(lock.this_process()._asdict() | changed))


@pytest.fixture
def no_flock(monkeypatch):
    """A file system that knows no flock."""
    monkeypatch.setattr(lock, "_flock", lambda descriptor: False)


def test_without_flock_the_file_decides(tmp_path, no_flock):
    left_by(tmp_path)
    with pytest.raises(ProximaError, match=f"in process {os.getpid()}"), locked(tmp_path):
        pass
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left_by(tmp_path, process=ended.pid)
    with locked(tmp_path):
        pass


def test_without_flock_a_process_of_the_same_id_is_not_taken_for_the_first(tmp_path, no_flock):
    start = lock.this_process().process_start
    if start is None:
        pytest.skip("this system does not say when a process was started")
    left_by(tmp_path, process_start=start - 1)
    with locked(tmp_path):
        pass


def test_another_machines_lock_stays_and_the_remedy_is_said(tmp_path):
    left_by(tmp_path, host="elsewhere", boot="another")
    with pytest.raises(ProximaError) as refused, locked(tmp_path):
        pass
    assert "on elsewhere since" in str(refused.value)
    assert f"if elsewhere is gone, delete {tmp_path / lock.NAME}" in str(refused.value)


@pytest.mark.parametrize("changed", [{"boot": "before"}, {"host": "container-1"}])
def test_after_a_restart_and_from_a_container_that_is_gone_a_lock_is_free(tmp_path, changed):
    if lock.this_process().boot is None:
        pytest.skip("this system has no id of its start")
    left_by(tmp_path, **changed)
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"process": 1}', b"\xff"])
def test_a_damaged_lock_file_is_taken_over(tmp_path, content):
    (tmp_path / lock.NAME).write_bytes(content)
    with locked(tmp_path):
        pass


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ProximaError, match="cannot lock the run"), locked(tmp_path / "missing"):
        pass


def test_a_live_run_is_not_resumed(workdir):
    run = subprocess.Popen(
        command(*LONG.command()), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: count_rows(workdir / METRICS) > 2 or run.poll() is not None, 200)
        rows = count_rows(workdir / METRICS)
        refused = run_process(["resume", "cartpole"], workdir)
        assert run.poll() is None
        assert refused.code == 1 and f"is running in process {run.pid} on" in refused.err
        assert "Traceback" not in refused.err
        assert read(workdir / "logs/cartpole/latest/run.json")["status"] == "running"
        wait_until(lambda: count_rows(workdir / METRICS) > rows or run.poll() is not None, 200)
        assert run.poll() is None
    finally:
        run.kill()
        run.wait()


def test_of_two_resumes_one_wins_and_a_killed_run_is_taken_over(workdir):
    stop_at_row(SHORT.command(), workdir, METRICS, 10, signal.SIGKILL)
    root = latest(workdir, SHORT)
    assert (root / lock.NAME).exists()
    both = [
        subprocess.Popen(
            command("resume", "cartpole"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    words = [process.communicate(timeout=300) for process in both]
    codes = [process.returncode for process in both]
    if sorted(codes) == [0, 0]:  # the second began after the first had ended
        assert any("is finished; there is nothing to resume" in out for out, _ in words)
    else:
        assert sorted(codes) == [0, 1]
        winner, loser = codes.index(0), codes.index(1)
        assert f"is running in process {both[winner].pid} on" in words[loser][1]
    assert read(root / "run.json")["status"] == "finished"
    assert not (root / lock.NAME).exists()
    steps = [row["step"] for row in rows_of(root / "trial_0")]
    assert steps == sorted(set(steps)), "nobody wrote in between"
