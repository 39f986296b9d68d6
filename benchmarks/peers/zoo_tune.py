"""RL Baselines3 Zoo's Optuna optimiser on CartPole-v1: configurations of 20,000 steps per minute.

    python benchmarks/peers/zoo_tune.py --configs 6                  one command, one trial at a time
    python benchmarks/peers/zoo_tune.py --configs 6 --jobs 2         two threads of it
    python benchmarks/peers/zoo_tune.py --configs 6 --processes 2    two that share a study

Same work as ours (tune_task.py): the space, which takes the place of the Zoo's own PPO sampler; random
search, nothing pruned; PPO's sizes, nets and steps; one evaluation of 10 greedy episodes at the end.

What differs: the Zoo evaluates in the course of the last rollout, so before the last update; its trials
are not seeded, which is its own choice; it writes a table at the end, ours checkpoints and a page too.

Each run is the Zoo's own `train` command with `-optimize`, in a process of its own. `seconds` go from the
start of the first trial to the end of the last; `whole_seconds` are those of the command. The evaluation has
10 environments side by side (the Zoo's default is one). `--jobs` are the
Zoo's `--n-jobs`, threads which share Python's lock; processes share a journal, as in the Zoo's distributed
optimisation. Torch has one thread everywhere: two jobs or processes would fight for the cores with more, and
two threads for one job did not end four trials in nine minutes beside other programs.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import protocol
import tune_task
import venvs


def sampler(trial: Any, n_actions: int, n_envs: int, additional_args: dict) -> dict[str, Any]:
    """The Zoo's sampler of PPO's settings, with our space."""
    return {
        each.theirs: trial.suggest_float(each.theirs, each.low, each.high, log=each.is_log)
        for each in tune_task.SPACE
    }


def optimize(arguments: list[str]) -> None:
    """The Zoo's command with these arguments and our space."""
    from rl_zoo3 import hyperparams_opt
    from rl_zoo3.train import train

    hyperparams_opt.HYPERPARAMS_SAMPLER["ppo"] = sampler
    sys.argv = ["train", *arguments]
    train()


def command(configs: int, jobs: int, seed: int) -> list[str]:
    """The Zoo's command, for a directory that holds `settings.yml`."""
    options = {
        "--algo": "ppo",
        "--env": "CartPole-v1",
        "--conf-file": "settings.yml",
        "--n-timesteps": tune_task.BUDGET,
        "--n-trials": configs,
        "--n-jobs": jobs,
        "--sampler": "random",
        "--pruner": "none",
        "--n-evaluations": 1,
        "--eval-episodes": tune_task.EPISODES,
        "--n-eval-envs": tune_task.EPISODES,
        "--num-threads": 1,
        "--seed": seed,
        "--device": "cpu",
        "--log-folder": f"logs_{seed}",
    }
    words = [str(word) for pair in options.items() for word in pair]
    return [sys.executable, __file__, "--optimize", "-optimize", "--no-optim-plots", *words]


def settings() -> str:
    """What does not vary, as a file of the Zoo's."""
    values = {
        "n_envs": tune_task.ENVS,
        "n_timesteps": tune_task.BUDGET,
        "policy": "MlpPolicy",
        "n_steps": tune_task.STEPS,
        "batch_size": tune_task.MINIBATCH,
        "n_epochs": tune_task.EPOCHS,
        "policy_kwargs": '"dict(net_arch=[64, 64], activation_fn=nn.Tanh)"',
    }
    return "CartPole-v1:\n" + "".join(f"  {name}: {value}\n" for name, value in values.items())


def search(configs: int, processes: int, jobs: int, seed: int) -> dict[str, Any]:
    """One study of so many configurations, timed."""
    shared = ["--storage", "study.log", "--study-name", "study"] if processes > 1 else []
    shares = [configs // processes + (place < configs % processes) for place in range(processes)]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "settings.yml").write_text(settings())
        before, began = os.times(), time.perf_counter()
        running = [
            subprocess.Popen(
                [*command(share, jobs, seed + place), *shared], cwd=directory, stdout=sys.stderr
            )
            for place, share in enumerate(shares)
        ]
        codes = [each.wait() for each in running]
        whole, after = time.perf_counter() - began, os.times()
        if any(codes):
            raise SystemExit(f"the Zoo's command failed: exit codes {codes}")
        trials = read_trials(Path(directory))
    if len(trials) != configs:
        raise SystemExit(f"{len(trials)} of {configs} trials were completed")
    seconds = (max(end for _, end in trials) - min(start for start, _ in trials)).total_seconds()
    return protocol.measurement(configs * tune_task.TRAINED, seconds) | {
        "configurations": configs,
        "configurations_per_minute": 60 * configs / seconds,
        "whole_seconds": whole,
        "processor_seconds": sum(after[2:4]) - sum(before[2:4]),
        "processes": processes,
        "jobs": jobs,
    }


def read_trials(directory: Path) -> list[tuple[datetime, datetime]]:
    """When each completed trial started and ended, from the tables that the Zoo wrote."""
    trials = {}
    for path in directory.glob("logs_*/ppo/report_*.csv"):
        with path.open() as file:
            for row in csv.DictReader(file):
                if row["state"] == "COMPLETE":
                    times = row["datetime_start"], row["datetime_complete"]
                    trials[row["number"]] = tuple(map(datetime.fromisoformat, times))
    return list(trials.values())


def prepare(configs: int, processes: int, jobs: int) -> protocol.Run:
    """A run of one study, each time with other seeds; the Zoo's files are in the page cache by then."""
    search(processes, processes, 1, seed=0)
    seed = 0

    def run() -> dict[str, Any]:
        nonlocal seed
        seed += processes
        return search(configs, processes, jobs, seed)

    return run


def main() -> None:
    """Times what the command line asks for."""
    if sys.argv[1:2] == ["--optimize"]:
        optimize(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", type=protocol.positive, default=6, help="trials of a study")
    parser.add_argument("--processes", type=protocol.positive, default=1, help="that share a study")
    parser.add_argument("--jobs", type=protocol.positive, default=1, help="threads of each process")
    parser.add_argument("--repeat", type=protocol.positive, default=1, help="runs without --serve")
    parser.add_argument("--serve", action="store_true", help="obey lines on standard input")
    options = parser.parse_args()
    venvs.enter("zoo")
    protocol.speak(
        lambda: prepare(options.configs, options.processes, options.jobs),
        options.repeat,
        options.serve,
    )


if __name__ == "__main__":
    main()
