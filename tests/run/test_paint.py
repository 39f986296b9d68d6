"""Pictures drawn beside other work: by whom, and what happens to one that cannot be."""

import os
import time
from pathlib import Path

import pytest

from proxima.run.paint import Painter


def write_process(path: Path) -> None:
    path.write_text(str(os.getpid()))


def fail_elsewhere(path: Path, here: int) -> None:
    if os.getpid() != here:
        os._exit(3)
    path.write_text("drawn here")


def refuse(path: Path) -> None:
    raise ValueError(f"nothing to draw for {path.name}")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def quietly(done: int, count: int) -> None:
    pass


@pytest.fixture
def importable(monkeypatch):
    """The second process finds the functions of this file."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import test_paint

    return test_paint


def test_a_second_process_draws(tmp_path, importable):
    with Painter(beside=True) as paint:
        paint(importable.write_process, tmp_path / "one")
        wait_for(tmp_path / "one")
        paint.finish(quietly)
    assert (tmp_path / "one").read_text() != str(os.getpid())


def test_few_pictures_are_drawn_here(tmp_path):
    told = []
    with Painter(beside=False) as paint:
        for name in "ab":
            paint(write_process, tmp_path / name)
        assert not (tmp_path / "a").exists()
        paint.finish(lambda done, count: told.append((done, count)))
    assert {(tmp_path / name).read_text() for name in "ab"} == {str(os.getpid())}
    assert told == [(0, 2), (1, 2)]


def test_what_the_second_process_cannot_draw_is_drawn_here(tmp_path, importable):
    names = [str(number) for number in range(5)]
    with Painter(beside=True) as paint:
        for name in names:
            paint(importable.fail_elsewhere, tmp_path / name, os.getpid())
        paint(lambda: (tmp_path / "unpicklable").write_text("drawn here"))
        paint.finish(quietly)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "unpicklable"}


@pytest.mark.parametrize("beside", [True, False])
def test_an_error_is_raised(tmp_path, importable, beside):
    with Painter(beside) as paint, pytest.raises(ValueError, match="nothing to draw for x"):
        paint(importable.refuse, tmp_path / "x")
        paint.finish(quietly)


def test_an_error_elsewhere_ends_it(tmp_path, importable):
    with pytest.raises(RuntimeError, match="judging"), Painter(beside=True) as paint:
        paint(importable.write_process, tmp_path / "one")
        raise RuntimeError("judging")
    assert not paint._thread.is_alive()
