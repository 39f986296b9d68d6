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


class Scaled(gymnasium.ObservationWrapper):
    """What is seen, so many times as large."""

    def __init__(self, env: gymnasium.Env, by: float):
        super().__init__(env)
        low, high = by * env.observation_space.low, by * env.observation_space.high
        self.observation_space, self.by = gymnasium.spaces.Box(low, high), by

    def observation(self, observation):
        return self.by * observation


def shifted(env: gymnasium.Env, by: float = 1.0):
    """What is seen, more by so much."""
    space = gymnasium.spaces.Box(env.observation_space.low + by, env.observation_space.high + by)
    return gymnasium.wrappers.TransformObservation(env, lambda seen: seen + np.float32(by), space)


class Parted(gymnasium.ActionWrapper):
    """Two tables turn one action: its parts must agree, or nothing moves; what is seen comes in a tuple."""

    action_space = gymnasium.spaces.Dict(
        {
            "left": gymnasium.spaces.Discrete(2),
            "others": gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3, start=5)]),
        }
    )

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Tuple([env.observation_space])

    def action(self, action):
        assert self.action_space.contains(action), action
        return int(action["left"] == 0 and action["others"][0] == 7)

    def reset(self, **settings):
        observed, info = self.env.reset(**settings)
        return (observed,), info

    def step(self, action):
        observed, *rest = super().step(action)
        return (observed,), *rest


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
