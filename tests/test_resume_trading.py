"""Trading runs that were killed and resumed, discrete by PPO and continuous by DDPG with its buffer."""

import signal

import pytest
from test_resume import Case, check_same, latest
from tiny import budget, read, run_main, stop_at_row, tensors_of

from proxima import resume_experiment
from proxima.experiment.data import generate_for
from proxima.scenario import load
from proxima.train import checkpoint

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
