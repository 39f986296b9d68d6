"""Runs that were killed or stopped, and resumed: they end bit for bit as if nothing had happened."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from proxima.run.recording import silent
from resume import Case, check_same, latest
from tiny import (
    BUDGET,
    TINY,
    count_rows,
    equal_bits,
    flags,
    read,
    rows_of,
    run_main,
    run_process,
    stop_at_row,
    tensors_of,
)

from proxima import resume_experiment, run_multiple_experiments
from proxima.scenario import load
from proxima.train import checkpoint

pytestmark = pytest.mark.optimized

LONG = ("training.max_steps=8192", "seed=3")  # 128 chunks


ALONE = Case("cartpole", *TINY, *LONG, "checkpoint.frequency=1")
RARE = Case("cartpole", *TINY, *LONG, "checkpoint.frequency=60")
THREE = Case(
    "cartpole", *TINY, *LONG, "training.max_steps=4096", "trials=3", "checkpoint.frequency=3"
)
HOST = Case(
    "cartpole_host",
    *(*BUDGET, "training.max_steps=4096", "seed=3"),
    "checkpoint.frequency=7",
)


def test_killed_again_and_again_a_run_ends_as_if_it_had_not_been(workdir, whole):
    metrics = "logs/cartpole/latest/trial_0/metrics.jsonl"
    said = stop_at_row(ALONE.command(), workdir, metrics, 15, signal.SIGKILL)
    assert said.code == -signal.SIGKILL
    run = latest(workdir, ALONE)
    before = count_rows(run / "trial_0" / "metrics.jsonl")
    said = stop_at_row(["resume", "cartpole"], workdir, metrics, 80, signal.SIGKILL)
    assert said.code == -signal.SIGKILL
    step = int(re.search(r"at step ([\d,]+)", said.out)[1].replace(",", ""))
    assert step >= (before - 2) * 64, "it went on from about where it was killed"
    assert read(run / "run.json")["status"] == "running"
    summary = resume_experiment("cartpole")
    assert Path(summary["paths"]["run"]).resolve() == run
    check_same(run, whole(ALONE))


def test_three_trials_killed_end_as_if_they_had_not_been(workdir, whole):
    # all in processes of their own, which lay the trials out on the devices in the same way
    metrics = "logs/cartpole/latest/trial_1/metrics.jsonl"
    stop_at_row(THREE.command(), workdir, metrics, 25, signal.SIGKILL)
    killed = latest(workdir, THREE)
    resumed = run_process(["resume", "cartpole"], workdir)
    assert resumed.code == 0, resumed.err
    assert "another way" not in resumed.out
    assert run_process(THREE.command(), workdir).code == 0
    assert latest(workdir, THREE) != killed
    check_same(killed, latest(workdir, THREE), trials=3)


def test_a_gymnasium_run_killed_ends_as_if_it_had_not_been(workdir, whole):
    metrics = "logs/cartpole_host/latest/trial_0/metrics.jsonl"
    stop_at_row(HOST.command(), workdir, metrics, 25, signal.SIGKILL)
    run = latest(workdir, HOST)
    step = checkpoint.common_step([run / "trial_0"])
    assert step % (7 * 64) == 0 and 0 < step < 4096
    resume_experiment("cartpole_host")
    check_same(run, whole(HOST))


def test_killed_before_the_first_checkpoint_a_run_starts_again(workdir, whole, capsys, monkeypatch):
    metrics = "logs/cartpole/latest/trial_0/metrics.jsonl"
    settings = flags("evaluation.eval_frequency=1000000")  # a first evaluation would save the best
    stop_at_row([*RARE.command(), *settings], workdir, metrics, 3, signal.SIGKILL)
    run = latest(workdir, RARE)
    assert 3 <= count_rows(run / "trial_0" / "metrics.jsonl") < 60
    assert checkpoint.available_steps(run / "trial_0") == []
    said = run_main(["resume", run.name], capsys, monkeypatch)
    assert said.code == 0
    assert "starting from the beginning" in said.out
    rows, expected = rows_of(run / "trial_0"), rows_of(whole(ALONE) / "trial_0")
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    assert equal_bits(tensors_of(run / "trial_0"), tensors_of(whole(ALONE) / "trial_0"))


def test_ctrl_c_saves_says_how_to_go_on_and_leaves_with_130(workdir, whole, capsys, monkeypatch):
    elsewhere = "my runs"
    metrics = f"{elsewhere}/cartpole/latest/trial_0/metrics.jsonl"
    arguments = [*RARE.command(), "--set", f"output_directory={elsewhere}", "--json"]
    said = stop_at_row(arguments, workdir, metrics, 70, signal.SIGINT)
    assert said.code == 130, said
    assert said.out == "" and "Traceback" not in said.err

    run = (workdir / elsewhere / "cartpole" / "latest").resolve()
    assert read(run / "run.json")["status"] == "interrupted"
    rows = rows_of(run / "trial_0")
    assert f"Saved at step {rows[-1]['step']:,}" in said.err, "to the last chunk, not the last due"
    assert rows[-1]["step"] < 8192
    told = re.search(r"proxima (resume .+)", said.err)[1]
    said = run_main(shlex.split(told), capsys, monkeypatch)
    assert said.code == 0, said.err
    assert f"Resuming {run.name} at step {rows[-1]['step']:,}" in said.out
    check_same(run, whole(RARE))


INTERRUPTED_EARLY = """
    import os, signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even under nohup
    from proxima.cli import main
    from proxima.train.compiled import program as compiled
    compiled._init = lambda *arguments: os.kill(os.getpid(), signal.SIGINT)
    main()
"""


def test_ctrl_c_before_training_says_how_to_go_on_too(workdir):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED_EARLY), *ALONE.command()],
        cwd=workdir,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    run = latest(workdir, ALONE)
    assert done.returncode == 130
    assert f"proxima resume {run.name}" in done.stdout and "Traceback" not in done.stderr
    assert read(run / "run.json")["status"] == "interrupted"


@pytest.fixture
def short(workdir):
    """A finished run in a working directory of its own."""
    scenario = load("cartpole", [*TINY, "training.max_steps=640", "checkpoint.frequency=2"])
    return Path(run_multiple_experiments(scenario)["paths"]["run"]).resolve()


def set_back(run: Path, step: int) -> None:
    """Make a finished run look as if it had been killed after the checkpoint of that step."""
    (run / "summary.json").unlink()
    info = read(run / "run.json")
    (run / "run.json").write_text(json.dumps(info | {"status": "running"}))
    for directory in run.glob("trial_*"):
        (directory / "results.json").unlink()
        for later in checkpoint.available_steps(directory):
            if later > step:
                for path in checkpoint.at_step(directory, later).iterdir():
                    path.unlink()
                checkpoint.at_step(directory, later).rmdir()


def test_a_finished_run_is_not_run_again(short, capsys, monkeypatch):
    before = read(short / "summary.json")
    times = {path: path.stat().st_mtime_ns for path in short.rglob("*") if path.is_file()}
    said = run_main(["resume", "cartpole"], capsys, monkeypatch)
    assert said.code == 0
    assert "is finished; there is nothing to resume" in said.out
    said = run_main(["resume", "cartpole", "--json"], capsys, monkeypatch)
    assert said.code == 0 and read(short / "summary.json") == before
    assert "is finished" in said.err
    assert {path: path.stat().st_mtime_ns for path in short.rglob("*") if path.is_file()} == times


def test_a_run_is_found_by_experiment_run_id_and_path(short, capsys, monkeypatch):
    tensors = tensors_of(short / "trial_0")
    relative = short.relative_to(Path.cwd())
    for reference in ("cartpole", short.name, str(short), str(relative), "logs/cartpole"):
        set_back(short, 512)
        said = run_main(["resume", reference], capsys, monkeypatch)
        assert said.code == 0, said.err
        assert f"Resuming {short.name} at step 512" in said.out
        assert read(short / "run.json")["status"] == "finished"
        assert equal_bits(tensors_of(short / "trial_0"), tensors)


def test_a_line_of_metrics_cut_short_is_written_again(short):
    expected = rows_of(short / "trial_0")
    set_back(short, 512)
    metrics = short / "trial_0" / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:8]) + lines[8][:40])
    resume_experiment("cartpole")
    assert rows_of(short / "trial_0") == expected


def test_a_checkpoint_of_another_shape_is_refused_in_words(short, capsys, monkeypatch):
    set_back(short, 512)
    tensors = tensors_of(short / "trial_0", "step_000000000512")
    scenario = short / "scenario.yaml"
    text = scenario.read_text()
    assert "hidden:\n  - 8\n" in text
    scenario.write_text(text.replace("hidden:\n  - 8\n", "hidden:\n  - 16\n"))
    said = run_main(["resume", "cartpole"], capsys, monkeypatch)
    assert said.code == 1
    assert "another shape" in said.err and "start a new run" in said.err
    assert re.search(r"float32 \[4, 8\] in the checkpoint and float32 \[4, 16\] here", said.err)
    assert "Traceback" not in said.err
    assert equal_bits(tensors_of(short / "trial_0", "step_000000000512"), tensors)

    scenario.write_text(text)
    assert run_main(["resume", "cartpole"], capsys, monkeypatch).code == 0


def test_a_resume_on_other_devices_says_that_bits_may_differ(short):
    set_back(short, 512)
    manifest = checkpoint.at_step(short / "trial_0", 512) / "manifest.json"
    layout = {"trial_devices": 1, "data_devices": 2}
    manifest.write_text(json.dumps(read(manifest) | {"layout": layout}))
    said = []
    resume_experiment("cartpole", display=silent()._replace(say=said.append))
    assert any("devices in another way" in text for text in said)


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(short):
    tensors = tensors_of(short / "trial_0")
    set_back(short, 640)
    state = checkpoint.at_step(short / "trial_0", 640) / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    said = []
    resume_experiment("cartpole", display=silent()._replace(say=said.append))
    assert any("at step 512" in text for text in said)
    assert equal_bits(tensors_of(short / "trial_0"), tensors)
