"""Environments on Ray actors: the bits of those in this process, and what happens when an actor is lost."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
import warnings
from pathlib import Path

import known_envs  # noqa: F401, registers them
import numpy as np
import pytest
import ray
from host_envs import assert_same, without_times
from resume import Case, check_same, latest
from scenario_files import file_message
from tiny import TINY, stop_at_row

from proxima import load, resume_experiment, run_multiple_experiments
from proxima.core.errors import ProximaError
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.domain import build
from proxima.domains.control.pools import make_pools
from proxima.domains.control.workers import MOST_FAILURES
from proxima.run.display import silent

ON = np.ones(2, bool)
SMALL = {
    "trials": 2,
    "env.num_envs": 4,
    "env.max_steps_per_episode": 20,
    "algorithm.batch_size": 32,
    "algorithm.minibatch_size": 32,
    "algorithm.epochs_per_update": 1,
    "network.hidden": [8],
}


@pytest.fixture(scope="module", autouse=True)
def own_ray():
    """One Ray for all tests of this file; it ends with them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=0,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=100 * 1024**2,
        )
    yield
    ray.shutdown()


def open_pools(num_envs=4, groups=1, failure="stop", **settings):
    """Pools of environments on two actors, and what they have said."""
    said: list[str] = []
    usual = {"name": "TestCounter-v0", "backend": "gymnasium", "actors": 2}
    config = EnvConfig(
        num_envs=num_envs, groups=groups, on_worker_failure=failure, **(usual | settings)
    )
    made = make_pools(config, said.append)
    return made, made.train(num_envs), said


def processes(pool) -> list[int]:
    pool._actors.await_start(pool._room)
    return [int(re.match(r"process (\d+)", each.where)[1]) for each in pool._actors._actors]


def await_end(*pids: int) -> None:
    deadline = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.05)


def steps(pool, count: int):
    return [pool.step(np.ones(pool.num_envs, np.int32)) for _ in range(count)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"env.groups": 2, "env.frame_stack": 2, "training.policy_lag": 1},
        {"env.backend": "envpool", "env.workers": 1},
    ],
)
def test_two_actors_give_the_bits_of_none(settings):
    ended = []
    # Without actors two groups need workers, which change no bit either.
    here = {"env.workers": 1} if "env.groups" in settings else {}
    for changed in (here, {"env.actors": 2}):
        program = build(load("cartpole_host", SMALL | settings | changed)).program
        states, sums = program.chunk(program.init([3, 4]), ON, 2)
        states, more = program.chunk(program.reseed(states), ON, 1)
        scores = [program.evaluate(states.learner, policy, 3) for policy in ("greedy", "random")]
        ended.append((states, without_times(sums), without_times(more), scores))
        program.close()
    assert_same(*ended)


def test_fields_and_masks_travel():
    played = []
    for actors in (0, 2):
        config = EnvConfig(name="TestMasked-v0", backend="gymnasium", num_envs=3, actors=actors)
        pool = make_pools(config, print).evaluate(3, False)  # three cannot be divided evenly
        obs, rows = pool.reset([5, 6, 7]), []
        for _ in range(4):
            rows.append(pool.step(np.argmax(obs["action_mask"], axis=1)))
            obs = rows[-1].obs
        played.append(rows)
        pool.close()
    assert_same(*played)


def test_workers_of_an_actor_end_with_it():
    _, (pool,), _ = open_pools(4, workers=1)
    pool.reset([0, 1, 2, 3])
    actors = processes(pool)
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", ",".join(map(str, actors))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    workers = [int(line) for line in listed.stdout.split()]
    assert len(workers) >= 2
    pool.close()
    pool.close()  # a second call does nothing
    await_end(*actors, *workers)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("die", "was lost with its process"),
        ("sleep", r"has not answered for 2 seconds \(env.worker_timeout\)"),
        ("raise", r"failed: .*environment 2 of 4 raised ValueError at step 3.*wheel came off"),
    ],
)
def test_an_actor_that_fails_is_named_and_stops_the_run_or_is_replaced(how, words):
    failing = {"name": "TestFailing-v0", "params": {"how": how}, "worker_timeout": 2.0}
    _, (pool,), said = open_pools(failure="stop", **failing)
    pids = processes(pool)
    pool.reset([1, 2, 7, 3])
    steps(pool, 2)
    with pytest.raises(ProximaError) as caught:
        steps(pool, 1)
    told = str(caught.value)
    named = rf"actor 1 of 2 \(process {pids[1]} on \S+; environments 2 to 3 of 4\) {words}"
    assert re.search(named, told), told
    assert "at step 3 after the pool's reset" in told and "on_worker_failure=restart" in told
    assert not said
    await_end(*pids)

    _, (pool,), said = open_pools(failure="restart", **failing)
    pool.reset([1, 2, 7, 3])
    before = steps(pool, 2)[-1]
    lost, after = steps(pool, 2)
    assert before.mask.all() and after.mask.all()
    assert lost.mask.tolist() == [True, True, False, False]
    assert lost.truncated.tolist() == [False, False, True, True]
    assert not lost.terminated.any() and lost.reward.tolist() == [1.0, 1.0, 0.0, 0.0]
    # (episode, step, action): the observations of lost rows begin new episodes, the others go on
    assert lost.obs.tolist() == [[0, 3, 0], [0, 3, 0], [0, 0, 0], [0, 0, 0]]
    assert after.obs.tolist() == [[0, 4, 0], [0, 4, 0], [0, 1, 0], [0, 1, 0]]
    assert len(said) == 1 and "actor 1 of 2" in said[0] and "started again" in said[0]
    steps(pool, 5)  # the new seeds are not the one that fails
    assert len(said) == 1
    pool.close()


def test_all_pools_lose_what_their_common_actor_had():
    made, (first, second), said = open_pools(8, groups=2, failure="restart")
    judged = made.evaluate(2, False)
    for pool in (first, second):
        pool.reset([0, 1, 2, 7])
    firsts = judged.reset([0, 7])
    actions = np.ones(4, np.int32)
    os.kill(processes(first)[1], signal.SIGKILL)
    first.send(actions)
    second.send(actions)
    for row in (first.receive(), second.receive()):
        assert row.mask.tolist() == [True, True, False, False]
        assert row.obs[2:].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert "environments 2 to 3 and 6 to 7 of 8" in said[0] and len(said) == 1
    # Of the pool that was not out, the next step is lost: its actions are not for these environments.
    assert judged.step(actions[:2]).mask.tolist() == [True, False]
    for pool in (first, second):
        step = pool.step(actions)
        assert step.mask.all() and step.next_obs[2:].tolist() == [[0, 1, 0], [0, 1, 0]]
    os.kill(
        processes(first)[1], signal.SIGKILL
    )  # a reset asks for its own seeds, and loses nothing
    np.testing.assert_array_equal(judged.reset([0, 7]), firsts)
    assert judged.step(actions[:2]).mask.all()
    first.close()
    judged.close()


def test_an_actor_that_fails_again_and_again_stops_the_run():
    _, (pool,), said = open_pools(failure="restart")
    pool.reset([0, 1, 2, 7])
    with pytest.raises(ProximaError, match=f"started again {MOST_FAILURES} times already"):
        for _ in range(MOST_FAILURES + 1):
            os.kill(processes(pool)[0], signal.SIGKILL)
            steps(pool, 1)
    assert len(said) == MOST_FAILURES


def test_what_a_cluster_has_no_room_for_is_said(monkeypatch):
    monkeypatch.setattr("proxima.domains.control.actors.START_SECONDS", 1.0)
    _, (pool,), _ = open_pools(6, workers=3, worker_timeout=1.0)  # and the cluster has two CPUs
    with pytest.raises(ProximaError, match=r"env.actors: actor 0 of 2, which asks for 3 CPU"):
        pool.reset(range(6))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{actors: 2}", "env.actors: 2, and env.backend gymnax has no actors"),
        (
            "{backend: gymnasium, num_envs: 8, actors: 3}",
            "env.num_envs: 8 environments cannot be divided over 3 actors; take a multiple of 3",
        ),
        (
            "{backend: gymnasium, num_envs: 6, actors: 2, groups: 2}",
            "cannot be divided over 2 actors in 2 groups; take a multiple of 4",
        ),
        ('{backend: "python:x-1", actors: 2}', "actors cannot make an environment that lives in"),
        ("{backend: gymnasium, actors: -1}", "env.actors: -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_words(tmp_path, text, told):
    assert told in file_message(tmp_path, f"env: {text}\n")


def test_a_compiled_environment_of_ones_own_has_no_actors():
    with pytest.raises(ProximaError, match=r"env.actors: 2, and .* is compiled into the training"):
        build(load("cartpole", {"env.backend": "own_compiled:Corridor", "env.actors": 2}))


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ProximaError, match=r"env.actors needs the package ray.*proxima\[cluster\]"):
        open_pools()


def marked(mark: str) -> list[int]:
    """Processes that have the mark in their environment, this one and Ray's agents left out.

    When Ray is killed its agents first try for 60 seconds to tell it so, and then end by themselves.
    """
    agents = listed("cmdline", "ray::DashboardAgent") + listed("cmdline", "ray::RuntimeEnvAgent")
    return [pid for pid in listed("environ", mark) if pid not in (os.getpid(), *agents)]


def env_actors() -> list[int]:
    """Actors that step environments, of the Ray that this process started."""
    return [pid for pid in listed("cmdline", "ray::EnvActor") if parent(parent(pid)) == os.getpid()]


def parent(pid: int) -> int:
    """The process that started this one; 0 if it is no more."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def listed(file: str, text: str) -> list[int]:
    """Processes in one of whose files below /proc the text stands."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def test_a_run_stopped_and_killed_leaves_no_process_and_resumes_to_the_bits_of_one_without_actors(
    workdir, monkeypatch
):
    settings = (*TINY, "training.max_steps=2048", "seed=3", "checkpoint.frequency=3")
    lag = ("training.policy_lag=1", "training.updates_per_chunk=2")
    case = Case("cartpole_host", *settings, *lag, "env.actors=2")
    chunks, stepping = [], []

    def press(view):
        chunks.append(view)
        if len(chunks) == 4:
            stepping.extend(env_actors())
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_multiple_experiments(load(case.name, case.settings), callback=press, display=silent())
    assert len(stepping) == 2
    await_end(*stepping)
    # A process with a Ray of its own, which is killed.
    mark = uuid.uuid4().hex
    monkeypatch.setenv("PROXIMA_TEST_MARK", mark)
    metrics = "logs/cartpole_host/latest/trial_0/metrics.jsonl"
    killed = stop_at_row(["resume", "cartpole_host"], workdir, metrics, 9, signal.SIGKILL)
    assert killed.code == -signal.SIGKILL, killed
    await_end(*marked(mark))
    resume_experiment("cartpole_host", display=silent())
    await_end(*env_actors())
    whole = Case("cartpole_host", *settings, *lag).uninterrupted(workdir / "whole")
    check_same(latest(workdir, case), whole)
