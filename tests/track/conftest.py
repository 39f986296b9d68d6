"""Stores for the tracking tests, each in a directory of its own."""

import shutil
from pathlib import Path

import pytest

from proxima.track.process import connect
from proxima.track.tracker import TrackingConfig, TrackingOutcome


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test works in a directory of its own, where the default store lands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def first_outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[TrackingOutcome]:
    """What became of two runs that started together where there was no store."""
    config = TrackingConfig(uri=f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}")
    trackers = [connect(config, "template", "template", {}, [], warn=print) for _ in range(2)]
    return [tracker.finish((), "finished") for tracker in trackers]


@pytest.fixture
def new_store(first_outcomes: list[TrackingOutcome]) -> Path:
    """A store that is already made, for copying: making one for each test takes much longer."""
    return Path(first_outcomes[0].uri.removeprefix("sqlite:///"))


@pytest.fixture
def default_store(new_store: Path, tmp_path: Path) -> str:
    """The default store of this test's directory, already there."""
    return f"sqlite:///{shutil.copy(new_store, tmp_path / 'mlflow.db')}"
