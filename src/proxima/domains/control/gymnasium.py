"""Gymnasium environments as pools on the host, right in each of its three autoreset modes.

    same step   the row that ends an episode already holds the next one's first observation
    next step   the row after an ending is a fake one: the action is ignored, the environment resets
    disabled    nobody resets; the pool does, environment by environment

A pool hides the mode: `obs` is what to act on, `next_obs` what the action led to, and `mask` is
False in fake rows. Left out on purpose: worker processes, for which `wrap_pool` takes an
AsyncVectorEnv. What spaces there may be is in `gymnasium_spaces.py`.
"""

import difflib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.spaces import Space
from proxima.core.types import HostStep
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium_spaces import translate

Autoreset = Literal["same_step", "next_step", "disabled"]


@final
class GymnasiumPool:
    """Single environments in a plain loop, which costs less than SyncVectorEnv's bookkeeping.

    It also knows which environment raised, and copies a final observation before the reset, so that
    an environment may reuse its observation's memory.
    """

    def __init__(self, name: str, envs: Sequence[Any]):
        self._spaces = translate(name, envs[0].observation_space, envs[0].action_space)
        self.observation_space = self._spaces.observation_space
        self.action_space = self._spaces.action_space
        self.num_envs = len(envs)
        self._name = name
        self._envs = list(envs)
        self._real = np.ones(self.num_envs, bool)
        self._real.flags.writeable = False  # every step hands out this one array
        self._steps = 0

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """First observations of fresh episodes, environment i seeded with seeds[i]."""
        obs = self._empty()
        self._steps = 0
        for index, (env, seed) in enumerate(zip(self._envs, seeds, strict=True)):
            try:
                obs[index] = env.reset(seed=int(seed))[0]
            except Exception as error:
                raise self._failure(index, error) from error
        return self._from_zero(obs)

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment; those that end are reset at once."""
        next_obs = self._empty()
        reward = np.empty(self.num_envs, np.float32)
        terminated = np.empty(self.num_envs, bool)
        truncated = np.empty(self.num_envs, bool)
        after: dict[int, Any] = {}
        self._steps += 1
        index = 0
        try:
            for index, action in enumerate(self._spaces.to_env(actions)):
                env = self._envs[index]
                next_obs[index], reward[index], ended, cut, _ = env.step(action)
                terminated[index], truncated[index] = ended, cut
                if ended or cut:
                    after[index] = env.reset()[0]
        except Exception as error:
            raise self._failure(index, error) from error
        obs = next_obs
        if after:
            obs = next_obs.copy()
            for index, first in after.items():
                obs[index] = first
        obs, next_obs = self._from_zero(obs), self._from_zero(next_obs)
        return HostStep(obs, reward, terminated, truncated, next_obs, self._real)

    def render(self) -> np.ndarray | None:
        """A picture of the first environment, or None where it draws none."""
        return _picture(self._envs[0], self._envs[0].render)

    def close(self) -> None:
        """Frees the environments; a second call does nothing."""
        for env in self._envs:
            env.close()
        self._envs = []

    def _empty(self) -> np.ndarray:
        return np.empty((self.num_envs, *self.observation_space.shape), self._spaces.dtype)

    def _from_zero(self, obs: np.ndarray) -> np.ndarray:
        return obs - self._spaces.start if self._spaces.start else obs

    def _failure(self, index: int, error: Exception) -> ProximaError:
        return ProximaError(
            f"{self._name}: environment {index} of {self.num_envs} raised {type(error).__name__} "
            f"at step {self._steps} after the pool's reset: {error} (the fault is the "
            "environment's own, or that of its settings under env.params)"
        )


@final
class VectorPool:
    """Somebody else's gymnasium.vector.VectorEnv, in whichever autoreset mode it has."""

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

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """First observations of fresh episodes; a single generator takes the first seed."""
        import gymnasium

        seeds = [int(seed) for seed in seeds]
        self._ended = np.zeros(self.num_envs, bool)
        self._steps = 0
        try:
            try:
                obs, _ = self._vector_env.reset(seed=seeds)
            except gymnasium.error.Error:
                obs, _ = self._vector_env.reset(seed=seeds[0])
        except Exception as error:
            raise self._failure(error) from error
        return self._own(obs)

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment; in next-step mode some rows may be fake."""
        self._steps += 1
        try:
            return self._step(self._spaces.to_env(actions))
        except ProximaError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _step(self, actions: np.ndarray) -> HostStep:
        obs, reward, terminated, truncated, infos = self._vector_env.step(actions)
        obs = self._own(obs)
        # A fake row carries nothing, whatever a vector environment puts there.
        mask = ~self._ended if self._mode == "next_step" else np.ones(self.num_envs, bool)
        reward = np.where(mask, reward, 0.0).astype(np.float32)
        terminated, truncated = terminated & mask, truncated & mask
        ended = terminated | truncated
        next_obs = obs
        if self._mode == "next_step":
            self._ended = ended
        elif ended.any() and self._mode == "same_step":
            next_obs = self._with_final(obs, ended, infos)
        elif ended.any():
            # The options are a fresh dict and mask: SyncVectorEnv takes the mask out of the dict.
            first, _ = self._vector_env.reset(options={"reset_mask": ended.copy()})
            obs = next_obs.copy()
            obs[ended] = self._own(first)[ended]
        return HostStep(obs, reward, terminated, truncated, next_obs, mask)

    def _with_final(self, obs: np.ndarray, ended: np.ndarray, infos: dict) -> np.ndarray:
        if "final_obs" not in infos:
            raise ProximaError(
                f"{self._name}: an episode ended in same-step autoreset mode, but the step's info "
                "has no 'final_obs', without which truncated episodes have no value; "
                "use next-step mode"
            )
        before = obs.copy()
        for index in np.flatnonzero(ended):
            before[index] = self._own(infos["final_obs"][index])
        return before

    def render(self) -> np.ndarray | None:
        """A picture of the first environment, or None where it draws none."""
        return _picture(self._vector_env, lambda: self._vector_env.render()[0])

    def close(self) -> None:
        """Frees the vector environment."""
        self._vector_env.close()

    def _own(self, obs: Any) -> np.ndarray:
        # A copy always: vector environments may write each step into the same memory.
        start, dtype = self._spaces.start, self._spaces.dtype
        return np.array(obs, dtype) - np.asarray(start, dtype)

    def _failure(self, error: Exception) -> ProximaError:
        return ProximaError(
            f"{self._name}: raised {type(error).__name__} at step {self._steps} after the pool's "
            f"reset: {error} (the fault is the environment's own)"
        )


def make_pool(
    config: EnvConfig, num_envs: int, autoreset: Autoreset = "same_step", render: bool = False
) -> GymnasiumPool | VectorPool:
    """`num_envs` of the named environment; `render` asks for pictures where it can draw any."""
    render = render and _can_draw(config)
    if autoreset == "same_step":
        return GymnasiumPool(config.name, [_make_env(config, render) for _ in range(num_envs)])
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    mode = AutoresetMode.NEXT_STEP if autoreset == "next_step" else AutoresetMode.DISABLED
    return VectorPool(
        SyncVectorEnv(
            [lambda: _make_env(config, render)] * num_envs, copy=False, autoreset_mode=mode
        )
    )


def spaces(config: EnvConfig) -> tuple[Space, Space]:
    """What the named environment observes, and which actions it takes."""
    env = _make_env(config, render=False)
    try:
        translation = translate(config.name, env.observation_space, env.action_space)
        return translation.observation_space, translation.action_space
    finally:
        env.close()


def wrap_pool(vector_env: Any) -> VectorPool:
    """A gymnasium.vector.VectorEnv made elsewhere as a pool; it must tell its autoreset mode."""
    return VectorPool(vector_env)


def _make_env(config: EnvConfig, render: bool) -> Any:
    """One environment, or in words why there is none."""
    import gymnasium

    # The checker only warns, and once; what it would find, the pool meets as an error of its own.
    settings: dict[str, Any] = {"disable_env_checker": True, **config.params}
    if config.max_steps_per_episode is not None:
        settings["max_episode_steps"] = config.max_steps_per_episode
    if render:
        settings["render_mode"] = "rgb_array"
    name = config.name
    try:
        return gymnasium.make(name, **settings)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ProximaError(f"env.name: {name} needs a package that is missing: {error}") from error
    except gymnasium.error.UnregisteredEnv as error:
        raise ProximaError(f"env.name: Gymnasium has no {name!r}; {_near(name)}") from error
    except ModuleNotFoundError as error:
        module = error.name or name.partition(":")[0]  # Gymnasium raises its own without the name
        raise ProximaError(
            f"env.name: {name} needs the module {module!r}, which is missing: pip install {module}"
        ) from error
    except TypeError as error:
        raise ProximaError(
            f"env.params: {name} refuses {dict(config.params)}: {error}; "
            f"its settings: {', '.join(_settings_of(name)) or 'none'}"
        ) from error
    except Exception as error:
        raise ProximaError(
            f"env.name: Gymnasium could not make {name}: {type(error).__name__}: {error}"
        ) from error


def _near(name: str) -> str:
    import gymnasium

    if name.startswith("ALE/"):
        return f'Atari is a package apart: pip install ale-py, then name it "ale_py:{name}"'
    near = difflib.get_close_matches(name, gymnasium.registry, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return 'an environment of another package is named "package:Name-v0"'


def _settings_of(name: str) -> list[str]:
    from gymnasium.envs.registration import load_env_creator, spec

    entry_point = spec(name).entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    names = inspect.signature(creator).parameters if creator is not None else ()
    return [setting for setting in names if setting not in ("render_mode", "kwargs")]


def _can_draw(config: EnvConfig) -> bool:
    env = _make_env(config, render=False)
    modes = env.metadata.get("render_modes") or ()
    env.close()
    return "rgb_array" in modes


def _picture(env: Any, draw: Callable[[], Any]) -> np.ndarray | None:
    import gymnasium

    if env.render_mode != "rgb_array":
        return None
    try:
        return np.asarray(draw())
    except (gymnasium.error.DependencyNotInstalled, ImportError):
        return None


def _autoreset_mode(vector_env: Any) -> Autoreset:
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

    inner = vector_env.unwrapped
    if isinstance(inner, SyncVectorEnv | AsyncVectorEnv):
        # Not from their metadata: that dict belongs to the single environment's class, and the last
        # vector environment made of that class has overwritten what the others said.
        mode = inner.autoreset_mode
    elif "autoreset_mode" in vector_env.metadata:
        mode = AutoresetMode(vector_env.metadata["autoreset_mode"])
    else:
        raise ProximaError(
            f"{vector_env}: its metadata do not say how it resets; set "
            "metadata['autoreset_mode'] to a gymnasium.vector.AutoresetMode"
        )
    names: dict[Any, Autoreset] = {
        AutoresetMode.SAME_STEP: "same_step",
        AutoresetMode.NEXT_STEP: "next_step",
        AutoresetMode.DISABLED: "disabled",
    }
    return names[mode]
