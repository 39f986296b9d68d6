"""Directories on a disk that appear whole or not at all, whoever kills the process and whenever.

Everything is made under a name that nobody reads, `.tmp-<process>-<new|old>-<name>`, and renamed;
what a killed process leaves under such a name, the next `prune` of that place removes. What fails
raises an OSError, for the caller to put into words.
"""

import ctypes
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from proxima.files import flush

_TEMPORARY = re.compile(r"\.tmp-(\d{1,9})-(new|old)-.+")


def write_directory(target: Path, files: Mapping[str, bytes], links: Iterable[str]) -> None:
    """Makes or replaces a directory of these files, then points the links beside it to it, in order."""
    root = target.parent
    new = _temporary(root, f"new-{target.name}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove(new)  # a killed process may have had our id
        new.mkdir()
        for name, content in files.items():
            (new / name).write_bytes(content)
            flush(new / name)
        flush(new)
        _put_in_place(new, target)
        for link in links:
            point(root / link, target.name)
        flush(root)
    finally:
        _remove(new)


def prune(root: Path, unwanted: Iterable[Path]) -> None:
    """Removes what killed processes left half done in a directory, and what is unwanted there."""
    for path in root.iterdir():
        match = _TEMPORARY.fullmatch(path.name)
        # Our own are done with by now: only a process that is gone can have left one under our id.
        if match and (int(match[1]) == os.getpid() or not _is_running(int(match[1]))):
            _remove(path)
    for path in unwanted:
        gone = _temporary(root, f"old-{path.name}")
        os.rename(path, gone)  # so that no one meets it half removed
        _remove(gone)


def _temporary(root: Path, name: str) -> Path:
    return root / f".tmp-{os.getpid()}-{name}"


def _put_in_place(new: Path, target: Path) -> None:
    """`new` under the target's name; a target that was there has gone, or has the name of `new`."""
    if not os.path.lexists(target):
        os.rename(new, target)
    elif not _exchange(new, target):
        old = _temporary(target.parent, f"old-{target.name}")
        os.rename(target, old)
        os.rename(new, target)
        _remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two names in one step; False where the system cannot (Linux can, Python does not)."""
    at_working_directory, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    names = (os.fsencode(one), os.fsencode(other))
    code: int = rename(at_working_directory, names[0], at_working_directory, names[1], exchange)
    return code == 0


def point(link: Path, name: str) -> None:
    """Points a link to what has that name beside it, in one step."""
    temporary = _temporary(link.parent, f"new-{link.name}")
    _remove(temporary)
    try:
        temporary.symlink_to(name)
        os.replace(temporary, link)
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True
