"""What `resume` says and refuses: where it goes on, what it goes on from, and what has changed meanwhile."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest
from checkpoints import edit_manifest
from resume import Case, check_same, latest
from scenario_files import message
from tiny import (
    BUDGET,
    SIZES,
    SMALL,
    TINY,
    budget,
    count_rows,
    equal_bits,
    flags,
    read,
    rows_of,
    run_main,
    stop_at_row,
    tensors_of,
)

from proxima import ProximaError, resume_experiment, run_multiple_experiments
from proxima.build import domain_of
from proxima.domains.trading.synthetic import generate
from proxima.run.display import silent
from proxima.scenario import load
from proxima.train import checkpoint

RARE = Case("cartpole", *TINY, "training.max_steps=4096", "seed=3", "checkpoint.frequency=60")
EARLY = "evaluation.eval_frequency=1000000"  # a first evaluation would save the best


def interrupt(view):
    raise KeyboardInterrupt


def stopped_run(name: str, *settings: str, callback=interrupt) -> Path:
    """The directory of a run that was interrupted, after a chunk unless the callback says otherwise."""
    with pytest.raises(KeyboardInterrupt):
        run_multiple_experiments(load(name, settings), callback=callback)
    return Path("logs", name, "latest").resolve()


def test_killed_before_the_first_checkpoint_a_run_starts_again(workdir, whole):
    metrics = "logs/cartpole/latest/trial_0/metrics.jsonl"
    stop_at_row([*RARE.command(), "--set", EARLY], workdir, metrics, 3, signal.SIGKILL)
    run = latest(workdir, RARE)
    assert 3 <= count_rows(run / "trial_0" / "metrics.jsonl") < 60
    assert checkpoint.available_steps(run / "trial_0") == []
    said: list[str] = []
    resume_experiment(run.name, display=silent()._replace(say=said.append))
    assert said == ["No checkpoint yet: starting from the beginning."]
    rows, expected = rows_of(run / "trial_0"), rows_of(whole(RARE) / "trial_0")
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    assert equal_bits(tensors_of(run / "trial_0"), tensors_of(whole(RARE) / "trial_0"))


def test_ctrl_c_saves_says_how_to_go_on_and_leaves_with_130(workdir, whole, capsys, monkeypatch):
    elsewhere = "my runs"
    metrics = f"{elsewhere}/cartpole/latest/trial_0/metrics.jsonl"
    arguments = [*RARE.command(), "--set", f"output_directory={elsewhere}", "--json"]
    said = stop_at_row(arguments, workdir, metrics, 20, signal.SIGINT)
    assert said.code == 130, said
    assert said.out == "" and "Traceback" not in said.err

    run = (workdir / elsewhere / "cartpole" / "latest").resolve()
    assert read(run / "run.json")["status"] == "interrupted"
    rows = rows_of(run / "trial_0")
    assert f"Saved at step {rows[-1]['step']:,}" in said.err, "to the last chunk, not the last due"
    assert rows[-1]["step"] < 4096
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
    compiled.lay_out = lambda *arguments, **named: os.kill(os.getpid(), signal.SIGINT)
    main()
"""


def test_ctrl_c_before_training_says_how_to_go_on_too(workdir):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED_EARLY), *RARE.command()],
        cwd=workdir,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    run = latest(workdir, RARE)
    assert done.returncode == 130
    assert f"proxima resume {run.name}" in done.stdout and "Traceback" not in done.stderr
    assert read(run / "run.json")["status"] == "interrupted"


def test_ctrl_c_in_the_first_chunk_is_resumed_after_it(workdir):
    def press(view):
        os.kill(os.getpid(), signal.SIGINT)

    run = stopped_run("cartpole", *TINY, "training.max_steps=640", callback=press)
    resume_experiment("cartpole")
    assert [row["step"] for row in rows_of(run / "trial_0")] == [64 * k for k in range(1, 11)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, to be copied."""
    directory = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        settings = [*TINY, "training.max_steps=640", "checkpoint.frequency=2"]
        run_multiple_experiments(load("cartpole", settings))
    return directory


@pytest.fixture
def short(workdir, finished):
    """A finished run in a working directory of its own."""
    shutil.copytree(finished / "logs", workdir / "logs", symlinks=True)
    return (workdir / "logs" / "cartpole" / "latest").resolve()


def set_back(run: Path, step: int) -> None:
    """Make a finished run look as if it had been killed after the checkpoint of that step."""
    (run / "summary.json").unlink()
    info = read(run / "run.json")
    (run / "run.json").write_text(json.dumps(info | {"status": "running"}))
    for directory in run.glob("trial_*"):
        (directory / "results.json").unlink()
        last = directory / "checkpoints" / "last"
        last.unlink()
        last.symlink_to(checkpoint.at_step(directory, step).name)
        for later in checkpoint.available_steps(directory):
            if later > step:
                shutil.rmtree(checkpoint.at_step(directory, later))


def test_a_finished_run_is_not_run_again(short, capsys, monkeypatch):
    before = read(short / "summary.json")
    times = {path: path.stat().st_mtime_ns for path in short.rglob("*") if path.is_file()}
    said = run_main(["resume", "cartpole"], capsys, monkeypatch)
    assert said.code == 0
    assert "is finished; there is nothing to resume" in said.out
    said = run_main(["resume", "cartpole", "--json"], capsys, monkeypatch)
    assert said.code == 0 and json.loads(said.out) == before
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
    text = (short / "scenario.yaml").read_text()
    said = run_main(["resume", "cartpole", "--set", "network.hidden=[16]"], capsys, monkeypatch)
    assert said.code == 1
    assert "another shape" in said.err and "start a new run" in said.err
    assert re.search(r"float32 \[4, 8\] in the checkpoint and float32 \[4, 16\] here", said.err)
    assert "Traceback" not in said.err
    assert equal_bits(tensors_of(short / "trial_0", "step_000000000512"), tensors)

    (short / "scenario.yaml").write_text(text)
    assert run_main(["resume", "cartpole"], capsys, monkeypatch).code == 0


def test_a_scenario_that_was_edited_is_refused_and_said_how_to_mean_it(short, capsys, monkeypatch):
    set_back(short, 512)
    scenario = short / "scenario.yaml"
    text = scenario.read_text()
    assert "gamma: 0.99" in text
    scenario.write_text(text.replace("gamma: 0.99", "gamma: 0.9"))
    said = run_main(["resume", "cartpole"], capsys, monkeypatch)
    assert said.code == 1 and "was edited since the run was started: algorithm.gamma" in said.err
    assert f"proxima resume {short.name} --set algorithm.gamma=VALUE" in said.err

    scenario.write_text(text)
    said = run_main(["resume", "cartpole", "--set", "algorithm.gamma=0.9"], capsys, monkeypatch)
    assert said.code == 0 and "from step 512 on: algorithm.gamma 0.99 → 0.9." in said.out
    assert "gamma: 0.9\n" in scenario.read_text()


def test_a_ring_of_another_size_is_refused_in_words(workdir):
    settings = (*SMALL, *SIZES["ddpg"], "checkpoint.frequency=1")
    stopped_run("pendulum_td3", *settings)
    other = ["algorithm.buffer_size=500"]
    told = message(lambda: resume_experiment("pendulum_td3", changes=other))
    assert "another shape" in told and "replay" in told


def test_a_resume_on_other_devices_says_that_bits_may_differ(short):
    set_back(short, 512)
    manifest = checkpoint.at_step(short / "trial_0", 512) / "manifest.json"
    layout = {"trial_devices": 1, "data_devices": 2}
    edit_manifest(manifest.parent, layout=layout)
    said: list[str] = []
    resume_experiment("cartpole", display=silent()._replace(say=said.append))
    assert any("devices in another way" in text for text in said)


@pytest.mark.parametrize("name", ["state.safetensors", "manifest.json"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(short, name):
    tensors = tensors_of(short / "trial_0")
    set_back(short, 640)
    damaged = checkpoint.at_step(short / "trial_0", 640) / name
    damaged.write_bytes(damaged.read_bytes()[:-100])
    said: list[str] = []
    resume_experiment("cartpole", display=silent()._replace(say=said.append))
    assert any("at step 512" in text for text in said)
    assert equal_bits(tensors_of(short / "trial_0"), tensors)


@pytest.mark.parametrize("loop", [{}, {"chunks": 8, "book": {}}])
def test_a_manifest_whose_loop_is_damaged_is_named_and_nothing_is_touched(short, loop):
    set_back(short, 640)
    rows = rows_of(short / "trial_0")
    manifest = checkpoint.at_step(short / "trial_0", 640) / "manifest.json"
    edit_manifest(manifest.parent, loop=loop)
    assert message(resume_experiment, "cartpole").startswith(f"{manifest}: is damaged: loop.")
    assert rows_of(short / "trial_0") == rows
    shutil.rmtree(manifest.parent)
    assert resume_experiment("cartpole")["trials"][0]["environment_steps"] == 640


def test_discrete_actions_are_refused_before_anything_is_written(workdir, capsys, monkeypatch):
    settings = flags("env.name=CartPole-v1", "tracking.enabled=false")
    said = run_main(["experiment", "--scenario", "pendulum_ddpg", *settings], capsys, monkeypatch)
    assert said.code != 0
    assert "algorithm.name: ddpg needs continuous actions" in said.err
    assert "Traceback" not in said.err and not list(workdir.iterdir())


def test_spo_on_host_environments_is_refused_in_words(workdir, capsys, monkeypatch):
    settings = flags("env.backend=gymnasium", "tracking.enabled=false")
    said = run_main(["experiment", "--scenario", "cartpole_spo", *settings], capsys, monkeypatch)
    assert said.code != 0
    assert "algorithm.name: spo searches copies of the environment's state" in said.err
    assert "gymnasium has none to copy" in said.err
    assert "Traceback" not in said.err


FIELDS = Case(
    "cartpole_host",
    *(*BUDGET, "training.max_steps=1024", "seed=3", "env.groups=2", "checkpoint.frequency=3"),
    "env.name=known_envs:TestMasked-v0",
    "env.max_steps_per_episode=null",
    "env.workers=2",
    "algorithm.normalize_observations=true",
)


def workers() -> list[int]:
    """The worker processes of this one."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
            command = (stat.parent / "cmdline").read_text()
        except OSError:
            continue
        if int(parent) == os.getpid() and "control.worker" in command:
            found.append(int(stat.parent.name))
    return sorted(found)


def kill_once(at_chunk: int):
    """A callback that kills a worker after so many chunks."""
    chunks = 0

    def callback(view) -> None:
        nonlocal chunks
        chunks += 1
        if chunks == at_chunk:
            os.kill(workers()[0], signal.SIGKILL)

    return callback


def test_a_dead_worker_stops_the_run_which_resumes_from_its_checkpoint(workdir, whole):
    scenario, said = load(FIELDS.name, FIELDS.settings), []
    display = silent()._replace(say=said.append)
    with pytest.raises(ProximaError, match=r"worker 0 of 2.*killed by SIGKILL"):
        run_multiple_experiments(scenario, callback=kill_once(7), display=display)
    run = latest(workdir, FIELDS)
    assert read(run / "run.json")["status"] == "failed"
    assert any("Saved at step 384. To go on, once" in told for told in said), said
    assert not workers()
    resume_experiment(FIELDS.name)
    check_same(run, whole(FIELDS))


def test_a_dead_worker_is_replaced_and_the_run_goes_on(workdir):
    said: list[str] = []
    scenario = load(FIELDS.name, [*FIELDS.settings, "env.on_worker_failure=restart"])
    display = silent()._replace(say=said.append)
    summary = run_multiple_experiments(scenario, callback=kill_once(7), display=display)
    told = [each for each in said if "worker" in each]
    assert len(told) == 1 and "killed by SIGKILL" in told[0] and "started again" in told[0]
    assert summary["trials"][0]["environment_steps"] == 1024
    assert not workers()


TRADING = (
    *budget("sine_wave"),
    "env.max_steps_per_episode=32",
    "training.max_steps=256",
    "checkpoint.frequency=1",
)
OWN = ("data.pattern=null", "data.params={}", "data.path=prices.parquet")


@pytest.fixture
def prices(workdir) -> Path:
    """The prices of a trading run that was interrupted."""
    scenario = load("sine_wave", TRADING)
    path = domain_of(scenario).data.generate(scenario, Path())
    stopped_run("sine_wave", *TRADING)
    return path


def test_a_run_whose_prices_are_gone_says_what_makes_them(prices, capsys, monkeypatch):
    prices.unlink()
    said = run_main(["resume", "sine_wave"], capsys, monkeypatch)
    assert said.code == 1 and "Traceback" not in said.err
    assert "no such file; make it with `proxima generate-data --scenario sine_wave`" in said.err


def test_a_run_is_not_resumed_on_other_prices(workdir):
    prices = generate("sine_wave", 1000, 0, {})
    prices.write_parquet("prices.parquet")
    run = stopped_run("sine_wave", *TRADING, *OWN)
    state = (run / "trial_0/checkpoints/last/state.safetensors").read_bytes()

    generate("sine_wave", 1100, 0, {}).write_parquet("prices.parquet")
    assert message(resume_experiment, "sine_wave") == (
        "prices.parquet: has changed since the run was started: it had 1,000 rows until "
        f"{prices['time'][-1]:%Y-%m-%d}, now it has 1,100 until "
        f"{generate('sine_wave', 1100, 0, {})['time'][-1]:%Y-%m-%d}; "
        "put the old file back to resume, or start a new run"
    )
    prices.with_columns(volume=pl.col("volume") * 2).write_parquet("prices.parquet")
    assert "has as many rows as then, but other values in them" in message(
        resume_experiment, "sine_wave"
    )
    again = (run / "trial_0/checkpoints/last/state.safetensors").read_bytes()
    assert again == state, "nothing was touched"

    prices.write_parquet("prices.parquet", compression="uncompressed")  # the same prices
    assert resume_experiment("sine_wave")["trials"][0]["stopped"] == "budget"


def test_a_run_is_not_resumed_on_synthetic_prices_that_were_tampered_with(prices):
    metadata = pl.read_parquet_metadata(prices)
    changed = pl.read_parquet(prices).with_columns(volume=pl.col("volume") + 1.0)
    changed.write_parquet(prices, metadata={"proxima": metadata["proxima"]})
    told = message(resume_experiment, "sine_wave")
    assert told.startswith("data/raw/synthetic/sine_wave.parquet: has changed since")


@pytest.mark.parametrize("noted", ["other features", "nothing"])
def test_features_that_come_out_otherwise_are_said(prices, noted):
    info = Path("logs/sine_wave/latest/run.json")
    content = read(info)
    data = None if noted == "nothing" else content["data"] | {"features_sha256": "other"}
    info.write_text(json.dumps(content | {"data": data}))
    said: list[str] = []
    resumed = resume_experiment("sine_wave", display=silent()._replace(say=said.append))
    assert resumed["trials"][0]["stopped"] == "budget"
    told = any("The features come out otherwise than when the run was" in text for text in said)
    assert told == (data is not None)
