"""Blocks of trials, here or on the workers of a cluster: the same bits, whoever is lost on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from types import SimpleNamespace

import pytest
from clusters import bits, ray_processes, remaining, running_in, small, worker_pids
from tiny import count_rows

from proxima.cluster import pool as pools
from proxima.cluster.address import parse_address
from proxima.cluster.blocks import _answer, in_blocks, on_cluster
from proxima.cluster.luggage import packed
from proxima.cluster.messages import Message, Order, read, written
from proxima.cluster.pool import Done
from proxima.cluster.session import open_session
from proxima.cluster.worker import Hello, Worker, hello
from proxima.core.errors import ProximaError
from proxima.run.display import silent
from proxima.run.resume import resume_experiment
from proxima.run.start import run_multiple_experiments
from proxima.scenario import dump, load


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The run in this process, one block after the other."""
    output = tmp_path_factory.mktemp("here")
    summary = run_multiple_experiments(small(output))
    return summary, bits(output)


@pytest.fixture(scope="module")
def cluster(compiled):
    """Two workers of a Ray of our own, and what is left of its processes afterwards: nothing."""
    with on_cluster("local:2") as train_blocks:
        yield train_blocks
        of_ray = set(ray_processes())
    assert of_ray and not remaining(of_ray), "Ray's processes outlive the session"


def said_by(scenario, **options):
    """The sentences of a run, and its summary."""
    said = []
    display = silent()._replace(say=said.append)
    return said, run_multiple_experiments(scenario, display=display, **options)


def test_blocks_are_what_the_same_trials_give_in_one_program_per_block(here, tmp_path):
    """A block of two is the program that two trials have: the first block, run as a whole."""
    summary, together = here
    run_multiple_experiments(small(tmp_path, trials=2))
    alone = bits(tmp_path)
    assert alone == {name: digest for name, digest in together.items() if name in alone}
    assert [trial.trial for trial in summary.trials] == [0, 1, 2, 3]
    assert all(trial.environment_steps == 2048 for trial in summary.trials)


def test_on_a_cluster_the_bits_are_the_same(here, cluster, tmp_path):
    said, summary = said_by(small(tmp_path), cluster=cluster)
    assert bits(tmp_path) == here[1]
    assert "2 blocks on 2 workers of 1 machine" in said
    assert [t.evaluation for t in summary.trials] == [t.evaluation for t in here[0].trials]


def test_a_worker_that_is_killed_costs_no_bit(here, cluster, tmp_path):
    killed = []

    def kill_one(view):
        """Once, as soon as something has been heard; `-9`, as the kernel does it when memory is short."""
        if not killed:
            killed.append(worker_pids()[0])
            os.kill(killed[0], signal.SIGKILL)

    said = []
    display = silent()._replace(say=said.append)
    run_multiple_experiments(small(tmp_path), display=display, callback=kill_one, cluster=cluster)
    assert killed and any(line.startswith("Lost worker") for line in said)
    assert bits(tmp_path) == here[1]


def test_interrupted_on_a_cluster_and_resumed_here(here, tmp_path):
    """Ctrl-C in the middle of the run leaves no process behind, and what to do next."""
    config = tmp_path / "cartpole.yaml"
    config.write_text(dump(small(tmp_path)))
    start = [sys.executable, "-c", "from proxima.cli import main; main()", "experiment"]
    driver = subprocess.Popen(
        [*start, "--config", str(config), "--cluster", "local:2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    rows = tmp_path / "cartpole" / "latest" / "trial_0" / "metrics.jsonl"
    while count_rows(rows) < 3 and driver.poll() is None:
        time.sleep(0.01)
    of_ray = ray_processes(driver.pid)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=60)
    assert of_ray and not remaining(of_ray) and not running_in(tmp_path), said
    assert driver.returncode == 130 and "proxima resume" in said, said
    resume_experiment("cartpole", output_directory=str(tmp_path))
    assert bits(tmp_path) == here[1]


def test_stopped_after_its_first_block_it_says_where_that_is_and_may_have_other_settings(
    here, tmp_path
):
    """The second block has no checkpoint yet."""
    said, views = [], []
    display = silent()._replace(say=said.append)

    def stop(view):
        views.append(view)
        if len(views) == 17:  # a block has 16 chunks
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_multiple_experiments(small(tmp_path), display=display, callback=stop)
    assert "Saved at step 2,048." in said[-1]
    changes = {"evaluation.final_episodes": 3}
    resume_experiment("cartpole", changes=changes, output_directory=str(tmp_path), display=display)
    assert "Trial 1 stays as it is: it has used its budget at step 2,048." in said
    assert "Trial 2" not in " ".join(said)
    assert bits(tmp_path).keys() == here[1].keys()


def test_a_worker_says_its_errors_in_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    worker = Worker()
    told, error = worker.begin("env: {name: CartPole-v1}\nalgorithm: {gama: 1}\n", packed({}, []))
    assert "algorithm.gama: unknown key" in error and "pid" not in error
    assert read(told, Hello) == hello()
    answer = worker.carry_out(Message(written(Order(0, 0, None, 1)), {}))
    assert "the worker failed:" in json.loads(answer.text)["error"]
    with pytest.raises(ProximaError, match=r"the worker failed(.|\n)*said by worker 2"):
        _answer(Done(0, answer, "worker 2"))


class Fails(Exception):
    pass


class Dies(Fails):
    pass


class Vanishes(Fails):
    pass


class FakeRay:
    """Calls end in the order in which `ends` names their workers."""

    class exceptions:
        RayError = Fails
        RayActorError = NodeDiedError = OutOfMemoryError = Dies
        ObjectLostError = Vanishes

    def __init__(self, ends):
        self.ends, self.lost_answers = iter(ends), 0

    def wait(self, calls, num_returns, timeout):
        begun = [call for call in calls if call[1] == "begin"]
        if begun:
            return begun[:1], calls
        number = next(self.ends)
        return [call for call in calls if call[0] == number], calls

    def get(self, call):
        if call[1] == "begin":
            return json.dumps(list(hello())), ""
        if call[2] == "dies":
            raise Dies
        if call[2] == "vanishes once" and not self.lost_answers:
            self.lost_answers += 1
            raise Vanishes
        return call


class FakeActor:
    def __init__(self, number):
        self.begin = SimpleNamespace(remote=lambda *job: (number, "begin", ""))
        self.carry_out = SimpleNamespace(remote=lambda order: (number, "carry_out", order))


def fake_pool(workers, ends, said):
    """A pool of workers that do nothing but end when they are told to."""
    pool = object.__new__(pools.Pool)
    pool._ray, pool._say, pool._job = FakeRay(ends), said.append, ("", {})
    pool._session = SimpleNamespace(head=None)
    pool._waiting, pool._given, pool._open = deque(), 0, set()
    pool._losses, pool._seconds = {}, deque()
    pool._looked = pool._heard_of_head = time.monotonic()
    pool._is_alone = True
    pool._members = [pools.Member(FakeActor(number), number) for number in range(workers)]
    return pool


def test_a_lost_order_is_given_to_others_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(pools, "AGAIN_SECONDS", 0.0)
    said = []
    pool = fake_pool(1, [0] * 9, said)
    pool.submit(7, "dies")
    with pytest.raises(ProximaError, match="5 workers in turn were lost with the same block"):
        pool.next()
    assert len([line for line in said if line.startswith("Lost worker 0")]) == 5
    assert len([line for line in said if line.startswith("No worker is left")]) == 4


def test_an_answer_that_its_machine_took_with_it_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(pools, "AGAIN_SECONDS", 0.0)
    said = []
    pool = fake_pool(1, [0] * 2, said)
    pool.submit(3, "vanishes once")
    assert pool.next().key == 3 and pool._ray.lost_answers == 1
    assert said[0].startswith("Lost worker 0")


def test_an_order_that_takes_too_long_is_given_to_another_and_answered_once(monkeypatch):
    """Worker 0 is slow; worker 1 does the rest and then worker 0's order, whose late answer nobody takes."""
    monkeypatch.setattr(pools, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(pools, "SLOW_TIMES", 0.0)
    said = []
    pool = fake_pool(2, [1, 1, 0, 1], said)
    pool.submit("slow", "slow")
    pool.submit("quick", "quick")
    assert pool.next().key == "quick"
    done = pool.next()
    assert (done.key, done.worker) == ("slow", f"worker 1 on {hello().host}")
    assert [line for line in said if "is slow" in line] == said and len(said) == 1
    pool.submit("later", "later")
    assert pool.next().key == "later", "the late answer of worker 0 is not mistaken for it"


def test_other_versions_are_refused_in_words():
    other = hello()._replace(versions=hello().versions | {"jax": "0.1"})
    with pytest.raises(ProximaError, match=r"worker 3 has other versions: jax 0\.1 there"):
        pools._check_versions(Hello(*other), "worker 3")


@pytest.mark.parametrize(
    ("trials", "width"), [(1, 1), (5, 1), (16, 2), (64, 8), (250, 10), (256, 16), (257, 1)]
)
def test_the_width_of_a_block_depends_on_the_trials_alone(trials, width):
    assert in_blocks(load("cartpole", {"trials": trials})).training.trials_per_block == width


def test_a_width_that_is_given_stays():
    scenario = load("cartpole", {"trials": 64, "training": {"trials_per_block": 32}})
    assert in_blocks(scenario) == scenario


def test_blocks_of_different_widths_are_refused():
    with pytest.raises(ProximaError, match="3 does not divide 4 trials"):
        load("cartpole", {"trials": 4, "training": {"trials_per_block": 3}})


def test_language_is_refused_in_words():
    with pytest.raises(ProximaError, match="do not train in blocks"):
        in_blocks(load("movie_critic"))


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ProximaError, match=r"--cluster local.*proxima\[cluster\]"):
        open_session(parse_address("local:2")).__enter__()


def test_no_cluster_to_join_is_said_in_words():
    with (
        pytest.raises(ProximaError, match=r"--cluster 127\.0\.0\.1:1: no cluster could be joined"),
        open_session(parse_address("127.0.0.1:1")),
    ):
        pass


def test_what_listens_listens_on_this_machine_only(cluster):
    listed = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    ours = [
        line for line in listed.splitlines() if any(f"pid={p}," in line for p in ray_processes())
    ]
    places = {line.split()[3].rpartition(":")[0] for line in ours}
    assert places and places <= {"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"}
