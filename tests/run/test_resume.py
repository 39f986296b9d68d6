"""Every kind of run, killed, stopped or killed while it finishes: it ends as if nothing had happened."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import texts
from resume import (
    KINDS,
    Undisturbed,
    check_killed_in_training,
    check_same,
    latest,
)
from tiny import read, run_process, stop_when, tensors_of

from proxima import load, resume_experiment, run_multiple_experiments
from proxima.domains import judging
from proxima.run.display import silent

every_kind = pytest.mark.parametrize("name", KINDS)
# A kill takes each kind back to a checkpoint. How a run hears Ctrl-C depends on what steps its environments,
# how it finishes on its domain; the learner is the same tensors to both.
each_way_of_stepping = pytest.mark.parametrize(
    "name",
    [
        "ppo",
        "ppo with memory, three trials",
        "gymnasium",
        "envpool, with memory",
        "fields in workers",
    ],  # domains/language/test_runs.py stops its stages
)
each_way_of_finishing = pytest.mark.parametrize(
    "name", ["ppo with memory, three trials", "gymnasium", "trading", "packing", "language"]
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Undisturbed(tmp_path_factory.mktemp)


@pytest.fixture(autouse=True)
def own_modules(monkeypatch):
    """Processes find the environments and judges of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(texts.__file__).parent), prepend=os.pathsep)


@every_kind
def test_killed_while_it_trains(name, workdir, whole):
    check_killed_in_training(name, workdir, whole)


@each_way_of_stepping
def test_stopped_by_ctrl_c(name, workdir, whole):
    this = KINDS[name]
    this.prepare(workdir)
    chunks, stopped_at, heard = 0, 0, []

    def press(view):
        nonlocal chunks, stopped_at
        chunks += view["stage"] == this.stage
        if chunks == this.rows[-1]:
            stopped_at = view["step"]
            os.kill(os.getpid(), signal.SIGINT)

    told: list[str] = []
    scenario = load(this.case.name, this.case.settings)
    with pytest.raises(KeyboardInterrupt):
        run_multiple_experiments(
            scenario, callback=press, display=silent()._replace(say=told.append)
        )
    run = latest(workdir, this.case)
    assert read(run / "run.json")["status"] == "interrupted"
    assert f"proxima resume {run.name}" in told[-1]
    resume_experiment(
        this.case.name, callback=lambda view: heard.append((view["stage"], view["step"]))
    )
    stage, step = heard[0]
    assert stage == this.stage and (step > stopped_at or not this.exact)
    check_same(run, whole(name))


class Killed(BaseException):
    """What the process died of."""


@each_way_of_finishing
def test_killed_while_it_finishes(name, workdir, whole):
    this = KINDS[name]
    this.prepare(workdir)

    def die(what: str, done: int, total: int) -> None:
        if what == "drawing all trials":
            raise Killed

    with pytest.raises(Killed):
        scenario = load(this.case.name, this.case.settings)
        run_multiple_experiments(scenario, display=silent()._replace(working=die))
    run = latest(workdir, this.case)
    exported = {path: path.stat().st_mtime_ns for path in run.glob("trial_*/policy/*")}
    assert not (run / "summary.json").exists()
    trained = []
    resume_experiment(this.case.name, callback=trained.append)
    assert trained == [], "nothing is trained again"
    assert {path: path.stat().st_mtime_ns for path in run.glob("trial_*/policy/*")} == exported
    check_same(run, whole(name))


def test_a_process_killed_while_it_finishes(workdir, whole):
    three = KINDS["ppo with memory, three trials"]
    policy = workdir / "logs" / three.case.name / "latest" / "trial_1" / "policy"
    said = stop_when(three.case.command(), workdir, policy.exists, signal.SIGKILL)
    assert said.code == -signal.SIGKILL
    run = latest(workdir, three.case)
    resumed = run_process(["resume", three.case.name], workdir)
    assert resumed.code == 0, resumed.err
    check_same(run, whole("ppo with memory, three trials"))


def test_policies_that_were_written_are_not_exported_again(workdir, whole, monkeypatch):
    three, write, written = KINDS["ppo with memory, three trials"], judging.write_policy, []

    def noted(exported, weights, description, directory):
        if len(written) == 2:
            written.append(None)
            raise Killed
        write(exported, weights, description, directory)
        written.append(directory.parent.name)

    monkeypatch.setattr(judging, "write_policy", noted)
    with pytest.raises(Killed):
        run_multiple_experiments(load(three.case.name, three.case.settings))
    resume_experiment(three.case.name)
    assert written == ["trial_0", "trial_1", None, "trial_2"]
    check_same(latest(workdir, three.case), whole("ppo with memory, three trials"))


def test_a_ring_of_steps_was_overwritten_from_its_start(whole):
    tensors = tensors_of(whole("td3") / "trial_0")
    assert tensors["learner.replay.rows"].shape[0] == 600
    assert tensors["learner.replay.size"] == 600
    assert tensors["learner.replay.position"] == 1600 % 600
    assert np.abs(tensors["learner.ou_path.value"]).max() > 0
    # a gradient step for each environment step since the warm-up, and an actor's for every second
    assert tensors["learner.nets.gradient_steps"] == 1600 - 96
    assert tensors["learner.nets.actor.optimizer.count"] == (1600 - 96) // 2
    assert tensors_of(whole("trading") / "trial_0")["learner.replay.size"] == 300


def test_a_ring_of_sequences_was_overwritten_from_its_start(whole):
    tensors = tensors_of(whole("spo") / "trial_0")
    assert tensors["learner.replay.rows"].shape[0] == 40
    assert tensors["learner.replay.size"] == 40
    assert tensors["learner.replay.position"] == 1600 // 8 % 40
    updates = 1600 // (4 * 8)
    assert (
        tensors["learner.optimizer.count"] == tensors["learner.dual_optimizer.count"] == 2 * updates
    )
    assert np.all(tensors["learner.duals"] != 0.0), "both have moved"


def test_trading_is_judged_on_the_test_split(whole):
    details = read(whole("trading") / "summary.json")["details"]
    assert details["aggregate"]["test"]["log_return"]["n"] == 1
    assert list(whole("trading").rglob("*.parquet"))
