"""Nobody but this machine's user, from our own page, is answered or changes anything."""

import json
import os
import signal
import subprocess
import sys

import pytest

from proxima.core.errors import ProximaError
from proxima.live import steer
from proxima.live.guard import Guard
from proxima.run.lock import NAME, this_process

GUARD = Guard("secret", 5055)
HOME = {"host": "127.0.0.1:5055"}
OURS = HOME | {"origin": "http://127.0.0.1:5055"}


@pytest.mark.parametrize(
    ("headers", "token", "words"),
    [
        (OURS, None, "token"),
        (OURS, "wrong", "token"),
        (OURS | {"origin": "http://evil.example"}, "secret", "another site"),
        (OURS | {"origin": "null"}, "secret", "another site"),
        (OURS | {"host": "evil.example:5055"}, "secret", "127.0.0.1 only"),
        (OURS | {"host": "127.0.0.1:80"}, "secret", "127.0.0.1 only"),
        ({}, "secret", "127.0.0.1 only"),
        (HOME, "secret", "does not say"),
    ],
)
def test_a_foreign_request_is_refused(headers, token, words):
    assert words in GUARD.refusal(headers, token, changes=True)


def test_our_own_page_is_answered_and_read_only_changes_nothing():
    assert GUARD.refusal(HOME, "secret") is None
    assert GUARD.refusal(OURS, "secret", changes=True) is None
    read_only = GUARD._replace(read_only=True)
    assert read_only.refusal(HOME, "secret") is None
    assert "--read-only" in read_only.refusal(OURS, "secret", changes=True)


def locked_by(root, **changes):
    (root / NAME).write_text(json.dumps(this_process()._asdict() | changes))


def test_only_the_very_process_of_a_lock_is_stopped(tmp_path):
    with pytest.raises(ProximaError, match="no process"):
        steer.stop(tmp_path)
    locked_by(tmp_path, process_start=1)  # this process's number, but another process's start
    with pytest.raises(ProximaError, match="no process"):
        steer.stop(tmp_path)
    locked_by(tmp_path, host="elsewhere")
    with pytest.raises(ProximaError, match="no process"):
        steer.stop(tmp_path)


def test_a_process_that_ignores_ctrl_c_gets_the_other_signal():
    code = "import signal; signal.signal(2, signal.SIG_IGN); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        assert steer.stop_signal(process.pid) == signal.SIGTERM
        process.stdin.write(b"\n")
    assert steer.stop_signal(os.getpid()) == signal.SIGINT


def test_a_run_at_work_is_not_resumed(tmp_path):
    locked_by(tmp_path)
    with pytest.raises(ProximaError, match="at work on it already"):
        steer.resume(tmp_path, tmp_path, False, None)
