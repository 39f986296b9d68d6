"""`proxima tune` on the task of peers/tune_task.py: configurations of 20,000 steps per minute.

    python benchmarks/ours_tune.py --configs 64

Each run is the whole command in a process of its own. `seconds` are those of the search: from the first
configuration that is drawn to the last value, with loading the compiled program, evaluations and checkpoints.
`whole_seconds` are those of the command, from the start of Python to the report's last byte, without MLflow.

The first run finds an empty compilation cache (`cold_*` in every answer), those that are timed a full one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "peers"))
import protocol  # noqa: E402
import tune_task  # noqa: E402

SETTINGS = {
    "env.num_envs": tune_task.ENVS,
    "algorithm.batch_size": tune_task.ENVS * tune_task.STEPS,
    "algorithm.minibatch_size": tune_task.MINIBATCH,
    "algorithm.epochs_per_update": tune_task.EPOCHS,
    "algorithm.final_learning_rate": "null",
    "training.max_steps": tune_task.BUDGET,
    "evaluation.eval_episodes": tune_task.EPISODES,
    "convergence.target_reward": "null",
    "search.method": "random",
    "search.seeds": 1,
    "search.evaluations": 1,
    "search.confirm": 0,
}


def command(configs: int, seed: int) -> list[str]:
    """The command of a search over so many configurations."""
    settings = SETTINGS | {"search.configs": configs, "search.seed": seed}
    words = [f"--set={path}={value}" for path, value in settings.items()]
    words += [f"--search={each.words()}" for each in tune_task.SPACE]
    program = str(Path(sys.executable).parent / "proxima")
    return [program, "tune", "cartpole", "--no-mlflow", "--json", *words]


def search(directory: Path, configs: int, seed: int) -> dict[str, Any]:
    """One search, timed; the directory holds the compilation cache."""
    environment = os.environ | {"XDG_CACHE_HOME": str(directory / "cache")}
    before, began = os.times(), time.perf_counter()
    run = subprocess.run(
        command(configs, seed),
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    whole, after = time.perf_counter() - began, os.times()
    result = json.loads(run.stdout)
    if result["steps"] != configs * tune_task.TRAINED:
        raise SystemExit(f"{result['steps']} steps, not {configs} × {tune_task.TRAINED}")
    return protocol.measurement(result["steps"], result["seconds"]) | {
        "configurations": configs,
        "configurations_per_minute": 60 * configs / result["seconds"],
        "whole_seconds": whole,
        "processor_seconds": sum(after[2:4]) - sum(before[2:4]),
    }


def prepare(directory: Path, configs: int) -> protocol.Run:
    """A run of one search, each time with other configurations, the cache filled."""
    cold = search(directory, configs, 0)
    seed = 0

    def run() -> dict[str, Any]:
        nonlocal seed
        seed += 1
        first = {f"cold_{name}": cold[name] for name in ("seconds", "whole_seconds")}
        return search(directory, configs, seed) | first

    return run


def main() -> None:
    """Times what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", type=protocol.positive, default=64, help="of a search")
    parser.add_argument("--repeat", type=protocol.positive, default=1, help="runs without --serve")
    parser.add_argument("--serve", action="store_true", help="obey lines on standard input")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        protocol.speak(
            lambda: prepare(Path(directory), options.configs), options.repeat, options.serve
        )


if __name__ == "__main__":
    main()
