"""Pools of Gymnasium environments in this process, right in each of its three autoreset modes.

    same step   the row that ends an episode already holds the next one's first observation
    next step   the row after an ending is a fake one: the action is ignored, the environment resets
    disabled    nobody resets; the pool does, environment by environment

A pool hides the mode: `obs` is what to act on, `next_obs` what the action led to, and `mask` is
False in fake rows. What spaces there may be is in `gymnasium_spaces.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import setitem
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

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
            for index, action in enumerate(self._spaces.to_env(actions)):
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
        return _picture(self._envs[0], self._envs[0].render)

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


@final
class VectorPool:
    """Somebody else's gymnasium.vector.VectorEnv, in whichever autoreset mode it says that it has."""

    def __init__(self, vector_env: Any):
        self._name = str(vector_env)
        self._mode = _autoreset_mode(vector_env)
        self._spaces = translate(
            self._name, vector_env.single_observation_space, vector_env.single_action_space
        )
        self.observation_space = self._spaces.observation_space
        self.action_space = self._spaces.action_space
        self.num_envs = int(vector_env.num_envs)
        self._vector_env = vector_env
        self._ended = np.zeros(self.num_envs, bool)
        self._steps = 0
        self._sent: np.ndarray

    def reset(self, seeds: Sequence[int]) -> Any:
        """First observations of fresh episodes; a single generator takes the first seed."""
        seeds = [int(seed) for seed in seeds]
        self._ended = np.zeros(self.num_envs, bool)
        self._steps = 0
        with self._failures_named():
            try:
                obs, _ = self._vector_env.reset(seed=seeds)
            except gymnasium.error.Error:
                obs, _ = self._vector_env.reset(seed=seeds[0])
        return self._own(obs)

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment; in next-step mode some rows may be fake."""
        self._steps += 1
        with self._failures_named():
            given, reward, terminated, truncated, infos = self._vector_env.step(
                self._spaces.to_env(actions)
            )
            obs = next_obs = self._own(given)
            # A fake row carries nothing, whatever a vector environment puts there.
            fake = (
                self._ended if self._mode is AutoresetMode.NEXT_STEP else np.zeros_like(terminated)
            )
            reward = np.where(fake, 0.0, reward).astype(np.float32)
            terminated, truncated = terminated & ~fake, truncated & ~fake
            self._ended = ended = terminated | truncated
            if ended.any() and self._mode is AutoresetMode.SAME_STEP:
                next_obs = by_field(np.array, obs)
                for index in np.flatnonzero(ended).tolist():
                    self._spaces.put(next_obs, index, self._final_obs(infos)[index])
            elif ended.any() and self._mode is AutoresetMode.DISABLED:
                # The options are a fresh dict and mask: SyncVectorEnv takes the mask out of the dict.
                first, _ = self._vector_env.reset(options={"reset_mask": ended.copy()})
                obs = by_field(np.array, next_obs)
                by_field(lambda rows, new: setitem(rows, ended, new[ended]), obs, self._own(first))
        return HostStep(obs, reward, terminated, truncated, next_obs, ~fake)

    def _final_obs(self, infos: dict[str, Any]) -> Any:
        if "final_obs" not in infos:
            raise ProximaError(
                f"{self._name}: an episode ended in same-step autoreset mode, but the step's info "
                "has no 'final_obs', without which truncated episodes have no value; "
                "use next-step mode"
            )
        return infos["final_obs"]

    def send(self, actions: np.ndarray) -> None:
        """Keeps the actions until `receive`: nothing steps beside this process."""
        self._sent = actions

    def receive(self) -> HostStep:
        """The step of the actions sent."""
        return self.step(self._sent)

    def render(self) -> np.ndarray | None:
        """A picture of the first environment, or None where it draws none."""
        return _picture(self._vector_env, lambda: self._vector_env.render()[0])

    def close(self) -> None:
        """Frees the vector environment."""
        self._vector_env.close()

    def _own(self, obs: Any) -> Any:
        # A copy always: vector environments may write each step into the same memory.
        return by_field(np.array, self._spaces.rows(obs))

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except ProximaError:
            raise
        except Exception as error:
            raise ProximaError(
                f"{self._name}: raised {type(error).__name__} at step {self._steps} after the pool's "
                f"reset: {error} (the fault is the environment's own)"
            ) from error


def _picture(env: Any, draw: Callable[[], Any]) -> np.ndarray | None:
    if env.render_mode != "rgb_array":
        return None
    try:
        return np.asarray(draw())
    except (gymnasium.error.DependencyNotInstalled, ImportError):
        return None


def _autoreset_mode(vector_env: Any) -> AutoresetMode:
    inner = vector_env.unwrapped
    if isinstance(inner, SyncVectorEnv | AsyncVectorEnv):
        # Not from their metadata: that dict belongs to the single environment's class, and the last
        # vector environment made of that class has overwritten what the others said.
        return inner.autoreset_mode
    if "autoreset_mode" in vector_env.metadata:
        return AutoresetMode(vector_env.metadata["autoreset_mode"])
    raise ProximaError(
        f"{vector_env}: its metadata do not say how it resets; set "
        "metadata['autoreset_mode'] to a gymnasium.vector.AutoresetMode"
    )
