"""Small searches: a scenario whose trainings take a moment, and a bench that trains nothing at all."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from tiny import SIZES, SMALL

from proxima.scenario import Scenario, load
from proxima.train.stage import Row, Score
from proxima.tune.bench import Start

RATE, LAMBDA = "algorithm.learning_rate", "algorithm.gae_lambda"
SPACE = {RATE: "log:1e-4:1e-1", LAMBDA: "0.5:1.0"}


def small(name: str = "pendulum", algorithm: str = "ppo", **search: Any) -> Scenario:
    """A scenario of 640 steps per training with a search."""
    settings = {key: value for key, _, value in (each.partition("=") for each in SMALL)}
    given = [f"{key}={value}" for key, value in settings.items() if key != "training.max_steps"]
    wanted = {"space": SPACE, "configs": 6, "lanes": 4, "evaluations": 5, "confirm": 0} | search
    wanted = {"seeds": 1, "seed": 0} | wanted  # the scenario has a search of its own
    sections = [f"search.{key}={_yaml(value)}" for key, value in wanted.items()]
    return load(
        name,
        [
            *given,
            *SIZES[algorithm],
            "training.max_steps=640",
            "convergence.target_reward=null",
            *sections,
        ],
    )


def _yaml(value: Any) -> str:
    import json

    return json.dumps(value)


class FakeBench:
    """Lanes that count instead of training: a state is the settings' rate, its seed and its updates."""

    def __init__(self, width: int, updates: int = 10, broken: float = np.inf):
        self.width, self._broken = width, broken
        self.loaded = SimpleNamespace(updates=updates, program=SimpleNamespace(steps_per_update=1))
        self.states: list[tuple[float, int, int]] = [(0.0, 0, 0)] * width
        self.loads: list[int] = []
        self.busy: list[int] = []  # lanes that trained, of each chunk

    def load(self, program: int, settings: Mapping[str, Any]) -> None:
        self.loads.append(program)
        self.states = [(0.0, 0, 0)] * self.width

    def begin(self, starts: Mapping[int, Start]) -> None:
        for lane, start in starts.items():
            fresh = (float(start.settings[RATE]), start.seed, 0)  # type: ignore[arg-type]
            assert start.state is None or start.state[:2] == fresh[:2]
            self.states[lane] = start.state or fresh

    def advance(self, updates: Sequence[int]) -> list[Row]:
        self.busy.append(sum(count > 0 for count in updates))
        self.states = [
            (rate, seed, done + count)
            for (rate, seed, done), count in zip(self.states, updates, strict=True)
        ]
        loss = [np.nan if state[0] >= self._broken else 0.0 for state in self.states]
        return [{"loss/total": each, "episode/count": 0.0} for each in loss]

    def change(self, settings: Mapping[int, Any]) -> None:
        for lane, each in settings.items():
            self.states[lane] = (float(each[RATE]), *self.states[lane][1:])

    def evaluate(self) -> list[Score]:
        return [self._score(*state) for state in self.states]

    def _score(self, rate: float, seed: int, done: int) -> Score:
        value = rate + 0.001 * (seed % 7) + 0.01 * done
        return Score(value, 1, {"eval/return_mean": value})

    def take(self, lane: int) -> tuple[float, int, int]:
        return self.states[lane]


class Memory:
    """A parking that counts what is in it."""

    def __init__(self) -> None:
        self.states: dict[Any, Any] = {}
        self.most = 0

    def put(self, seat: Any, evaluations: int, state: Any) -> None:
        self.states[(*seat, evaluations)] = state
        self.most = max(self.most, len(self.states))

    def get(self, seat: Any, evaluations: int, like: Any) -> Any:
        return self.states[(*seat, evaluations)]

    def keep(self, wanted: set[int]) -> None:
        self.states = {key: state for key, state in self.states.items() if key[0] in wanted}
