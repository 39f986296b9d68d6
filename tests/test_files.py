"""Files are on the disk before they take another's place, and nothing half is ever seen."""

import errno
import os
from pathlib import Path

import pytest

from proxima import ProximaError
from proxima.files import replacing
from proxima.run.files import (
    append_row,
    keep_rows_until,
    read_json,
    read_rows,
    write_json,
    write_text,
)
from proxima.train import atomic


@pytest.fixture
def calls(monkeypatch):
    """What is made sure to be on the disk, and what is renamed, in order and by name."""
    calls = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def name_of(descriptor: int) -> str:
        return Path(f"/proc/self/fd/{descriptor}").resolve().name

    def note(kind, call):
        def noted(first, second):
            calls.append((kind, Path(first).name, Path(second).name))
            call(first, second)

        return noted

    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(("fsync", name_of(fd))) or fsync(fd))
    monkeypatch.setattr(os, "replace", note("rename", replace))
    monkeypatch.setattr(os, "rename", note("rename", rename))
    return calls


WRITERS = {
    "run.json": lambda path: write_json(path, {"a": 1}),
    "scenario.yaml": lambda path: write_text(path, "name: a\n"),
    "metrics.jsonl": lambda path: keep_rows_until(path, 3),
}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names a file by its descriptor")
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_on_the_disk_before_it_is_renamed_and_its_name_after(tmp_path, calls, name):
    WRITERS[name](tmp_path / name)
    temporary = f".tmp-{os.getpid()}-{name}"
    assert calls == [("fsync", temporary), ("rename", temporary, name), ("fsync", tmp_path.name)]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names a file by its descriptor")
def test_a_checkpoint_is_on_the_disk_before_it_is_renamed_too(tmp_path, calls):
    atomic.write_directory(tmp_path / "step", {"state": b"1", "manifest": b"2"}, ["last"])
    new = f".tmp-{os.getpid()}-new"
    assert calls == [
        ("fsync", "state"),
        ("fsync", "manifest"),
        ("fsync", f"{new}-step"),
        ("rename", f"{new}-step", "step"),
        ("rename", f"{new}-last", "last"),
        ("fsync", tmp_path.name),
    ]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "run.json"
    write_json(path, {"a": 1})

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(ProximaError, match=r"run\.json: cannot write there \(No space left"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1} and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
def test_a_full_disk_is_named():
    with pytest.raises(ProximaError, match=r"/dev/full: cannot write there \(No space left"):
        append_row(Path("/dev/full"), {"step": 1})


def test_an_error_within_leaves_the_old_file(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as fresh:
        fresh.write_text("new")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_rows_after_a_step_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    keep_rows_until(path, 2)
    assert read_rows(path) == [{"step": 1}, {"step": 2}]
