"""A gang started, watched and started again: whoever of it dies, all go on from the last checkpoint.

    run_gang ─► launch process 0 … N−1 ─► all ended well: done
                      ▲                 └► one died: the others end, and so do those that do not by themselves
                      └────────────── up to `restarts` times

`launch` starts a process that runs `proxima experiment … --run-id ID --process-id I --processes N
--coordinator HOST:PORT`: here (`local_launcher`), or on hosts of a Ray cluster (`RayHosts`), where a process
that follows needs neither scenario nor files. With a run id one command begins the run and goes on with it.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final

from proxima.cluster.address import parse_address
from proxima.cluster.session import Session, open_session
from proxima.core.errors import ProximaError
from proxima.run.signals import raising

LOST = os.EX_TEMPFAIL  # how a process ends that lost its gang
KILLED = -9
FOLLOW = ["experiment"]  # what it trains it hears from process 0
LOOK_SECONDS = 0.2
LAST_WORDS = 2_000  # characters of what a process on another host said
LEAVE_SECONDS = 60.0  # for the others to notice a death by themselves; a silent host takes 30
# Linux ends it in order when who started it is gone; then the command line as usual.
COMMAND = """
import ctypes, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
from proxima.cli import main
main()
"""


class Process(Protocol):
    """A process of a gang, wherever it runs; as `subprocess.Popen` has it."""

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


Launch = Callable[[int, str], Process]  # number of the process, coordinator


def run_gang(
    launch: Launch,
    processes: int,
    restarts: int = 3,
    coordinator: Callable[[], str] | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> int:
    """The exit status of process 0 when the gang has come to its end, restarted when one of it died.

    `coordinator` gives a free address on the machine of process 0 for every start; by default on this one.
    """
    with raising():
        for attempt in range(restarts + 1):
            address = (coordinator or free_address)()
            statuses = _run_once(launch, processes, address)
            if not any(map(_is_death, statuses)):
                return next((status for status in statuses if status), 0)
            left = restarts - attempt
            words = (
                "no restart is left" if left == 0 else f"starting all again, {left} restarts left"
            )
            say(f"{_who(statuses)} of the gang ended before its work was done: {words}.")
    raise ProximaError(
        f"the gang of {processes} processes died {restarts + 1} times; look for what ends them (memory, most "
        "often), then go on with  proxima resume  or more --restarts"
    )


def _run_once(launch: Launch, processes: int, coordinator: str) -> list[int]:
    """The exit statuses of one start of the gang; nobody of it is left."""
    members: list[Process] = []
    try:
        for rank in range(processes):
            members.append(launch(rank, coordinator))
        return _watched(members)
    except KeyboardInterrupt:
        if members:
            members[0].terminate()  # it saves, and sends the others home
            _watched(members)
        raise
    finally:
        for member in members:
            if member.poll() is None:
                member.kill()


def _watched(members: Sequence[Process]) -> list[int]:
    """Waits for all to end; when one has failed, the others have a minute to do so by themselves."""
    failed_at = None
    while True:
        statuses = [member.poll() for member in members]
        ended = [status for status in statuses if status is not None]
        if len(ended) == len(members):
            return ended
        if failed_at is None and any(ended):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > LEAVE_SECONDS:
            for member in members:
                if member.poll() is None:
                    member.kill()
        time.sleep(LOOK_SECONDS)


def _is_death(status: int) -> bool:
    """Whether a process was ended by a signal or lost its gang; a refusal in words is neither."""
    return status < 0 or status == LOST or status > 128


def _who(statuses: Sequence[int]) -> str:
    """The processes that died of themselves; where none did, those that lost another."""
    dead = [rank for rank, status in enumerate(statuses) if _is_death(status) and status != LOST]
    lost = [rank for rank, status in enumerate(statuses) if status == LOST]
    named = dead or lost
    return f"process{'es' if len(named) > 1 else ''} {', '.join(map(str, named))}"


def free_address() -> str:
    """A port of this machine that nobody listens on, by the loopback address."""
    return f"127.0.0.1:{free_port()}"


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def gang_options(rank: int, processes: int, coordinator: str) -> list[str]:
    """What a process of a gang has on its command line besides what all have."""
    options = {"--process-id": rank, "--processes": processes, "--coordinator": coordinator}
    return [str(word) for pair in options.items() for word in pair]


def local_launcher(
    arguments: Sequence[str],
    processes: int,
    environment: Mapping[str, str] | None = None,
    directories: Sequence[str | os.PathLike[str]] | None = None,
    quiet: bool = False,
    errors: Any = None,
) -> Launch:
    """Starts processes on this machine: `arguments` as after `proxima`; `directories`: where each runs.

    `quiet`: process 0 says nothing either, but for errors, which may go to a file.
    """

    def launch(rank: int, coordinator: str) -> Process:
        command = [sys.executable, "-c", COMMAND, *arguments]
        # of its own session: a terminal's Ctrl-C comes to us, and we pass it on to process 0 alone
        return subprocess.Popen(
            [*command, *gang_options(rank, processes, coordinator)],
            cwd=None if directories is None else directories[rank],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=None if rank == 0 and not quiet else subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )

    return launch


@final
class Host:
    """An actor on a host of a Ray cluster: starts a process there and says what became of it."""

    def __init__(self) -> None:
        self._process: Any = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the actor is)

    def address(self) -> str:
        """This host's address in the network."""
        import ray

        return str(ray.util.get_node_ip_address())

    def start(self, arguments: Sequence[str], rank: int, processes: int, coordinator: str) -> None:
        """Starts the command line here."""
        launch = local_launcher(arguments, processes, errors=self._errors)
        self._process = launch(rank, coordinator)

    def errors(self) -> str:
        """What it wrote to standard error last."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-LAST_WORDS:]

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        status: int | None = self._process.poll()
        return status

    def terminate(self) -> None:
        """Asks it to stop."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            self._process.kill()


@final
class RayHosts:
    """Process 0 here, where the run's files are, and an actor on a host for each of the others."""

    def __init__(self, session: Session, processes: int) -> None:
        self._session, self._ray, self._processes = session, session.ray, processes
        self._actors: dict[int, Any] = {}
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if cores < processes - 1:
            raise ProximaError(
                f"--hosts: {processes} processes, one of them here, need {processes - 1} cores of the "
                f"cluster, which has {cores}; look with  proxima cluster status"
            )

    def coordinator(self) -> str:
        """A free address on this host; the loopback one where no other host is in the gang."""
        actors = [self._actor(rank) for rank in range(1, self._processes)]
        hosts = set(self._ray.get([actor.address.remote() for actor in actors]))
        here = self._ray.util.get_node_ip_address()
        return f"{here if hosts - {here} else '127.0.0.1'}:{free_port()}"

    def launcher(self, arguments: Sequence[str]) -> Launch:
        """Starts the command here as process 0, and on the hosts those that follow it."""

        def launch(rank: int, coordinator: str) -> Process:
            if rank == 0:
                return local_launcher(arguments, self._processes)(0, coordinator)
            actor = self._actor(rank)
            self._ray.get(actor.start.remote(FOLLOW, rank, self._processes, coordinator))
            return _RayProcess(self._ray, actor)

        return launch

    def errors(self) -> list[str]:
        """What processes on other hosts wrote to standard error last, as far as their hosts answer."""
        asked = (_asked(self._ray, actor, "errors") for _, actor in sorted(self._actors.items()))
        return [words for words in asked if words]

    def close(self) -> None:
        """No actor is left, and no process that one started."""
        for actor in self._actors.values():
            _asked(self._ray, actor, "kill")
            self._ray.kill(actor)

    def _actor(self, rank: int) -> Any:
        """The actor of a process, a new one where the last is gone; on a host of its own if it can be."""
        actor = self._actors.get(rank)
        if actor is not None and _asked(self._ray, actor, "address") is not None:
            return actor
        spread = self._ray.remote(Host).options(num_cpus=1, scheduling_strategy="SPREAD")
        self._actors[rank] = spread.remote()
        return self._actors[rank]


def train_over_hosts(
    address: str,
    hosts: int,
    restarts: int,
    arguments: Sequence[str],
    say: Callable[[str], None],
) -> int:
    """The exit status of a training over several hosts of a cluster; `arguments` are process 0's."""
    if hosts < 2:
        raise ProximaError(f"--hosts: {hosts}; two at least, or leave it out")
    with open_session(parse_address(address)) as session:
        places = RayHosts(session, hosts)
        try:
            launch = places.launcher(arguments)
            status = run_gang(launch, hosts, restarts, places.coordinator, say)
            if status:
                for words in places.errors():
                    say(words)
            return status
        finally:
            places.close()


@final
class _RayProcess:
    """A process on another host, by the actor that started it."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit status; an actor that is gone took its process with it."""
        if self._status is None:
            self._status = _asked(self._ray, self._actor, "poll", KILLED)
        return self._status

    def terminate(self) -> None:
        _asked(self._ray, self._actor, "terminate")

    def kill(self) -> None:
        _asked(self._ray, self._actor, "kill")


def _asked(ray: Any, actor: Any, method: str, gone: Any = None) -> Any:
    """What an actor's method returns; `gone` where its host does not answer any more."""
    try:
        return ray.get(getattr(actor, method).remote())
    except ray.exceptions.RayActorError:
        return gone
