"""Worker processes that die, hang or raise: they are named, and the run stops or goes on without lies."""

import os
import re
import signal
import subprocess
import sys
import time

import gymnasium
import known_envs
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.workers import MOST_FAILURES, worker_groups


def make(num_envs=4, groups=1, failure="stop", **settings):
    """Groups of environments in two worker processes, and what they have said."""
    said: list[str] = []
    config = EnvConfig(
        **({"name": "TestCounter-v0", "workers": 2, "on_worker_failure": failure} | settings)
    )
    return worker_groups(config, num_envs, groups, said.append), said


def failing(how: str, failure: str, **settings):
    """Four environments without an end, of which number 2 fails in its third step."""
    settings = {"name": "TestFailing-v0", "params": {"how": how}} | settings
    (pool,), said = make(failure=failure, **settings)
    pool.reset([1, 2, 7, 3])
    return pool, said


def processes(pool) -> list[int]:
    return [worker.pid for worker in pool._workers.processes]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def steps(pool, count: int):
    return [pool.step(np.ones(pool.num_envs, np.int32)) for _ in range(count)]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("die", r"was killed by SIGKILL \(exit code -9\)"),
        ("exit", r"ended by itself \(exit code 5\)"),
        ("sleep", r"has not answered for 1 seconds \(env.worker_timeout\)"),
        ("raise", r"failed: .*environment 2 of 4 raised ValueError at step 3.*wheel came off"),
    ],
)
def test_a_worker_that_fails_is_named_and_stops_the_run(how, words):
    pool, said = failing(how, "stop", worker_timeout=1.0)
    pids = processes(pool)
    steps(pool, 2)
    with pytest.raises(ProximaError) as caught:
        steps(pool, 1)
    told = str(caught.value)
    named = rf"worker 1 of 2 \(process {pids[1]}; environments 2 to 3 of 4\) {words}"
    assert re.search(named, told), told
    assert "at step 3 after the pool's reset" in told and "on_worker_failure=restart" in told
    assert not said and all(map(gone, pids))
    pool.close()


@pytest.mark.parametrize("how", ["die", "sleep", "raise"])
def test_a_worker_that_fails_is_replaced_and_its_rows_are_masked(how):
    pool, said = failing(how, "restart", worker_timeout=1.0)
    before = steps(pool, 2)[-1]
    lost, after = steps(pool, 2)
    assert before.mask.all() and after.mask.all()
    assert lost.mask.tolist() == [True, True, False, False]
    assert lost.truncated.tolist() == [False, False, True, True]
    assert not lost.terminated.any() and lost.reward.tolist() == [1.0, 1.0, 0.0, 0.0]
    # (episode, step, action): the observations of lost rows begin new episodes, the others go on
    assert lost.obs.tolist() == [[0, 3, 0], [0, 3, 0], [0, 0, 0], [0, 0, 0]]
    assert after.obs.tolist() == [[0, 4, 0], [0, 4, 0], [0, 1, 0], [0, 1, 0]]
    assert len(said) == 1 and "worker 1 of 2" in said[0] and "started again" in said[0]
    steps(pool, 5)  # the new seeds are not the one that fails
    assert len(said) == 1
    pool.close()


def test_both_groups_lose_what_their_common_worker_had():
    (first, second), said = make(8, groups=2, failure="restart")
    first.reset([0, 1, 2, 7])
    second.reset([0, 1, 2, 7])
    actions = np.ones(4, np.int32)
    first.step(actions)
    os.kill(processes(first)[1], signal.SIGKILL)
    first.send(actions)
    second.send(actions)
    rows = [first.receive(), second.receive()]
    for row in rows:
        assert row.mask.tolist() == [True, True, False, False]
        assert row.obs[2:].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert "environments 2 to 3 and 6 to 7 of 8" in said[0] and len(said) == 1
    for pool in (first, second):
        step = pool.step(actions)
        assert step.mask.all() and step.next_obs[2:].tolist() == [[0, 1, 0], [0, 1, 0]]
    second.close()


def test_a_group_that_was_not_out_loses_its_next_step():
    (first, second), said = make(4, groups=2, failure="restart")
    first.reset([0, 7])
    second.reset([0, 7])
    actions = np.ones(2, np.int32)
    os.kill(processes(first)[1], signal.SIGKILL)
    assert first.step(actions).mask.tolist() == [True, False]
    # The second group's observations are of environments that are no more: its actions are not for these.
    lost, after = second.step(actions), second.step(actions)
    assert lost.mask.tolist() == [True, False] and lost.obs[1].tolist() == [0, 0, 0]
    assert after.mask.all() and after.next_obs[1].tolist() == [0, 1, 0]
    assert len(said) == 1
    first.close()


def test_a_worker_killed_between_rollouts_is_replaced_without_a_loss():
    (pool,), said = make(failure="restart")
    first = pool.reset([0, 1, 2, 7])
    steps(pool, 3)
    os.kill(processes(pool)[0], signal.SIGKILL)
    time.sleep(0.1)
    np.testing.assert_array_equal(pool.reset([0, 1, 2, 7]), first)
    assert len(said) == 1 and all(step.mask.all() for step in steps(pool, 5))
    pool.close()


def test_new_seeds_are_the_same_again():
    seeds = []
    for _ in range(2):
        pool, _ = failing("die", "restart")
        steps(pool, 3)
        seeds.append(pool._workers.groups[0].seeds.tolist())
        pool.close()
    assert seeds[0] == seeds[1] and seeds[0][:2] == [1, 2] and not set(seeds[0][2:]) & {7, 3}


def test_a_worker_that_fails_again_and_again_stops_the_run():
    (pool,), said = make(failure="restart")
    pool.reset([0, 1, 2, 7])
    with pytest.raises(ProximaError, match=f"started again {MOST_FAILURES} times already"):
        for _ in range(MOST_FAILURES + 1):
            os.kill(processes(pool)[0], signal.SIGKILL)
            steps(pool, 1)
    assert len(said) == MOST_FAILURES
    pool.close()


def test_an_environment_of_the_started_program_is_refused_in_words():
    def creator():
        return known_envs.Counter()

    creator.__module__ = "__main__"
    gymnasium.register("TestHere-v0", entry_point=creator)
    (pool,), _ = make(name="TestHere-v0")
    with pytest.raises(ProximaError, match=r"worker 0 of 2.*register it in a module"):
        pool.reset([0, 1, 2, 3])


def test_workers_end_with_the_trainer_even_in_a_step_without_end(tmp_path):
    script = """
import sys, time
import known_envs, numpy as np
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.workers import worker_groups
config = EnvConfig(name="TestFailing-v0", workers=1, params={"how": "sleep"})
pool = worker_groups(config, 1, 1, print)[0]
pool.reset([7])
for _ in range(2):
    pool.step(np.ones(1, int))
pool.send(np.ones(1, int))
print(pool._workers.processes[0].pid, flush=True)
time.sleep(60)
"""
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as trainer:
        worker = int(trainer.stdout.readline())
        trainer.kill()
    deadline = time.monotonic() + 20
    while not gone(worker):
        assert time.monotonic() < deadline
        time.sleep(0.1)
