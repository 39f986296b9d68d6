"""One reader for all who look: the list of runs, and the runs that are open, read once a second at most."""

import subprocess
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple, final

from proxima.core.errors import ProximaError
from proxima.live import steer
from proxima.live.runs import Entry, Followed, Opened, OpenedSearch, opened

FRESH_SECONDS = 1.0  # what was read within this time is not read again
FOUND_SECONDS = 3.0  # the same of the list of directories
READING_SECONDS = 0.7  # of an answer; what a large run has more is read for the next one
MOST_OPEN = 4  # runs whose metrics are kept; of the others the list is
MOST_DRAWN = 4  # metrics of such a run that are kept as they were drawn
PATTERNS = ("*/runs/*/run.json", "*/tune/*/info.json")


class Shown(NamedTuple):
    """A run that is open: whoever reads or draws it holds its lock, and nobody waits for another run."""

    lock: threading.Lock
    run: Opened | OpenedSearch
    # By metric, with the version it is of.
    drawn: OrderedDict[str | None, tuple[Any, dict[str, Any]]]


@final
class Watch:
    """Reads the directory for whoever asks."""

    def __init__(self, output: Path):
        self._output = output.resolve()
        self._listing, self._opening = threading.Lock(), threading.Lock()
        self._followed: dict[str, Followed] = {}
        self._open: OrderedDict[str, Shown] = OrderedDict()
        self._read_at: dict[str, float] = {}
        self._entries: list[Entry] = []
        self._started: list[subprocess.Popen[bytes]] = []

    def entries(self) -> list[Entry]:
        """All runs, the newest first."""
        with self._listing:
            self._started = [process for process in self._started if process.poll() is None]
            if self._is_due("", FOUND_SECONDS):
                self._find()
            if self._is_due(" entries", FRESH_SECONDS):
                entries = [followed.entry() for followed in self._followed.values()]
                self._entries = sorted(entries, key=lambda entry: entry.started, reverse=True)
            return self._entries

    def details(self, run: str, metric: str | None) -> dict[str, Any]:
        """What is shown of a run; drawn once for all who look at the same metric."""
        followed = self.followed(run)
        shown = self._opened(followed)
        with shown.lock:
            if self._is_due(run, FRESH_SECONDS) or shown.run.unread:
                shown.run.read(READING_SECONDS)
            version = shown.run.version, shown.run.unread, followed.info, followed.standing
            kept = shown.drawn.get(metric)
            if kept is None or kept[0] != version:
                kept = shown.drawn[metric] = version, shown.run.details(metric)
            shown.drawn.move_to_end(metric)
            while len(shown.drawn) > MOST_DRAWN:
                shown.drawn.popitem(last=False)
            return kept[1]

    def _opened(self, followed: Followed) -> Shown:
        with self._opening:
            if followed.id not in self._open:
                self._open[followed.id] = Shown(threading.Lock(), opened(followed), OrderedDict())
            self._open.move_to_end(followed.id)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            return self._open[followed.id]

    def followed(self, run: str) -> Followed:
        """A run by its id, which must be one that the list has: no other path is ever opened."""
        if run not in self._followed:
            self.entries()
        if run not in self._followed:
            raise ProximaError(f"{run}: no such run in {self._output}")
        return self._followed[run]

    def stop(self, run: str) -> str:
        """Ask a run to save and stop."""
        holder = steer.stop(self.followed(run).root)
        return f"Process {holder.process} was asked to save and stop."

    def resume(self, run: str) -> str:
        """Go on with a run in a process of its own."""
        followed = self.followed(run)
        if followed.info.get("status") == "finished":
            raise ProximaError(f"{run} is finished; there is nothing to resume")
        directories = followed.info.get("directories") or [None]
        process = steer.resume(
            followed.root, self._output, followed.is_search, next(iter(directories))
        )
        self._started.append(process)
        return f"Process {process.pid} goes on with it."

    def _is_due(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now - self._read_at.get(what, -seconds) < seconds:
            return False
        self._read_at[what] = now
        return True

    def _find(self) -> None:
        roots = [path.parent for pattern in PATTERNS for path in self._output.glob(pattern)]
        roots = [root for root in roots if not root.is_symlink()]
        names = {str(root.relative_to(self._output)): root for root in roots}
        for name in [name for name in self._followed if name not in names]:
            del self._followed[name]
            with self._opening:
                self._open.pop(name, None)
        for name, root in names.items():
            if name not in self._followed:
                self._followed[name] = Followed(self._output, root)
