"""One reader for all who look: the list of runs, and the runs that are open, read once a second at most."""

import subprocess
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, final

from proxima.core.errors import ProximaError
from proxima.live import steer
from proxima.live.runs import Entry, Followed, Opened, OpenedSearch, opened

FRESH_SECONDS = 1.0  # what was read within this time is not read again
FOUND_SECONDS = 3.0  # the same of the list of directories
MOST_OPEN = 4  # runs whose metrics are kept; of the others the list is
PATTERNS = ("*/runs/*/run.json", "*/tune/*/info.json")


@final
class Watch:
    """Reads the directory for whoever asks, from one thread at a time."""

    def __init__(self, output: Path):
        self._output, self._lock = output.resolve(), threading.Lock()
        self._followed: dict[str, Followed] = {}
        self._open: OrderedDict[str, Opened | OpenedSearch] = OrderedDict()
        self._drawn: dict[tuple[str, str | None], tuple[Any, dict[str, Any]]] = {}
        self._read_at: dict[str, float] = {}
        self._entries: list[Entry] = []
        self._started: list[subprocess.Popen[bytes]] = []

    def entries(self) -> list[Entry]:
        """All runs, the newest first."""
        with self._lock:
            self._started = [process for process in self._started if process.poll() is None]
            if self._is_due("", FOUND_SECONDS):
                self._find()
            if self._is_due(" entries", FRESH_SECONDS):
                entries = [followed.entry() for followed in self._followed.values()]
                self._entries = sorted(entries, key=lambda each: each.started, reverse=True)
            return self._entries

    def details(self, run: str, metric: str | None) -> dict[str, Any]:
        """What is shown of a run; drawn once for all who look at the same metric."""
        followed = self.followed(run)
        with self._lock:
            if run not in self._open:
                self._open[run] = opened(followed)
            self._open.move_to_end(run)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            look = self._open[run]
            if self._is_due(run, FRESH_SECONDS):
                look.read()
            version = look.version, followed.info
            kept = self._drawn.get((run, metric))
            if kept is None or kept[0] != version:
                kept = version, look.details(metric)
                self._drawn[run, metric] = kept
            while len(self._drawn) > 4 * MOST_OPEN:
                self._drawn.pop(next(iter(self._drawn)))
            return kept[1]

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
        followed.entry()
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
            self._open.pop(name, None)
        for name, root in names.items():
            if name not in self._followed:
                self._followed[name] = Followed(self._output, root)
