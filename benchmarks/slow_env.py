"""A Gymnasium environment that waits a millisecond per step, as a simulator elsewhere would."""

import time

import gymnasium
import numpy as np


class Slow(gymnasium.Env):
    """Four numbers, two actions, episodes of 100 steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        time.sleep(0.001)
        return self._observe(), 1.0, False, self.steps == 100, {}

    def _observe(self):
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)


gymnasium.register("Slow-v0", entry_point=Slow)
