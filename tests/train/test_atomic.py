"""Checkpoints on the disk: links, retention, full disks, and kills at any moment."""

import errno
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoints import assert_identical, common_step, names, save, small_state, step_names

from proxima.core.errors import ProximaError
from proxima.core.types import TrainState
from proxima.train import atomic, checkpoint


def test_links_are_relative_and_move(tmp_path):
    save(tmp_path, 1, best=True)
    save(tmp_path, 2)
    root = tmp_path / "checkpoints"
    assert [os.readlink(root / name) for name in ("best", "last")] == step_names(1, 2)
    moved = tmp_path.with_name(tmp_path.name + "_moved")
    tmp_path.rename(moved)
    assert checkpoint.load(moved / "checkpoints" / "best", small_state())[1]["step"] == 1


def test_a_step_saved_again_replaces_the_first(tmp_path):
    save(tmp_path, 3, small_state(1.0), best=True)
    save(tmp_path, 3, small_state(2.0))
    assert names(tmp_path) == ["best", "last", *step_names(3)]
    assert checkpoint.load(tmp_path, small_state())[0].learner["weight"][0] == 2.0


def test_a_step_is_replaced_where_names_cannot_be_exchanged(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    test_a_step_saved_again_replaces_the_first(tmp_path)


def test_retention_keeps_the_newest_and_the_linked_and_nothing_foreign_is_touched(tmp_path):
    trial, other = tmp_path / "trial_0", tmp_path / "trial_1"
    save(other, 1)
    root = trial / "checkpoints"
    root.mkdir(parents=True)
    (root / "step_000000000000").symlink_to(other / "checkpoints" / "step_000000000001")
    foreign = ["step_1", "step_0000000000001", ".tmp-mine", ".tmp-1-notes", "step_000000000002.bak"]
    for name in foreign:
        (root / name).mkdir()
    (root / "step_000000000005").write_text("a file")
    running = f".tmp-{os.getppid()}-new-step_000000000009"
    (root / running).mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"{ended.pid}-new-step_000000000009", f"{os.getpid()}-old-step_000000000008"):
        (root / f".tmp-{name}").mkdir()
        (root / f".tmp-{name}" / "state.safetensors").write_text("half")
    (root / f".tmp-{ended.pid}-new-last").symlink_to("nowhere")
    for step in (10, 20, 30, 40, 50):
        save(trial, step, best=step == 20)
    kept = ["best", "last", *step_names(0, 5, 20, 40, 50)]
    assert names(trial) == sorted([*kept, *foreign, running])
    assert checkpoint.available_steps(trial) == [20, 40, 50]
    assert names(other) == ["last", *step_names(1)]


@pytest.mark.parametrize("broken", ["fsync", "replace", "mkdir"])
def test_a_full_disk_leaves_the_previous_checkpoint_and_no_rubbish(tmp_path, monkeypatch, broken):
    save(tmp_path, 3)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(ProximaError) as failure:
        patch.setattr(os, broken, full)
        save(tmp_path, 4)
    assert str(failure.value) == (
        f"{tmp_path / 'checkpoints'}: the checkpoint of step 4 could not be written: No space left "
        "on device; the previous one, step_000000000003, is intact; free some space, or set "
        "output_directory to another place"
    )
    assert [name for name in names(tmp_path) if name.startswith(".tmp")] == []
    assert checkpoint.load(tmp_path, small_state())[1]["step"] == 3
    save(tmp_path, 4)
    assert checkpoint.load(tmp_path, small_state())[1]["step"] == 4


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    for place in (tmp_path, Path("/proc/nowhere")):
        with pytest.raises(
            ProximaError, match="there is no earlier one; make it a writable"
        ) as failure:
            save(place, 4)
        assert str(place / "checkpoints") in str(failure.value)
    assert (tmp_path / "checkpoints").read_text() == "a file"


def test_every_moment_of_a_save_is_a_good_one_to_be_killed_at(tmp_path):
    moments, files = 0, {module.__file__ for module in (checkpoint, atomic, shutil)}

    def check() -> None:
        for link in ("last", "best"):
            state, manifest = checkpoint.load(tmp_path / "checkpoints" / link, small_state())
            assert state.learner["weight"][0] == manifest["loop"]["value"]
        for name in filter(re.compile("step_").match, names(tmp_path)):
            assert len(list((tmp_path / "checkpoints" / name).iterdir())) == 2
        assert common_step([tmp_path]) is not None

    def trace(frame, event, argument):
        nonlocal moments
        if frame.f_code.co_filename in files:
            moments += 1
            check()
            return trace
        return None

    def save_value(step: int, value: float, best: bool) -> None:
        manifest = {"scenario": {}, "loop": {"value": value}}
        checkpoint.save(tmp_path, step, small_state(value), manifest, 2, best)

    save_value(1, 1.0, True)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for step, value, best in ((1, 2.0, True), (2, 3.0, False), (3, 4.0, True), (4, 5.0, False)):
            save_value(step, value, best)
    finally:
        sys.settrace(before)
    assert moments > 500


# Told some seconds, it lets a child save in a tight loop, every other step twice with another
# state, kills it that long after its first save and says so. Forked: interpreters start slowly.
SAVER = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from proxima.core.types import TrainState
from proxima.train import checkpoint

def save_forever(directory, saved):
    count = checkpoint.load_manifest(directory)["loop"]["count"]
    while True:
        count += 1
        state = TrainState(np.full(20_000, count, np.int32), None, np.full(3, count, np.int32))
        manifest = {"scenario": {}, "loop": {"count": count}}
        step = count // 3 * 2 + count % 3 // 2
        checkpoint.save(directory, step, state, manifest, keep=2, best=count % 5 == 0)
        os.write(saved, b".")

for line in sys.stdin:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        save_forever(Path(sys.argv[1]), writer)
    os.read(reader, 1)
    time.sleep(float(line))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    print("killed", flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_a_loadable_trial(tmp_path):
    def state(count: int) -> TrainState:
        return TrainState(np.full(20_000, count, np.int32), None, np.full(3, count, np.int32))

    manifest = {"scenario": {}, "loop": {"count": 0}}
    checkpoint.save(tmp_path, 0, state(0), manifest, 2, True)
    saver = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SAVER, str(tmp_path)],
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True},
    )
    counts = []
    with saver:
        for _ in range(15):
            print(random.uniform(0.0, 0.05), file=saver.stdin, flush=True)
            assert saver.stdout.readline() == "killed\n"
            for link in ("last", "best"):
                path = tmp_path / "checkpoints" / link
                loaded, manifest = checkpoint.load(path, state(0))
                assert_identical(loaded, state(manifest["loop"]["count"]))
            assert common_step([tmp_path]) in checkpoint.available_steps(tmp_path)[-1:]
            counts.append(checkpoint.load_manifest(tmp_path)["loop"]["count"])
        saver.stdin.close()
    assert saver.returncode == 0
    assert counts == sorted(set(counts))
    save(tmp_path, 10**6)
    assert [name for name in names(tmp_path) if name.startswith(".tmp")] == []
