"""Every speed line side by side: ours and the rival take turns in one go, medians and their ratio.

    python benchmarks/run.py                 everything; about 10 minutes, and the rivals' installation once
    python benchmarks/run.py large small     some of it

Results, with machine and commit, go to benchmarks/results/. Nothing else should use the machine.
"""

import argparse
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from lines import LINES
from others import OTHERS
from turns import HERE, side_by_side


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import jax

    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [row for row in cpuinfo.read_text().splitlines() if row.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "commit": commit.stdout.strip(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def earlier(target: Path) -> list[dict[str, Any]]:
    """The lines that were measured of this commit before, today."""
    return json.loads(target.read_text())["results"] if target.exists() else []


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether both are the same line of the table."""
    return [first["line"], first.get("peer")] == [second["line"], second.get("peer")]


def main() -> None:
    """Measure what the command line asks for, print it, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    everything = [*LINES, *OTHERS]
    parser.add_argument("lines", nargs="*", help=f"some of: {', '.join(everything)}")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    unknown = [name for name in options.lines if name not in everything]
    if unknown:
        parser.error(f"no line {', '.join(unknown)}; there are {', '.join(everything)}")
    results = []
    for name in options.lines or everything:
        measure = OTHERS.get(name) or partial(side_by_side, LINES[name])
        result = measure(options.repeat)
        print(json.dumps(result), flush=True)
        results.append(result)
    if not options.no_write:
        about = machine()
        target = HERE / "results" / f"{about['date'][:10]}-{about['commit']}.json"
        target.parent.mkdir(exist_ok=True)
        kept = [each for each in earlier(target) if not any(same(each, new) for new in results)]
        content = {"machine": about, "results": kept + results}
        target.write_text(json.dumps(content, indent=2) + "\n")
        print(target.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
