"""Each peer lives in a virtual environment of its own, built once from its pinned requirements.

python benchmarks/peers/venvs.py rejax sb3    builds them and prints the path of each Python
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).resolve().parent
HOME = PEERS.parent / ".peers"


def ensure(name: str) -> Path:
    """The Python of peer `name`, in a venv that holds exactly the peer's present requirements."""
    requirements = PEERS / f"requirements-{name}.txt"
    if not requirements.is_file():
        known = sorted(path.stem.removeprefix("requirements-") for path in requirements_files())
        raise SystemExit(f"{requirements}: no such peer; the peers are {', '.join(known)}")
    venv = HOME / name
    python = venv / "bin" / "python"
    marker = venv / "requirements.sha256"
    wanted = fingerprint(requirements)
    if marker.is_file() and marker.read_text() == wanted:
        return python
    # The marker is written last, so a build that was interrupted is begun again from nothing.
    shutil.rmtree(venv, ignore_errors=True)
    print(f"building {venv} from {requirements.name} (once, about a minute)", file=sys.stderr)
    must(requirements, [sys.executable, "-m", "venv", str(venv)])
    must(requirements, [str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)])
    marker.write_text(wanted)
    return python


def enter(name: str) -> None:
    """Leaves the process running under the Python of peer `name`, with the same arguments."""
    python = ensure(name)
    if Path(sys.prefix).resolve() != (HOME / name).resolve():
        os.execv(python, [str(python), *sys.argv])


def requirements_files() -> list[Path]:
    """The pinned requirements, one file per peer."""
    return list(PEERS.glob("requirements-*.txt"))


def fingerprint(requirements: Path) -> str:
    """A hash that changes with the requirements and with the version of Python."""
    version = ".".join(map(str, sys.version_info[:2]))
    return hashlib.sha256(version.encode() + requirements.read_bytes()).hexdigest()


def must(requirements: Path, command: list[str]) -> None:
    """Runs the command, its output on standard error, and ends the program if it fails."""
    # Standard output belongs to the measurements.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise SystemExit(
            f"{requirements}: could not be installed by `{' '.join(command)}`; its pins are for "
            f"Python 3.11 (this is {sys.version.split()[0]}) and pip must reach a package index"
        )


if __name__ == "__main__":
    for peer in sys.argv[1:]:
        print(ensure(peer))
