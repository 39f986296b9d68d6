"""A search's files: what was parked comes back, what is damaged is said, nothing piles up."""

import json

import pytest
from lanes import small

from proxima.core.errors import ProximaError
from proxima.tune import store
from proxima.tune.files import find_search
from proxima.tune.plan import Watch
from proxima.tune.run import resume_search, start_search

SILENT = Watch(lambda text: None, lambda standing: None)


class Killed(BaseException):
    """Ends a search as a kill does."""


@pytest.fixture
def killed(workdir, monkeypatch):
    """An asha search that was killed after its fourth chunk, every chunk saved."""
    shown = []

    def dying(standing) -> None:
        shown.append(standing)
        if len(shown) == 5:
            raise Killed

    monkeypatch.setattr(store.Store, "is_due", lambda self: True)
    with pytest.raises(Killed):
        start_search(small(method="asha", configs=12, evaluations=4), SILENT._replace(show=dying))
    return find_search("pendulum")


def test_events_that_are_missing_are_said(killed):
    path = killed.root / "search" / "events.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    with pytest.raises(ProximaError, match=r"events.jsonl: is damaged: it has \d+ lines"):
        resume_search(killed, SILENT)


def test_a_damaged_checkpoint_is_said(killed):
    state = next((killed.root / "search" / "checkpoints").glob("step_*/state.safetensors"))
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(ProximaError, match=r"state\.safetensors"):
        resume_search(killed, SILENT)


def test_parked_states_go_when_nobody_can_want_them_any_more(killed):
    folder = killed.root / "search"
    most = [json.loads(line) for line in (folder / "settings.jsonl").read_text().splitlines()]
    assert len(most) == 12
    resume_search(killed, SILENT)
    assert (
        not list((folder / "parked").glob("*"))
        and len(list((folder / "checkpoints").glob("step_*"))) == 1
    )
