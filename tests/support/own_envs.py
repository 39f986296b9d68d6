"""Environments as a user writes them, in a module: light to import, for worker processes do so too."""

import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    """Right is right: a reward of 1 at the end of a short corridor."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int = 4):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return self._observe(), {}

    def step(self, action):
        self.place, self.time = max(0, self.place + (1 if action == 1 else -1)), self.time + 1
        ended = self.place == self.size
        return self._observe(), float(ended), ended, not ended and self.time == 20, {}

    def _observe(self):
        return np.array([self.place / self.size], np.float32)


def make_corridor(size: int = 4):
    return Corridor(size)


class Uncopyable(Corridor):
    """Holds what cannot be copied."""

    def __deepcopy__(self, memory):
        raise TypeError("it holds a window")


corridor = Corridor(3)
no_environment = 7


def make_nothing():
    return "nothing"


def raises():
    raise OSError("no such simulator")
