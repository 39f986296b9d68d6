"""Stopping a run as Ctrl-C does, and going on with one in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from proxima.core.errors import ProximaError
from proxima.run.lock import Holder, holder_of, is_at_work, process_start

LOG = "resume.log"  # what a run that was resumed from the page says
COMMAND = "from proxima.cli import main; main()"


def stop(root: Path) -> Holder:
    """Ask the process that holds the run's lock to save and stop; an error where there is none here."""
    holder = holder_of(root)
    if holder is None or not is_at_work(holder):
        raise ProximaError(f"{root}: no process of this machine is at work on it")
    try:
        descriptor = os.pidfd_open(holder.process)
    except OSError as error:
        raise ProximaError(f"{root}: process {holder.process} has just ended") from error
    try:
        # the open descriptor is of one process for good, so what is checked is what is signalled
        if process_start(holder.process) != holder.process_start:
            raise ProximaError(f"{root}: process {holder.process} is another one by now")
        signal.pidfd_send_signal(descriptor, stop_signal(holder.process))
    except PermissionError as error:
        raise ProximaError(
            f"{root}: process {holder.process} is another user's; only they can stop it"
        ) from error
    finally:
        os.close(descriptor)
    return holder


def stop_signal(process: int) -> signal.Signals:
    """Ctrl-C's; SIGTERM, which a run takes the same, where a shell's & made it ignore Ctrl-C."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return signal.SIGINT
    ignored = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")]
    is_ignored = bool(ignored) and bool(int(ignored[0], 16) & 1 << (signal.SIGINT - 1))
    return signal.SIGTERM if is_ignored else signal.SIGINT


def resume(
    root: Path, output: Path, is_search: bool, directory: str | None
) -> subprocess.Popen[bytes]:
    """Go on with a run or a search, detached from this process, where it was started from."""
    holder = holder_of(root)
    if holder is not None and is_at_work(holder):
        raise ProximaError(f"{root}: process {holder.process} is at work on it already")
    words = ["tune", "--resume"] if is_search else ["resume"]
    home = Path(directory) if directory and Path(directory).is_dir() else Path.cwd()
    with (root / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *words, root.name, "--output", str(output.resolve())],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # closing the page's server ends no run
        )
