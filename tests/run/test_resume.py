"""Every kind of run, killed, stopped or killed while it finishes: it ends as if nothing had happened."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import texts
from resume import Case, check_same, latest
from tiny import (
    BUDGET,
    ROWS,
    SIZES,
    SMALL,
    TINY,
    read,
    run_process,
    stop_at_row,
    stop_when,
    tensors_of,
    without_hidden,
)

from proxima import load, resume_experiment, run_multiple_experiments
from proxima.build import domain_of
from proxima.domains import judging
from proxima.run.display import silent
from proxima.train import checkpoint
from proxima.train.devices import wanted_devices

pytestmark = pytest.mark.optimized


class Kind(NamedTuple):
    """A kind of run, and when it is stopped."""

    case: Case
    steps: int  # of the whole run, or of the stage in which it is stopped
    rows: tuple[int, ...]  # of metrics after which it is killed, time after time
    stage: str = ""
    saves_every: int = 1  # steps; what a run resumes from is a multiple
    begins_at: int = 1  # the kill must come after that step
    prepare: Callable[[Path], object] = lambda directory: None  # data in a working directory
    exact: bool = True  # resumes from any chunk, not only from saves that were due


def kind(name: str, steps: int, rows: tuple[int, ...], *settings: str, **more) -> Kind:
    return Kind(Case(name, *settings, f"training.max_steps={steps}", "seed=3"), steps, rows, **more)


def generate(directory: Path) -> None:
    scenario = load("sine_wave_ddpg", [ROWS])
    domain_of(scenario).data.generate(scenario, directory)


OFTEN, SELDOM = "checkpoint.frequency=1", "checkpoint.frequency=7"
PENDULUM = (
    *SMALL,
    *SIZES["ddpg"],
    "env.max_steps_per_episode=21",
    "algorithm.buffer_size=600",  # is overwritten from its start within the run
    "algorithm.warmup_steps=100",
    "algorithm.gradient_steps=null",
    "algorithm.normalize_observations=true",
    "algorithm.exploration=ou",
    "evaluation.eval_frequency=20",
)
FIELDS = (
    *BUDGET,
    SELDOM,
    "env.groups=2",
    "env.name=known_envs:TestMasked-v0",
    "env.max_steps_per_episode=null",
    "env.workers=2",
    "algorithm.normalize_observations=true",
)
PACKING = (
    *without_hidden(BUDGET),
    OFTEN,
    "env.params={max_num_items: 4, max_num_ems: 6}",
    "env.instances=8",
    "network={blocks: 1, heads: 2, width: 8}",
    "evaluation.eval_frequency=20",
)
LANGUAGE = tuple(f"{key}={json.dumps(value)}" for key, value in texts.TINY.items())
HOST = {"saves_every": 7 * 64, "exact": False}
KINDS = {
    "ppo": kind("cartpole", 4096, (15, 40), *TINY, OFTEN),
    "ppo, three trials": kind(
        "cartpole", 2048, (12,), *TINY, "trials=3", "checkpoint.frequency=3", saves_every=3 * 64
    ),
    "gymnasium": kind("cartpole_host", 2048, (12,), *BUDGET, SELDOM, **HOST),
    "envpool": kind("cartpole_envpool", 2048, (12,), *BUDGET, SELDOM, "env.groups=2", **HOST),
    "fields in workers": kind("cartpole_host", 2048, (12,), *FIELDS, **HOST),
    "td3": kind("pendulum_td3", 1600, (50,), *PENDULUM, OFTEN, begins_at=600),
    "td3, gymnasium": kind(
        *("pendulum_td3", 1600, (20,), *PENDULUM, SELDOM, "env.backend=gymnasium"),
        **(HOST | {"saves_every": 7 * 16}),
    ),
    "spo": kind(
        *("cartpole_spo", 1600, (25,), *SMALL, *SIZES["spo"], OFTEN),
        "algorithm.normalize_observations=true",
        begins_at=320,
    ),
    "trading": kind(
        *("sine_wave_ddpg", 1200, (40,), *SMALL, *SIZES["ddpg"], ROWS, OFTEN),
        *("env.max_steps_per_episode=32", "evaluation.eval_frequency=1"),
        begins_at=300,
        prepare=generate,
    ),
    "packing": kind("binpack_ppo", 1280, (4,), *PACKING),
    "language": Kind(
        Case("movie_critic", *LANGUAGE), 4, (3,), stage="ppo", prepare=texts.write_texts
    ),
}
every_kind = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs that nobody disturbed, each made once."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            directory = tmp_path_factory.mktemp("whole")
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(directory)
                KINDS[name].prepare(directory)
                made[name] = KINDS[name].case.uninterrupted(directory / "logs")
        return made[name]

    return get


@pytest.fixture(autouse=True)
def own_modules(monkeypatch):
    """Processes find the environments and judges of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(texts.__file__).parent))


@pytest.fixture(autouse=True)
def hears_ctrl_c():
    """Even where this process was started to ignore it, as under nohup."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@every_kind
def test_killed_while_it_trains(name, workdir, whole):
    this = KINDS[name]
    if name == "ppo, three trials" and wanted_devices(3, os.cpu_count() or 1) != 3:
        pytest.skip("processes of their own lay trials out otherwise than this one on this machine")
    this.prepare(workdir)
    metrics = f"logs/{this.case.name}/latest/trial_0/{this.stage}/metrics.jsonl"
    command = this.case.command()
    for rows in this.rows:
        said = stop_at_row(command, workdir, metrics, rows, signal.SIGKILL)
        assert said.code == -signal.SIGKILL
        command = ["resume", this.case.name]
    run = latest(workdir, this.case)
    assert read(run / "run.json")["status"] == "running"
    step = checkpoint.common_step([path / this.stage for path in run.glob("trial_*")])
    assert this.begins_at <= step < this.steps and step % this.saves_every == 0
    told: list[str] = []
    resume_experiment(this.case.name, display=silent()._replace(say=told.append))
    assert any("Resuming" in text and f" {step:,}." in text for text in told), told
    assert not any("another way" in text for text in told), told
    check_same(run, whole(name))


@every_kind
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


@every_kind
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
    three = KINDS["ppo, three trials"]
    if wanted_devices(3, os.cpu_count() or 1) != 3:
        pytest.skip("processes of their own lay trials out otherwise than this one on this machine")
    policy = workdir / "logs" / three.case.name / "latest" / "trial_1" / "policy"
    said = stop_when(three.case.command(), workdir, policy.exists, signal.SIGKILL)
    assert said.code == -signal.SIGKILL
    run = latest(workdir, three.case)
    resumed = run_process(["resume", three.case.name], workdir)
    assert resumed.code == 0, resumed.err
    check_same(run, whole("ppo, three trials"))


def test_policies_that_were_written_are_not_exported_again(workdir, whole, monkeypatch):
    three, write, written = KINDS["ppo, three trials"], judging.write_policy, []

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
    check_same(latest(workdir, three.case), whole("ppo, three trials"))


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
