"""Trading runs that were killed and resumed, discrete by PPO and continuous by DDPG with its buffer."""

import json
import signal

import polars as pl
import pytest
from proxima.run.data import generate_for
from resume import Case, check_same, latest
from scenario_files import message
from tiny import budget, read, run_main, stop_at_row, tensors_of

from proxima import resume_experiment, run_multiple_experiments
from proxima.domains.trading.synthetic import generate
from proxima.scenario import load
from proxima.train import checkpoint

pytestmark = pytest.mark.optimized

STEPS, STOPPED = 2000, 700
OFTEN = ("env.max_steps_per_episode=32", "evaluation.eval_frequency=1", "checkpoint.frequency=1")


def case(name: str) -> Case:
    """A small scenario that is evaluated and saved all the time; its prices are written."""
    settings = (*budget(name), *OFTEN, f"training.max_steps={STEPS}", "seed=3")
    generate_for(load(name, settings))
    return Case(name, *settings)


@pytest.mark.parametrize(("name", "steps_a_row"), [("sine_wave", 64), ("sine_wave_ddpg", 16)])
def test_a_killed_run_ends_as_if_it_had_not_been(name, steps_a_row, workdir, tmp_path_factory):
    trading = case(name)
    metrics = f"logs/{name}/latest/trial_0/metrics.jsonl"
    rows = STOPPED // steps_a_row
    said = stop_at_row(trading.command(), workdir, metrics, rows, signal.SIGKILL)
    assert said.code == -signal.SIGKILL
    run = latest(workdir, trading)
    step = checkpoint.common_step([run / "trial_0"])
    assert STOPPED - 2 * steps_a_row <= step < STEPS
    resume_experiment(name)

    whole = trading.uninterrupted(tmp_path_factory.mktemp("whole"))
    check_same(run, whole)
    found, expected = (read(each / "summary.json")["trading"] for each in (run, whole))
    assert found == expected and found["aggregate"]["test"]["log_return"]["n"] == 1
    for path in (*run.glob("rollouts/*"), *run.glob("trial_0/rollouts/*")):
        assert path.read_bytes() == (whole / path.relative_to(run)).read_bytes()
    if name == "sine_wave_ddpg":
        tensors = tensors_of(run / "trial_0")
        assert step > 300 == tensors["learner.replay.size"], "the ring was full when it was killed"


def test_a_run_whose_prices_are_gone_says_what_makes_them(workdir, capsys, monkeypatch):
    trading = case("sine_wave")
    metrics = "logs/sine_wave/latest/trial_0/metrics.jsonl"
    stop_at_row(trading.command(), workdir, metrics, 3, signal.SIGKILL)
    prices = workdir / "data/raw/synthetic/sine_wave.parquet"
    prices.unlink()
    said = run_main(["resume", "sine_wave"], capsys, monkeypatch)
    assert said.code == 1 and "Traceback" not in said.err
    assert "no such file; make it with `proxima generate-data --scenario sine_wave`" in said.err


def stop_at_once(report):
    raise KeyboardInterrupt


def stopped_run(*settings: str) -> None:
    """A run of one chunk that was saved and then interrupted."""
    scenario = load("sine_wave", [*budget("sine_wave"), *OFTEN, *settings])
    with pytest.raises(KeyboardInterrupt):
        run_multiple_experiments(scenario, callback=stop_at_once)


OWN = ("data.pattern=null", "data.params={}", "data.path=prices.parquet")


def test_a_run_is_not_resumed_on_other_prices(workdir):
    prices = generate("sine_wave", 1000, 0, {})
    prices.write_parquet("prices.parquet")
    stopped_run(*OWN)
    state = (
        workdir / "logs/sine_wave/latest/trial_0/checkpoints/last/state.safetensors"
    ).read_bytes()

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
    again = workdir / "logs/sine_wave/latest/trial_0/checkpoints/last/state.safetensors"
    assert again.read_bytes() == state, "nothing was touched"

    prices.write_parquet("prices.parquet", compression="uncompressed")  # the same prices
    assert resume_experiment("sine_wave")["trials"][0]["stopped"] == "budget"


def test_a_run_is_not_resumed_on_synthetic_prices_that_were_tampered_with(workdir):
    path = generate_for(load("sine_wave", budget("sine_wave")))
    stopped_run()
    metadata = pl.read_parquet_metadata(path)
    changed = pl.read_parquet(path).with_columns(volume=pl.col("volume") + 1.0)
    changed.write_parquet(path, metadata={"proxima": metadata["proxima"]})
    told = message(resume_experiment, "sine_wave")
    assert told.startswith("data/raw/synthetic/sine_wave.parquet: has changed since")


def test_features_that_come_out_otherwise_are_said(workdir, capsys, monkeypatch):
    generate_for(load("sine_wave", budget("sine_wave")))
    stopped_run()
    info = workdir / "logs/sine_wave/latest/run.json"
    content = read(info)
    info.write_text(json.dumps(content | {"data": content["data"] | {"features_sha256": "other"}}))
    said = run_main(["resume", "sine_wave"], capsys, monkeypatch)
    assert said.code == 0 and "The features come out otherwise than when the run was" in said.out


def test_a_run_of_before_there_were_fingerprints_is_resumed(workdir):
    generate_for(load("sine_wave", budget("sine_wave")))
    stopped_run()
    info = workdir / "logs/sine_wave/latest/run.json"
    content = read(info)
    del content["data"]
    info.write_text(json.dumps(content))
    assert resume_experiment("sine_wave")["trials"][0]["stopped"] == "budget"
