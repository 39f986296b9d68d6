"""Files that are read whole, and again only when they have changed; what is no JSON is nothing."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard, final

MOST_JSON = 32 << 20  # bytes of a file that is read whole


def read_content(path: Path) -> Any:
    """The JSON in a file; None where there is none, or it is half or huge."""
    try:
        if path.stat().st_size > MOST_JSON:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    content = read_content(path)
    return content if isinstance(content, dict) else {}


def is_number(value: Any) -> TypeGuard[float]:
    """Whether JSON holds a finite number here."""
    return isinstance(value, int | float) and math.isfinite(value)


@final
class Cached:
    """A file's content, read again only when the file has changed."""

    def __init__(self, read: Callable[[Path], Any]):
        self._read, self._state, self._content = read, (-1, -1, -1), read(Path(os.devnull))

    @property
    def changed_at(self) -> int:
        """When the file was written that was read last, in nanoseconds; −1 before."""
        return self._state[2]

    def __call__(self, path: Path) -> Any:
        try:
            now = os.stat(path)
        except OSError:
            return self._content  # a file that is being replaced, or never was
        state = now.st_ino, now.st_size, now.st_mtime_ns
        if state != self._state:
            self._state, self._content = state, self._read(path)
        return self._content
