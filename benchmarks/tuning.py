"""Searches over settings: `proxima tune` against RL Baselines3 Zoo's optimiser, and as it grows."""

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ours_tune import search
from turns import HERE, ask, finish, start, venvs

CONFIGS = 64  # of ours; the Zoo trains one after the other, so a few say what each costs
ZOO_CONFIGS = 6
SINGLE = {"one job": ("--jobs", "1"), "two jobs": ("--jobs", "2")}
WAYS = SINGLE | {"two processes": ("--processes", "2")}
AT_LEAST = 20.0
GROWTH = (8, 16, 32, 64, 128, 256, 512)
STAYS = 1.05  # a cost that rises by less has stayed: the machine varies by more

Answer = dict[str, Any]


def tune(repeat: int) -> dict[str, Any]:
    """Configurations per minute of both, in turns; the Zoo in each of its ways, every time.

    The ratio is to its better one of a single command; that to two processes is told besides.
    """
    zoo = [str(venvs.ensure("zoo")), str(HERE / "peers" / "zoo_tune.py")]
    zoo += ["--configs", str(ZOO_CONFIGS)]
    mine = [sys.executable, str(HERE / "ours_tune.py"), "--configs", str(CONFIGS)]
    programs = [start(mine), *(start([*zoo, *options]) for options in WAYS.values())]
    for program in programs:  # one after the other: compiling disturbs
        ask(program, "ready")
    rounds = [[ask(program, "run") for program in programs] for _ in range(repeat)]
    for program in programs:
        finish(program)
    ours, *rivals = (list(column) for column in zip(*rounds, strict=True))
    theirs = dict(zip(WAYS, rivals, strict=True))
    speeds = {way: _median(_speed, answers) for way, answers in theirs.items()}
    best = max(SINGLE, key=lambda way: speeds[way])
    ratios = {way: _ratios(ours, answers) for way, answers in theirs.items()}
    ratio = statistics.median(ratios[best])
    return {
        "line": "search over PPO's settings, 20,000 steps of CartPole each: configurations per minute",
        "peer": "zoo",
        "ours": _median(_speed, ours),
        "theirs": speeds[best],
        "their_way": best,
        "theirs_by_way": speeds,
        "ratio": ratio,
        "ratios": ratios[best],
        "ratios_by_way": ratios,
        # ours with all that the command does, theirs without its start
        "ratio_of_whole_command": 60 / _median(_whole_cost, ours) / speeds[best],
        "ratio_of_processor_time": _median(_processor_cost, theirs[best])
        / _median(_processor_cost, ours),
        "ours_by_run": ours,
        "theirs_by_run": [answer for answers in theirs.values() for answer in answers],
        "at_least": AT_LEAST,
        "reached": ratio >= AT_LEAST,
    }


def tune_growth(repeat: int) -> dict[str, Any]:
    """Seconds per configuration of a search with a full compilation cache, by configurations."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for configs in GROWTH[
            :2
        ]:  # their numbers of lanes, and so programs, differ; others have 16
            search(directory, configs, seed=0)
        rounds = [
            [search(directory, configs, seed) for configs in GROWTH]
            for seed in range(1, 1 + max(1, repeat // 2))
        ]
    columns = list(zip(*rounds, strict=True))
    costs = [_median(_cost, column) for column in columns]
    return {
        "line": "seconds per configuration of a search, by configurations",
        "configurations": GROWTH,
        "ours": costs,
        "ours_whole_command": [_median(_whole_cost, column) for column in columns],
        "ours_processor_seconds": [_median(_processor_cost, column) for column in columns],
        "at_most": STAYS,  # times the least cost of fewer configurations
        "reached": all(costs[i] <= STAYS * min(costs[:i]) for i in range(1, len(costs))),
    }


def _speed(answer: Answer) -> float:
    return float(answer["configurations_per_minute"])


def _ratios(ours: list[Answer], theirs: list[Answer]) -> list[float]:
    return [_speed(mine) / _speed(rival) for mine, rival in zip(ours, theirs, strict=True)]


def _cost(answer: Answer) -> float:
    return float(answer["seconds"] / answer["configurations"])


def _whole_cost(answer: Answer) -> float:
    return float(answer["whole_seconds"] / answer["configurations"])


def _processor_cost(answer: Answer) -> float:
    return float(answer["processor_seconds"] / answer["configurations"])


def _median(figure: Callable[[Answer], float], answers: Iterable[Answer]) -> float:
    return statistics.median(map(figure, answers))
