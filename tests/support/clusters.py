"""Small runs on clusters, compared by their bits, and the processes that Ray has on this machine."""

import hashlib
import os
import subprocess
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
    import json

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [
        {key: row[key] for key in sorted(row) if not key.startswith(("time/", "memory/"))}
        for row in rows
    ]
    return json.dumps(kept).encode()


def ray_processes() -> set[int]:
    """Processes that belong to Ray, by their command lines."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    words = ("raylet", "gcs_server", "ray::", "ray/_private", "ray/dashboard", "default_worker.py")
    return {
        int(line.split()[0])
        for line in listed.stdout.splitlines()[1:]
        if any(word in line for word in words) and int(line.split()[0]) != os.getpid()
    }
