"""Files that grow, read by what was appended; a row half written is left for later.

A file that became shorter, or another file of the same name (a resumed run writes its metrics anew), is read
again from its start, and whoever reads it hears that. Of a long file that is read for the first time, some
rows are taken evenly: with every row of a large run parsed, its first picture would take a minute.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple, final

MOST_BYTES = 64 << 20  # read at once; what is left comes with the next reading
REMEMBERED = 256  # bytes before the offset that tell whether it is still the same file
ROW, EVALUATED, NOT_FINITE = b'"step"', b'"eval/', b": null"
MOST_BROKEN = 50  # rows with a number that is not finite, which are kept besides: they are gaps


class Appended(NamedTuple):
    """What a file has more than at the last reading."""

    is_new: bool  # whether it begins anew: rows of before no longer count
    rows: list[Any]


NOTHING = Appended(False, [])


@final
class Tail:
    """A file of JSON lines, and how far it was read."""

    def __init__(self, path: Path, most_rows: int | None = None):
        """With `most_rows` only about so many are taken at a time, evenly, of what is appended."""
        self._path, self._most = path, most_rows
        self._seen: tuple[int, int, int] | None = None  # inode, size and time of the last reading
        self._offset, self._before = 0, b""

    def read(self) -> Appended:
        """The rows that were appended; nothing is opened where nothing has changed."""
        try:
            state = os.stat(self._path)
            seen = state.st_ino, state.st_size, state.st_mtime_ns
            if seen == self._seen and self._offset == state.st_size:
                return NOTHING
            with self._path.open("rb") as file:
                is_new = not self._goes_on(file)
                file.seek(self._offset)
                content = file.read(MOST_BYTES)
        except OSError:
            return Appended(self._forget(), [])
        self._seen = seen
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        self._before = (self._before + whole[-REMEMBERED:])[-REMEMBERED:]
        rows = [row for row in map(parsed, self._lines(whole)) if row is not None]
        return Appended(is_new, rows)

    def _goes_on(self, file: Any) -> bool:
        """Whether the file is the one of before; if not, it is read from its start."""
        if self._seen is not None:
            file.seek(self._offset - len(self._before))
            # inodes are used again, and a file written anew may be as long: its bytes tell
            if file.read(len(self._before)) == self._before:
                return True
        self._forget()
        return False

    def _forget(self) -> bool:
        was_known = self._seen is not None
        self._seen, self._offset, self._before = None, 0, b""
        return was_known

    def _lines(self, content: bytes) -> list[bytes]:
        if self._most is None or content.count(b"\n") <= self._most:
            return content.splitlines()
        return sampled_lines(content, self._most)


def last_row(path: Path, most_bytes: int = 1 << 14) -> Any:
    """The last whole row of a file; None where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            content = file.read()
    except OSError:
        return None
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return parsed(lines[-1]) if lines else None


def sampled_lines(content: bytes, most: int) -> list[bytes]:
    """About so many rows evenly, so many evaluations, a few that hold no finite number, and the last row."""
    places = (
        positions(content, ROW, most)
        | positions(content, EVALUATED, most)
        | positions(content, NOT_FINITE, MOST_BROKEN)
    )
    last = content.rfind(b"\n", 0, len(content) - 1) + 1
    places.add((last, len(content) - 1))
    return [content[start:stop] for start, stop in sorted(places)]


def positions(content: bytes, mark: bytes, most: int) -> set[tuple[int, int]]:
    """Start and end of all lines with the mark; where they are more, of that many over the whole content."""
    every = _hits(content, mark, most + 1, 1)
    return every if len(every) <= most else _hits(content, mark, most, len(content) // most)


def _hits(content: bytes, mark: bytes, most: int, apart: int) -> set[tuple[int, int]]:
    """The next line with the mark from every so many bytes on."""
    lines, start, stop = set[tuple[int, int]](), 0, 0
    while len(lines) < most:
        hit = content.find(mark, max(start, stop))
        if hit < 0:
            break
        stop = content.find(b"\n", hit)
        lines.add((content.rfind(b"\n", 0, hit) + 1, stop))
        start += apart * max(1, -(-(hit - start) // apart)) if apart > 1 else 0
    return lines


def parsed(line: bytes) -> Any:
    """What a line holds; None where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
