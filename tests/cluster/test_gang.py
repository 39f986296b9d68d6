"""A gang of two processes: its bits, deaths of either process, who writes what, and what is refused."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from clusters import living, running_in
from texts import TINY as TEXTS
from texts import write_texts
from tiny import BUDGET, count_rows, equal_bits, flags, read, rows_of, run_main, tensors_of

from proxima.build import domain_of
from proxima.cluster import gang as cluster
from proxima.cluster.gang import LOST, Process, local_launcher, run_gang
from proxima.core.errors import ProximaError
from proxima.domains import reinforcement
from proxima.domains.language import mesh
from proxima.domains.language.config import MeshConfig
from proxima.run import gang as run_side
from proxima.run.start import run_multiple_experiments
from proxima.scenario import load
from proxima.train import gang
from proxima.train.gang import Gang, gang_of

RUN = "gang"
SETTINGS = (*BUDGET, "training.max_steps=4096", "checkpoint.frequency=3")
COMMAND = ["experiment", "cartpole", "--run-id", RUN, *flags(*SETTINGS)]


class Ended(NamedTuple):
    """A gang that has come to its end."""

    folder: Path
    status: int
    pids: list[int]
    sentences: list[str]

    @property
    def run(self) -> Path:
        return self.folder / "0" / "logs" / "cartpole" / "runs" / RUN


def trained(folder: Path, *kills: tuple[int, int]) -> Ended:
    """A gang of two processes in directories of their own; `kills`: who dies at which row, by start."""
    directories = [folder / str(rank) for rank in range(2)]
    for directory in directories:
        directory.mkdir(parents=True)
    launch = local_launcher(COMMAND, 2, {"JAX_NUM_CPU_DEVICES": "1"}, directories)
    ended = Ended(folder, 0, [], [])
    due = list(kills)

    def killing(rank: int, coordinator: str) -> Process:
        process = launch(rank, coordinator)
        ended.pids.append(process.pid)
        if due and due[0][0] == rank:
            when = due.pop(0)[1]
            threading.Thread(target=_kill_at, args=(process, ended.run, when)).start()
        return process

    status = run_gang(killing, 2, restarts=len(kills), say=ended.sentences.append)
    return ended._replace(status=status)


def _kill_at(process: Process, run: Path, rows: int) -> None:
    """Kills the process as soon as the run has so many rows of metrics."""
    while process.poll() is None and count_rows(run / "trial_0" / "metrics.jsonl") < rows:
        time.sleep(0.001)
    process.kill()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Ended:
    """By one command: process 0 here, process 1 started by an actor of a Ray of our own."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "0").mkdir()
    start = [sys.executable, "-c", "from proxima.cli import main; main()"]
    command = [*start, *COMMAND, "--cluster", "local:1", "--hosts", "2"]
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(
        command, cwd=folder / "0", env=environment, capture_output=True, text=True, timeout=300
    )
    return Ended(folder, done.returncode, [], [done.stdout, done.stderr])


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Ended:
    """First process 1 is killed, then process 0."""
    return trained(tmp_path_factory.mktemp("killed"), (1, 8), (0, 30))


def test_bits_after_deaths_are_those_of_a_gang_that_nobody_killed(undisturbed, killed):
    assert undisturbed.status == 0, undisturbed.sentences
    assert killed.status == 0 and len(killed.pids) == 6
    one, other = (ended.run / "trial_0" for ended in (undisturbed, killed))
    assert equal_bits(tensors_of(one), tensors_of(other))
    assert equal_bits(tensors_of(one, "best"), tensors_of(other, "best"))
    assert rows_of(one) == rows_of(other)


def test_the_states_are_whole(undisturbed):
    tensors = tensors_of(undisturbed.run / "trial_0")
    observations = [value for name, value in tensors.items() if name.startswith("actors.obs")]
    assert [value.shape[0] for value in observations] == [4]  # all environments, of both processes
    layout = read(undisturbed.run / "trial_0/checkpoints/last/manifest.json")["layout"]
    assert layout == {"trial_devices": 1, "data_devices": 2, "processes": 2}


def test_process_1_writes_nothing(killed):
    assert list((killed.folder / "1").iterdir()) == []


def test_no_process_is_left(undisturbed, killed):
    assert not living(killed.pids)
    assert not running_in(undisturbed.folder)


def test_the_supervisor_says_who_died(killed):
    assert killed.sentences == [
        "process 1 of the gang ended before its work was done: starting all again, 2 restarts left.",
        "process 0 of the gang ended before its work was done: starting all again, 1 restarts left.",
    ]


class Script:
    """A process that ends with a status at once, or only when it is killed."""

    def __init__(self, status: int | None):
        self.status = status

    def poll(self) -> int | None:
        return self.status

    def terminate(self) -> None:
        self.status = 0

    def kill(self) -> None:
        self.status = -signal.SIGKILL


def test_a_refusal_is_not_repeated():
    starts = []

    def launch(rank: int, coordinator: str) -> Script:
        starts.append(rank)
        return Script(1)

    assert run_gang(launch, 2, restarts=3) == 1
    assert starts == [0, 1]


def test_a_gang_that_dies_again_and_again_is_given_up():
    starts = []

    def launch(rank: int, coordinator: str) -> Script:
        starts.append(rank)
        return Script(LOST if rank else -signal.SIGKILL)

    with pytest.raises(ProximaError, match="died 3 times"):
        run_gang(launch, 2, restarts=2)
    assert len(starts) == 6


def test_who_does_not_notice_a_death_is_ended(monkeypatch):
    monkeypatch.setattr(cluster, "LEAVE_SECONDS", 0.0)
    started = []

    def launch(rank: int, coordinator: str) -> Script:
        started.append(Script(None if rank == 0 else -signal.SIGKILL))
        return started[-1]

    with pytest.raises(ProximaError, match="died 1 times"):
        run_gang(launch, 2, restarts=0)
    assert started[0].poll() == -signal.SIGKILL


def test_options_of_a_gang():
    assert gang_of(None, None, None) is None
    assert gang_of(0, 1, "127.0.0.1:9123") is None
    assert gang_of(1, 2, "127.0.0.1:9123") == Gang(1, 2, "127.0.0.1:9123")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((0, 2, None), "give all three"),
        ((None, 2, "127.0.0.1:9123"), "give all three"),
        ((2, 2, "127.0.0.1:9123"), "numbered 0 to"),
        ((-1, 2, "127.0.0.1:9123"), "numbered 0 to"),
        ((0, 2, "127.0.0.1"), "no HOST:PORT"),
        ((0, 2, "127.0.0.1:0"), "no HOST:PORT"),
        ((0, 2, "127.0.0.1:http"), "no HOST:PORT"),
    ],
)
def test_options_that_are_refused(options, words):
    with pytest.raises(ProximaError, match=words):
        gang_of(*options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--hosts 2", "say where they are"),
        ("--hosts 1 --cluster local:1", "two at least"),
        (
            "--hosts 2 --cluster local:1 --process-id 0 --processes 2 --coordinator 127.0.0.1:9123",
            "starts all processes itself",
        ),
    ],
)
def test_hosts_that_are_refused(options, words, capsys, monkeypatch, workdir):
    said = run_main(["experiment", "cartpole", *options.split()], capsys, monkeypatch)
    assert said.code == 1 and words in " ".join(said.err.split())
    assert not list(workdir.iterdir())


def test_a_machine_whose_name_leads_to_itself_is_refused(monkeypatch):
    addresses = {socket.gethostname(): "127.0.1.1", "node1": "10.0.0.1", "10.0.0.1": "10.0.0.1"}

    def found(host: str, port: object) -> list[object]:
        if host not in addresses:
            raise socket.gaierror
        return [(0, 0, 0, "", (addresses[host], 0))]

    monkeypatch.setattr(gang.socket, "getaddrinfo", found)
    with pytest.raises(ProximaError, match=r"leads to 127\.0\.1\.1"):
        gang_of(0, 2, "node1:9123")
    with pytest.raises(ProximaError, match="nowhere is no machine known here"):
        gang_of(0, 2, "nowhere:9123")
    addresses[socket.gethostname()] = "10.0.0.2"
    assert gang_of(0, 2, "node1:9123") == Gang(0, 2, "node1:9123")


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ProximaError, match="take another"):
            gang._check_port(Gang(0, 2, f"127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("trials=2",), "a gang trains one"),
        (("algorithm.name=dqn",), "is not divided among processes"),
        (("env.num_envs=6", "algorithm.batch_size=96"), "env.num_envs: 6 cannot be divided among"),
        (
            ("algorithm.batch_size=60", "algorithm.minibatch_size=30"),
            "algorithm.minibatch_size: 30",
        ),
        (("env.backend=gymnasium",), "steps on the host"),
    ],
)
def test_scenarios_that_a_gang_cannot_train(settings, words, monkeypatch):
    monkeypatch.setattr(reinforcement, "process_count", lambda: 2)  # with the four devices of tests
    sizes = () if "algorithm.name=dqn" in settings else BUDGET
    scenario = load("cartpole", [*sizes, "trials=1", *settings])
    with pytest.raises(ProximaError, match=words):
        domain_of(scenario).prepare(scenario)


LANGUAGE = {"reward_model": None, "ppo": None, "trials": 1}


@pytest.mark.parametrize("axis", ["data", "tensor"])
def test_a_language_model_learns_what_it_learns_in_one_process(axis, tmp_path, monkeypatch):
    """Batches or matrices, divided among processes or devices of one; additions differ in their order."""
    settings = {**TEXTS, **LANGUAGE, f"model.mesh.{axis}": 2}
    alone, *directories = (tmp_path / name for name in ("alone", "0", "1"))
    for directory in (alone, *directories):
        directory.mkdir()
        write_texts(directory)
    words = flags(*(f"{key}={json.dumps(value)}" for key, value in settings.items()))
    arguments = ["experiment", "movie_critic", "--run-id", RUN, *words]
    launch = local_launcher(arguments, 2, {"JAX_NUM_CPU_DEVICES": "1"}, directories)
    assert run_gang(launch, 2, restarts=0) == 0
    monkeypatch.chdir(alone)
    whole = Path(run_multiple_experiments(load("movie_critic", settings)).paths["run"])
    stage = Path("trial_0", "sft")
    one, other = (
        rows_of(run / stage) for run in (directories[0] / "logs/movie_critic/latest", whole)
    )
    assert [row["step"] for row in one] == [row["step"] for row in other]
    key = "eval/loss"
    losses = [[row[key] for row in rows if key in row] for rows in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][-1] < losses[0][0]
    assert [path.name for path in directories[1].iterdir()] == ["texts.parquet"]


def test_other_versions_are_refused():
    message = {"versions": run_side._versions() | {"jax": "0.0.1"}}
    with pytest.raises(ProximaError, match=r"process 0 has .*jax 0\.0\.1"):
        run_side._prepare(message)


@pytest.mark.parametrize(
    ("data", "tensor", "words"),
    [(3, 1, "3 × 1 devices cannot be divided among 2"), (1, 1, "make data or tensor a multiple")],
)
def test_meshes_that_a_gang_cannot_have(data, tensor, words, monkeypatch):
    monkeypatch.setattr(mesh, "process_count", lambda: 2)
    with pytest.raises(ProximaError, match=words):
        mesh.check_gang(MeshConfig(data=data, tensor=tensor))
