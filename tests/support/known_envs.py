"""Host environments whose every step is known; light to import, for worker processes do so too."""

import os
import signal
import time
from typing import ClassVar

import gymnasium
import numpy as np


class Counter(gymnasium.Env):
    """Known endings: episode k of seed s lasts (s + k) % 3 + 1 steps; even ones are truncated."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(3, start=-1)

    def __init__(self, raises_at: int = 0, render_mode: str | None = None):
        self.raises_at, self.render_mode = raises_at, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seed, self.episode = seed, -1
        self.episode += 1
        self.step_in_episode = 0
        return self._observe(0), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.step_in_episode += 1
        if self.step_in_episode == self.raises_at:
            raise ValueError("the wheel came off")
        ended = self.step_in_episode == (self.seed + self.episode) % 3 + 1
        truncated = ended and self.episode % 2 == 0
        reward = 100 * self.episode + 10 * self.step_in_episode + action
        return self._observe(action), reward, ended and not truncated, truncated, {}

    def _observe(self, action):
        return np.array([self.episode, self.step_in_episode, action], np.float64)

    def render(self):
        return np.full((4, 4, 3), self.step_in_episode, np.uint8)


class Recycler(Counter):
    """Gives out one array for all its observations and overwrites it."""

    memory = None

    def _observe(self, action):
        if self.memory is None:
            self.memory = np.zeros(3)
        self.memory[:] = self.episode, self.step_in_episode, action
        return self.memory


class Bounded(gymnasium.Env):
    """Shows the action it was given."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 1), np.uint8)
    action_space = gymnasium.spaces.Box(
        np.array([-1.0, -2.0]), np.array([1.0, 2.0]), dtype=np.float64
    )

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 1), np.uint8), {}

    def step(self, action):
        assert action.dtype == np.float64 and action.shape == (2,)
        return np.full((2, 1), 200, np.uint8), float(action @ [1.0, 10.0]), False, False, {}


class Masked(Counter):
    """Counter's episodes, seen as named fields; two of its three actions are valid, others raise."""

    observation_space = gymnasium.spaces.Dict(
        {
            "place": gymnasium.spaces.Dict(
                {
                    "numbers": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64),
                    "kind": gymnasium.spaces.Discrete(3, start=1),
                }
            ),
            "flags": gymnasium.spaces.MultiBinary(2),
            "action_mask": gymnasium.spaces.Box(0, 1, (3,), np.int8),
        }
    )
    action_space = gymnasium.spaces.Discrete(3)

    def step(self, action):
        if not self._mask()[action]:
            raise ValueError(f"action {action} is not valid")
        return super().step(action)

    def _mask(self):
        mask = np.ones(3, np.int8)
        mask[(self.episode + self.step_in_episode) % 3] = 0
        return mask

    def _observe(self, action):
        numbers = np.array([self.episode, self.step_in_episode], np.float64)
        return {
            "place": {"numbers": numbers, "kind": 1 + self.step_in_episode % 3},
            "flags": np.array([self.episode % 2, 1], np.int8),
            "action_mask": self._mask(),
        }


class Failing(Counter):
    """Does something bad in the third step of the episodes of one seed; others last for ever."""

    def __init__(self, how: str = "sleep", seed: int = 7):
        super().__init__()
        self.how, self.bad_seed = how, seed

    def step(self, action):
        self.step_in_episode += 1
        if self.step_in_episode == 3 and self.seed == self.bad_seed:
            if self.how == "sleep":
                time.sleep(3600)
            if self.how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "exit":
                os._exit(5)
            raise ValueError("the wheel came off")
        return self._observe(action), 1.0, False, False, {}


for entry_point in (Counter, Recycler, Bounded, Masked, Failing):
    gymnasium.register(f"Test{entry_point.__name__}-v0", entry_point=entry_point)
