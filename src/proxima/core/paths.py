"""Paths as people write them."""

import errno
import os

from proxima.core.errors import ProximaError

_SQLITE = "sqlite:///"
MOST_LETTERS = 200  # of a path, in a message


def expand_home(text: str) -> str:
    """A path, or the address of a sqlite file, whose leading `~` is the user's home directory."""
    if text.startswith(_SQLITE):
        return _SQLITE + os.path.expanduser(text.removeprefix(_SQLITE))
    return os.path.expanduser(text)


def check_possible(path: str | os.PathLike[str]) -> None:
    """An error where nothing can be called so: the name is too long, or there is a NUL in it."""
    try:
        os.stat(path)
    except OSError as failure:
        if failure.errno == errno.ENAMETOOLONG:
            raise ProximaError(f"{abridged(path)}: is too long for a path") from failure
    except ValueError as failure:
        raise ProximaError(f"{abridged(path)}: cannot be a path ({failure})") from failure


def abridged(path: str | os.PathLike[str]) -> str:
    """A path as a message shows it."""
    text = os.fspath(path)
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"
