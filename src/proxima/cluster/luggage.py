"""What workers need besides the scenario: files that it reads, and the user's own modules.

No file system is shared with them, so both travel with the run; a worker unpacks them into a directory of
its own.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proxima.build import importable_directories, make_importable
from proxima.core.errors import ProximaError

MOST_BYTES = 2 * 1024**3
MODULES, FILES = "modules/", "files/"


def packed(settings: Mapping[str, Any], reads: Mapping[str, Path]) -> dict[str, bytes]:
    """The files that settings name, by their dotted paths, and modules of the user's own."""
    files = {f"{FILES}{setting}/{path.name}": path for setting, path in reads.items()}
    if any(":" in text for text in _texts(settings)):  # something is named by module:name
        for number, directory in enumerate(importable_directories()):
            for path in sorted(Path(directory).glob("*.py")):
                files[f"{MODULES}{number}/{path.name}"] = path
    total = sum(path.stat().st_size for path in files.values())
    if total > MOST_BYTES:
        raise ProximaError(
            f"--cluster: the files of this scenario have {total / 1024**3:.1f} GB, more than travels to "
            f"workers ({MOST_BYTES // 1024**3} GB)"
        )
    return {name: path.read_bytes() for name, path in files.items()}


def unpacked(luggage: Mapping[str, bytes], directory: Path) -> dict[str, str]:
    """Writes what travelled; the settings that name files, with where these are now."""
    changes = {}
    for name, content in luggage.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if name.startswith(FILES):
            changes[path.parent.name] = str(path)
        else:
            make_importable(path.parent)
    return changes


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _texts(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _texts(value)
