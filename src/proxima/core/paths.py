"""Paths as people write them."""

import os

from proxima.core.errors import ProximaError

_SQLITE = "sqlite:///"
LONGEST_NAME, LONGEST_PATH = 255, 4_095  # bytes that Linux takes


def expand_home(text: str) -> str:
    """A path, or the address of a sqlite file, whose leading `~` is the user's home directory."""
    if text.startswith(_SQLITE):
        return _SQLITE + os.path.expanduser(text.removeprefix(_SQLITE))
    return os.path.expanduser(text)


def usable_path(text: str) -> str:
    """`expand_home` of what may name a file or a directory; an error where no file system has such a name."""
    problem = path_problem(text)
    if problem is not None:
        start = text.encode("unicode_escape").decode()[:60]
        raise ProximaError(f"{start}{'…' if len(text) > 60 else ''}: {problem}")
    return expand_home(text)


def path_problem(text: str) -> str | None:
    """Why no file or directory can have this path; None: one can."""
    if "\0" in text:
        return "is no path: it has a character of number zero; leave it out"
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        return "is no path: it has half of a character; write it anew"
    longest = max(map(len, encoded.split(b"/")))
    if longest > LONGEST_NAME:
        return f"is no path: a name of {longest:,} bytes is in it, and {LONGEST_NAME} is the most"
    if len(encoded) > LONGEST_PATH:
        return f"is no path: it has {len(encoded):,} bytes, and {LONGEST_PATH:,} is the most"
    return None
