"""Files that grow, read by what was appended; a row half written is left for later.

A file that became shorter, or another file of the same name (a resumed run writes its metrics anew), is read
again from its start, and whoever reads it hears that.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple, final

MOST_ROWS = 1_000  # of a long file that are read at first, besides those with an evaluation
MOST_BYTES = 64 << 20  # read at once; what is left comes with the next reading
EVALUATED = b'"eval/'


class Appended(NamedTuple):
    """What a file has more than at the last reading."""

    is_new: bool  # whether it begins anew: rows of before no longer count
    rows: list[Any]


@final
class Tail:
    """A file of JSON lines, and how far it was read."""

    def __init__(self, path: Path, last_bytes: int | None = None):
        self._path, self._last = path, last_bytes
        self._inode, self._offset = -1, 0

    def read(self) -> Appended:
        """The rows that were appended; of a long file that is read for the first time every k-th one."""
        try:
            state = os.stat(self._path)
        except OSError:
            return Appended(self._forget(), [])
        is_new = state.st_ino != self._inode or state.st_size < self._offset
        if is_new:
            self._inode, self._offset = state.st_ino, self._start(state.st_size)
        if state.st_size == self._offset:
            return Appended(is_new, [])
        lines = self._lines()
        rows = [row for row in map(parsed, thinned_lines(lines, MOST_ROWS)) if row is not None]
        return Appended(is_new, rows)

    def _forget(self) -> bool:
        was_known, self._inode, self._offset = self._inode != -1, -1, 0
        return was_known

    def _start(self, size: int) -> int:
        """Where reading begins: at the start, or so many bytes before the end."""
        return 0 if self._last is None else max(0, size - self._last)

    def _lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read(MOST_BYTES)
        except OSError:
            return []
        whole, newline, _ = content.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.split(b"\n") if newline else []


def thinned_lines(lines: list[bytes], most: int) -> list[bytes]:
    """At most about so many lines, evenly, the last one and all that hold an evaluation among them."""
    stride = len(lines) // most
    if stride <= 1:
        return lines
    last = len(lines) - 1
    return [
        line for i, line in enumerate(lines) if i % stride == 0 or i == last or EVALUATED in line
    ]


def parsed(line: bytes) -> Any:
    """What a line holds; None where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
