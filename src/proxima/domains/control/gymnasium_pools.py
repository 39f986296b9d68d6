"""A pool of Gymnasium environments in this process.

An environment that ends is reset at once: `obs` is what to act on, `next_obs` what the action led to.
What spaces there may be is in `gymnasium_spaces.py`.
"""

from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.spaces import zeros
from proxima.core.types import HostStep
from proxima.domains.control.gymnasium_spaces import by_field, translate


@final
class GymnasiumPool:
    """Single environments in a plain loop, which costs less than SyncVectorEnv's bookkeeping.

    It also knows which environment raised, and copies a final observation before the reset, so that
    an environment may reuse its observation's memory. `first` and `total` number its environments
    among those of a larger pool.
    """

    def __init__(self, name: str, envs: Sequence[Any], first: int = 0, total: int | None = None):
        self._spaces = translate(name, envs[0].observation_space, envs[0].action_space)
        self.observation_space = self._spaces.observation_space
        self.action_space = self._spaces.action_space
        self.num_envs = len(envs)
        self._name = name
        self._first = first
        self._total = len(envs) if total is None else total
        self._envs = list(envs)
        self._sent: np.ndarray
        self._real = np.ones(self.num_envs, bool)
        self._real.flags.writeable = False  # every step hands out this one array
        self._steps = 0

    def reset(self, seeds: Sequence[int]) -> Any:
        """First observations of fresh episodes, environment i seeded with seeds[i]."""
        obs = zeros(self.observation_space, (self.num_envs,))
        self._steps = 0
        for index, (env, seed) in enumerate(zip(self._envs, seeds, strict=True)):
            try:
                self._spaces.put(obs, index, env.reset(seed=int(seed))[0])
            except Exception as error:
                raise self._failure(index, error) from error
        return obs

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment; those that end are reset at once."""
        put = self._spaces.put
        next_obs = zeros(self.observation_space, (self.num_envs,))
        reward = np.empty(self.num_envs, np.float32)
        terminated = np.empty(self.num_envs, bool)
        truncated = np.empty(self.num_envs, bool)
        after: dict[int, Any] = {}
        self._steps += 1
        index = 0
        try:
            for index, action in enumerate(self._spaces.singles(actions)):
                env = self._envs[index]
                observed, reward[index], ended, cut, _ = env.step(action)
                put(next_obs, index, observed)
                terminated[index], truncated[index] = ended, cut
                if ended or cut:
                    after[index] = env.reset()[0]
        except Exception as error:
            raise self._failure(index, error) from error
        obs = next_obs
        if after:
            obs = by_field(np.array, next_obs)
            for index, first in after.items():
                put(obs, index, first)
        return HostStep(obs, reward, terminated, truncated, next_obs, self._real)

    def send(self, actions: np.ndarray) -> None:
        """Keeps the actions until `receive`: nothing steps beside this process."""
        self._sent = actions

    def receive(self) -> HostStep:
        """The step of the actions sent."""
        return self.step(self._sent)

    def render(self) -> np.ndarray | None:
        """A picture of the first environment, or None where it draws none."""
        if self._envs[0].render_mode != "rgb_array":
            return None
        try:
            return np.asarray(self._envs[0].render())
        except (gymnasium.error.DependencyNotInstalled, ImportError):
            return None

    def close(self) -> None:
        """Frees the environments; a second call does nothing."""
        for env in self._envs:
            env.close()
        self._envs = []

    def _failure(self, index: int, error: Exception) -> ProximaError:
        return ProximaError(
            f"{self._name}: environment {self._first + index} of {self._total} raised "
            f"{type(error).__name__} at step {self._steps} after the pool's reset: {error} (the fault is "
            "the environment's own, or that of its settings under env.params)"
        )
