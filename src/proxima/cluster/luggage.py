"""What workers need besides the scenario: files that it reads, and the user's own modules.

No file system is shared with them, so both travel with the run; a worker unpacks them into a directory of
its own, in which it works.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proxima.build import importable_directories, make_importable
from proxima.core.errors import ProximaError

MOST_BYTES = 2 * 1024**3
MODULES, ELSEWHERE, BESIDE = "modules", "elsewhere", "beside"
PLACES = "places.json"  # of files elsewhere: the path that the scenario has, and where it travels


def packed(settings: Mapping[str, Any], reads: Sequence[Path]) -> dict[str, bytes]:
    """The files that a scenario reads, and where it names something by module:name the user's modules."""
    beside = [path for path in reads if not path.is_absolute() and ".." not in path.parts]
    files = {f"{BESIDE}/{path}": path for path in beside}
    places = {
        str(path): f"{ELSEWHERE}/{number}/{path.name}"
        for number, path in enumerate(reads)
        if path not in beside
    }
    files |= {name: Path(path) for path, name in places.items()}
    if any(":" in text for text in _texts(settings)):
        for number, directory in enumerate(importable_directories()):
            for path in sorted(Path(directory).glob("*.py")):
                files[f"{MODULES}/{number}/{path.name}"] = path
    total = sum(path.stat().st_size for path in files.values())
    if total > MOST_BYTES:
        raise ProximaError(
            f"--cluster: the files of this scenario have {total / 1024**3:.1f} GB; at most "
            f"{MOST_BYTES // 1024**3} GB travel to workers"
        )
    contents = {name: path.read_bytes() for name, path in files.items()}
    return contents | {PLACES: json.dumps(places).encode()}


def unpacked(luggage: Mapping[str, bytes], directory: Path, settings: Any) -> Any:
    """Writes what travelled; the settings, in which files from elsewhere are named by where they are now."""
    for name, content in luggage.items():
        path = directory / name.removeprefix(f"{BESIDE}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if name.startswith(MODULES):
            make_importable(path.parent)
    places = json.loads(luggage[PLACES])
    return _moved(settings, {old: str(directory / new) for old, new in places.items()})


def _moved(content: Any, moved: Mapping[str, str]) -> Any:
    if isinstance(content, Mapping):
        return {key: _moved(value, moved) for key, value in content.items()}
    return moved.get(content, content) if isinstance(content, str) else content


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _texts(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _texts(value)
