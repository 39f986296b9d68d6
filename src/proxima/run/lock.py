"""One process works on a run at a time.

    with locked(files.root): ...        a second process gets an error that names the first

The lock is a file in the run's directory, `.lock`, held with flock: the system frees it at the moment
its process ends, however it ends. The file also says who holds it. That is for the error's words, and
decides where flock does not: on file systems without it, and between machines that share a disk.
"""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from proxima.core.errors import ProximaError

NAME = ".lock"


class Holder(NamedTuple):
    """The process that a lock file names."""

    process: int
    process_start: int | None  # in the system's clock ticks; tells a later process of the same id
    host: str
    boot: str | None  # the same in all containers of a machine, another one after a restart
    since: str


_held: dict[Path, tuple[int, int]] = {}  # locks of this process: the thread, and the open file


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """While open, no other process and no other thread can lock the run; within a thread it nests."""
    path, thread = root.resolve() / NAME, threading.get_ident()
    if path in _held and _held[path][0] == thread:
        yield
        return
    try:
        descriptor = _acquire(path)
    except OSError as error:
        raise ProximaError(f"{path}: cannot lock the run ({error.strerror})") from error
    _held[path] = thread, descriptor
    try:
        yield
    finally:
        del _held[path]
        with suppress(OSError):
            path.unlink()  # before it is freed: whoever waits sees that the file is not the same
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """The open lock file, which now names this process."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            guarded = _flock(descriptor)
            if guarded is None:
                raise _refusal(path, _read(descriptor))
            if not _is_at(path, descriptor):  # its holder has just removed it
                os.close(descriptor)
                continue
            holder = _read(descriptor)
            if holder is not None and _may_be_running(holder, guarded):
                raise _refusal(path, holder)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(this_process()._asdict()).encode() + b"\n")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _flock(descriptor: int) -> bool | None:
    """Whether the system guards the lock from now on; None: another one has it."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except (ImportError, OSError):  # not on Windows, not on every network disk
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _may_be_running(holder: Holder, guarded: bool) -> bool:
    """Whether the process in a lock file that nobody guards on this machine can still be at work."""
    here = this_process()
    if holder.boot is not None and holder.boot == here.boot and guarded:
        return False  # the system would have kept the lock for it
    if holder.host != here.host:
        return True  # another machine's processes cannot be seen from here
    if holder.boot != here.boot or guarded:
        return False  # the machine was restarted, or the lock is free
    try:
        os.kill(holder.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return holder.process_start == process_start(holder.process)


def holder_of(root: Path) -> Holder | None:
    """The process that the run's lock file names, whether or not it still runs; None where it names none."""
    try:
        descriptor = os.open(root / NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def is_at_work(holder: Holder) -> bool:
    """Whether the very process that a lock names runs on this machine; taking the lock could disturb it."""
    here = this_process()
    is_here = holder.host == here.host and holder.boot == here.boot
    start = process_start(holder.process)
    return is_here and start is not None and start == holder.process_start


def _refusal(path: Path, holder: Holder | None) -> ProximaError:
    if holder is None:
        return ProximaError(f"{path.parent} is running in another process; wait for it")
    is_here = holder.host == this_process().host
    gone = "" if is_here else f"; if {holder.host} is gone, delete {path}"
    return ProximaError(
        f"{path.parent} is running in process {holder.process} on {holder.host} since "
        f"{holder.since}; wait for it, or stop it first{gone}"
    )


def this_process() -> Holder:
    """What a lock file says of the process that holds it."""
    return Holder(
        process=os.getpid(),
        process_start=process_start(os.getpid()),
        host=socket.gethostname(),
        boot=_system_file("/proc/sys/kernel/random/boot_id"),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def process_start(process: int) -> int | None:
    """When a process was started, in clock ticks since the machine was; None where that is not known."""
    line = _system_file(f"/proc/{process}/stat")
    # proc(5): field 22; the name is in brackets
    return None if line is None else int(line.rpartition(")")[2].split()[19])


def _system_file(path: str) -> str | None:
    """What the system says there; None where it has no such file."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _read(descriptor: int) -> Holder | None:
    """The holder that a lock file names; None where it names none, or only half."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        return Holder(**json.loads(os.read(descriptor, 4096)))
    except (ValueError, TypeError):
        return None


def _forget_in_child() -> None:
    """A forked process shares the lock's file, and would keep it after its parent's end."""
    for _, descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


if os.name == "posix":
    os.register_at_fork(after_in_child=_forget_in_child)
