"""Runs on EnvPool and on worker processes: killed and resumed, and with a worker that dies beneath them."""

import os
import signal
from pathlib import Path

import pytest
import tiny
from proxima.run.recording import silent
from resume import Case, check_same, latest
from tiny import BUDGET, read, stop_at_row

from proxima import resume_experiment, run_multiple_experiments
from proxima.core.errors import ProximaError
from proxima.scenario import load
from proxima.train import checkpoint

pytestmark = pytest.mark.optimized

SHORT = (*BUDGET, "training.max_steps=2048", "seed=3", "env.groups=2", "checkpoint.frequency=7")
ENVPOOL = Case("cartpole_envpool", *SHORT)
FIELDS = Case(
    "cartpole_host",
    *SHORT,
    "env.name=known_envs:TestMasked-v0",
    "env.max_steps_per_episode=null",
    "env.workers=2",
    "algorithm.normalize_observations=true",
)


@pytest.mark.parametrize("case", [ENVPOOL, FIELDS], ids=["envpool", "fields in workers"])
def test_a_killed_run_ends_as_if_it_had_not_been(case, workdir, whole, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(tiny.__file__).parent))  # where known_envs is
    metrics = f"logs/{case.name}/latest/trial_0/metrics.jsonl"
    said = stop_at_row(case.command(), workdir, metrics, 12, signal.SIGKILL)
    assert said.code == -signal.SIGKILL
    run = latest(workdir, case)
    step = checkpoint.common_step([run / "trial_0"])
    assert step % (7 * 64) == 0 and 0 < step < 2048
    resume_experiment(case.name)
    check_same(run, whole(case))


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
        run_multiple_experiments(scenario, callback=kill_once(10), display=display)
    run = latest(workdir, FIELDS)
    assert read(run / "run.json")["status"] == "failed"
    assert any("Saved at step 448. To go on, once" in told for told in said), said
    assert not workers()
    resume_experiment(FIELDS.name)
    check_same(run, whole(FIELDS))


def test_a_dead_worker_is_replaced_and_the_run_goes_on(workdir):
    said: list[str] = []
    scenario = load(FIELDS.name, [*FIELDS.settings, "env.on_worker_failure=restart"])
    display = silent()._replace(say=said.append)
    summary = run_multiple_experiments(scenario, callback=kill_once(10), display=display)
    told = [each for each in said if "worker" in each]
    assert len(told) == 1 and "killed by SIGKILL" in told[0] and "started again" in told[0]
    assert summary["trials"][0]["environment_steps"] == 2048
    assert not workers()
