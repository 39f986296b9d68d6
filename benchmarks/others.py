"""The measurements that are not a ratio of two programs taking turns."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuning import tune, tune_growth
from turns import HERE, ask, finish, start, venvs


def trading_matrix(repeat: int) -> dict[str, Any]:
    """Bars per second of a fixed policy over 1,000 assets of 1,000 bars."""
    program = start([sys.executable, str(HERE / "trading_env.py"), "--matrix"])
    ask(program, "ready")
    speeds = [ask(program, "run")["steps_per_second"] for _ in range(2 * repeat)]
    finish(program)
    found = statistics.median(speeds)
    return {
        "line": "a fixed policy over 1,000 × 1,000 prices, bars per second",
        "ours": found,
        "at_least": 20e6,
        "reached": found >= 20e6,
    }


def double_buffering(repeat: int) -> dict[str, Any]:
    """Two groups against one, on an environment of 1 ms per step in two worker processes."""
    sizes = ("--slow", "--envs", "4", "--steps", "64", "--updates", "5", "--hidden", "512")
    programs = [
        start([sys.executable, str(HERE / "ours_pools.py"), *sizes, "--groups", groups])
        for groups in ("2", "1")
    ]
    for program in programs:
        ask(program, "ready")
    speeds = [
        [ask(program, "run")["steps_per_second"] for program in programs] for _ in range(repeat)
    ]
    for program in programs:
        finish(program)
    double, single = (statistics.median(column) for column in zip(*speeds, strict=True))
    ratio = statistics.median(two / one for two, one in speeds)
    return {
        "line": "double against single buffering, 4 envs of 1 ms in two processes, a 512-512 net",
        "ours": double,
        "single": single,
        "ratio": ratio,
        "at_least": 1.0,
        "reached": ratio > 1.0,
    }


def language_memory(_: int) -> dict[str, Any]:
    """Memory of policy, reference, critic and reward model with LoRA over SmolLM2, during PPO."""
    script = str(HERE / "ours_language.py")
    subprocess.run([sys.executable, script, "write"], check=True)
    run = subprocess.run(
        [sys.executable, script, "memory"], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    return {
        "line": "memory of four models with LoRA over SmolLM2, relative to the base's",
        "ours": found,
        "ratio": found["ratio"],
        "at_most": 1.5,
        "reached": found["ratio"] <= 1.5,
    }


def trading_growth(_: int) -> dict[str, Any]:
    """Cost of an environment step against rows of prices and number of environments."""
    run = subprocess.run(
        [sys.executable, str(HERE / "trading_env.py"), "--growth"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "line": "trading env alone, cost against rows and environments",
        "ours": [json.loads(row) for row in run.stdout.splitlines()],
    }


def solve(repeat: int) -> dict[str, Any]:
    """Seconds from the command to a solved CartPole, tracked, against SB3's script of 100k steps."""
    python = str(venvs.ensure("sb3"))
    ours: list[dict[str, float]] = []
    theirs: dict[str, list[float]] = {"default": [], "zoo": []}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(repeat + 1):  # the first fills the compilation cache
            ours.append(time_to_solve(directory))
    for _ in range(max(1, repeat // 2)):
        run = subprocess.run(
            [python, str(HERE / "peers" / "sb3_ppo.py"), "--solve", "--repeat", "1"],
            capture_output=True,
            text=True,
            check=True,
        )
        for name, answer in json.loads(run.stdout.splitlines()[-1]).items():
            theirs[name].append(answer["seconds_to_learnt"])
    warm = statistics.median(each["solved"] for each in ours[1:])
    whole = statistics.median(each["whole"] for each in ours[1:])
    rival = {name: statistics.median(seconds) for name, seconds in theirs.items()}
    return {
        "line": "seconds from the command to CartPole solved, tracked",
        "ours_to_solved": warm,
        "ours_whole_command": whole,
        "ours_cold": ours[0]["solved"],
        "theirs": rival,
        "ratio": {name: whole / seconds for name, seconds in rival.items()},
        "at_most": 0.5,
        "reached": all(whole / seconds <= 0.5 for seconds in rival.values()),
    }


def time_to_solve(directory: str) -> dict[str, float]:
    """One `proxima experiment` of one trial: until its metrics show it solved, and until it ends."""
    started_at, started = time.time(), time.perf_counter()
    run = subprocess.run(
        [
            str(Path(sys.executable).parent / "proxima"), "experiment", "--scenario", "cartpole",
            "--trials", "1", "--json",
        ],
        cwd=directory, capture_output=True, text=True, check=True,
    )  # fmt: skip
    whole = time.perf_counter() - started
    summary = json.loads(run.stdout)
    mean = summary["trials"][0]["evaluation"]["return_mean"]
    if mean < 475:
        raise SystemExit(f"CartPole was not solved: {mean}")
    metrics = Path(directory) / summary["paths"]["run"] / "trial_0" / "metrics.jsonl"
    return {"whole": whole, "solved": metrics.stat().st_mtime - started_at}


def help_seconds(repeat: int) -> dict[str, Any]:
    """Seconds that `proxima --help` takes."""
    command = [str(Path(sys.executable).parent / "proxima"), "--help"]
    seconds = []
    for _ in range(repeat + 1):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(time.perf_counter() - started)
    found = statistics.median(seconds[1:])
    return {
        "line": "proxima --help, seconds",
        "ours": found,
        "at_most": 0.5,
        "reached": found < 0.5,
    }


OTHERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "trading_matrix": trading_matrix,
    "trading_growth": trading_growth,
    "double_buffering": double_buffering,
    "language_memory": language_memory,
    "tune": tune,
    "tune_growth": tune_growth,
    "solve": solve,
    "help": help_seconds,
}
