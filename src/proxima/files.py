"""Files that appear whole or not at all, also after a power cut."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proxima.core.errors import ProximaError


@contextmanager
def replacing(path: Path, what: str = "", lasting: bool = True) -> Iterator[Path]:
    """A name to write under, which takes the path's place in the end; `what` is for the error's words.

    Not `lasting`, a power cut may undo it: for files that nobody goes on from.
    """
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        with explaining(path, what):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if lasting:
                flush(temporary)
            os.replace(temporary, path)
            if lasting:
                flush(path.parent)
    finally:
        with suppress(OSError):  # where it could not be made, it cannot be removed either
            temporary.unlink(missing_ok=True)


@contextmanager
def explaining(path: Path | str, what: str = "") -> Iterator[None]:
    """Puts it into words if the path, or the option that names it, cannot be written."""
    try:
        yield
    except OSError as failure:
        wanted = f"the {what} there" if what else "there"
        reason = failure.strerror or failure
        raise ProximaError(f"{path}: cannot write {wanted} ({reason})") from failure


def flush(path: Path) -> None:
    """A file's content, or a directory's entries, are on the disk: a power cut cannot undo them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
