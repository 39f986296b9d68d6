"""Runs that several files compare theirs with, made once for each; signals that are heard."""

import signal
from pathlib import Path

import pytest
from resume import Case


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Uninterrupted runs, each made once."""
    made: dict[Case, Path] = {}

    def get(case: Case) -> Path:
        if case not in made:
            made[case] = case.uninterrupted(tmp_path_factory.mktemp("whole"))
        return made[case]

    return get


@pytest.fixture(autouse=True)
def hears_signals():
    """Also where this process was started to ignore them, by nohup or in the background."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
