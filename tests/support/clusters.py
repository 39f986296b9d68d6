"""Small runs on clusters, compared by their bits, and the processes that Ray has on this machine."""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from proxima import load
from proxima.scenario import Scenario

SMALL: dict[str, Any] = {
    "trials": 4,
    "training": {"max_steps": 2048, "trials_per_block": 2, "updates_per_chunk": 1},
    "env": {"num_envs": 2},
    "algorithm": {"batch_size": 128, "minibatch_size": 64, "epochs_per_update": 1},
    "network": {"hidden": [8]},
    "evaluation": {"eval_episodes": 2, "final_episodes": 2, "film": False, "eval_frequency": 5},
    "checkpoint": {"frequency": 3},
    "convergence": {"target_reward": None},
    "tracking": {"enabled": False},
}


def small(output: Path, name: str = "cartpole", **sections: Any) -> Scenario:
    """A scenario of two blocks of two trials, 16 chunks each, saved after every third."""
    changes = {
        key: dict(value) if isinstance(value, dict) else value for key, value in SMALL.items()
    }
    for key, value in sections.items():
        changes[key] = changes.get(key, {}) | value if isinstance(value, dict) else value
    return load(name, changes | {"output_directory": str(output)})


def bits(output: Path, name: str = "cartpole") -> dict[str, str]:
    """The digests of every checkpoint's state, and of the metrics but for times and memory."""
    root = output / name / "latest"
    states = {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.glob("trial_*/checkpoints/*/state.safetensors"))
    }
    return states | {
        str(path.relative_to(root)): hashlib.sha256(_timeless(path)).hexdigest()
        for path in sorted(root.glob("trial_*/metrics.jsonl"))
    }


def _timeless(path: Path) -> bytes:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [
        {key: row[key] for key in sorted(row) if not key.startswith(("time/", "memory/"))}
        for row in rows
    ]
    return json.dumps(kept).encode()


def ray_processes(ancestor: int | None = None) -> dict[int, str]:
    """The processes of Ray below a process, this one by default: their command lines by pid.

    Other tests may have a Ray of their own at the same time.
    """
    ancestor = ancestor or os.getpid()
    listed = subprocess.run(
        ["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    )
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, _ in rows}
    words = ("raylet", "gcs_server", "ray::", "ray/_private", "ray/dashboard", "default_worker.py")

    def is_below(pid: int) -> bool:
        while pid in parents and pid != ancestor:
            pid = parents[pid]
        return pid == ancestor

    return {
        int(pid): line
        for pid, _, line in rows
        if any(word in line for word in words) and is_below(int(pid))
    }


def worker_pids() -> list[int]:
    """The workers of the cluster that this process started."""
    return [pid for pid, line in ray_processes().items() if line.startswith("ray::Worker")]


def running_in(folder: Path) -> dict[int, str]:
    """The processes whose working directory or command line is in the folder."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = Path(os.readlink(process / "cwd"))
            if str(folder) in line or where.is_relative_to(folder):
                found[int(process.name)] = line
    return found


def remaining(pids: Iterable[int]) -> set[int]:
    """Those of these processes that are still there after some seconds: not all end at once."""
    deadline = time.monotonic() + 20
    while living(pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    return living(pids)


def living(pids: Iterable[int]) -> set[int]:
    """Those of these processes that are still there."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}
