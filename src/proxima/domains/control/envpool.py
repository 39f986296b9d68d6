"""EnvPool's environments as pools: stepped in C++ threads while Python does something else.

EnvPool resets in the step after an ending, whose row is a fake one: the action is ignored, `mask` is
False. Its seeds are fixed when a pool is made, so a reset makes a new one (milliseconds). A pool's rows
keep the order of its environments, whichever thread is done first. EnvPool cannot tell of an environment
that hangs: threads share this process.
"""

import difflib
import warnings
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.core.spaces import ObservationSpace, Space
from proxima.core.types import HostStep
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium_spaces import translate

# What EnvPool's make takes and we set ourselves.
OURS = frozenset(
    {"num_envs", "batch_size", "num_threads", "max_num_players", "seed", "env_seed", "base_path"}
    | {"gym_reset_return_info", "max_episode_steps", "reward_threshold", "thread_affinity_offset"}
)


@final
class EnvPool:
    """One EnvPool, made anew at every reset."""

    def __init__(self, config: EnvConfig, num_envs: int, render: bool):
        self._config = config
        self._render = render
        self._spaces = _translation(config)
        self.observation_space = self._spaces.observation_space
        self.action_space = self._spaces.action_space
        self.num_envs = num_envs
        self._pool: Any = None
        self._ended = np.zeros(num_envs, bool)

    def reset(self, seeds: Sequence[int]) -> Any:
        """First observations of fresh episodes, environment i seeded with seeds[i]."""
        self._pool = _make(
            self._config,
            num_envs=self.num_envs,
            seed=[int(seed) for seed in seeds],
            num_threads=self._config.workers,
            **({"render_mode": "rgb_array"} if self._render else {}),
        )
        self._ended = np.zeros(self.num_envs, bool)
        obs, _ = self._pool.reset()
        return self._spaces.rows(obs)

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment; those that ended before only reset."""
        self.send(actions)
        return self.receive()

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of every environment."""
        self._pool.send(self._spaces.to_env(actions))

    def receive(self) -> HostStep:
        """The step that was started last."""
        observed, reward, terminated, truncated, _ = self._pool.recv()
        obs = self._spaces.rows(observed)
        mask = ~self._ended
        self._ended = terminated | truncated  # a fake row says neither, and its reward is 0
        return HostStep(obs, np.asarray(reward, np.float32), terminated, truncated, obs, mask)

    def render(self) -> np.ndarray | None:
        """A picture of the first environment, or None where it draws none."""
        if not self._render:
            return None
        try:
            return np.asarray(self._pool.render()[0])
        except RuntimeError:  # not every environment of EnvPool can be drawn
            return None

    def close(self) -> None:
        """Frees the pool and its threads."""
        self._pool = None


def make_pool(config: EnvConfig, num_envs: int, render: bool = False) -> EnvPool:
    """`num_envs` of the named environment; `render` asks for pictures where it can draw any."""
    return EnvPool(config, num_envs, render)


def spaces(config: EnvConfig) -> tuple[ObservationSpace, Space]:
    """What the named environment observes, and which actions it takes."""
    translation = _translation(config)
    return translation.observation_space, translation.action_space


def _translation(config: EnvConfig) -> Any:
    pool = _make(config, num_envs=1)
    return translate(config.name, pool.observation_space, pool.action_space)


def _make(config: EnvConfig, **settings: Any) -> Any:
    """An EnvPool, or in words why there is none."""
    envpool = _import_envpool()
    name = config.name
    if name not in envpool.list_all_envs():
        near = difflib.get_close_matches(name, envpool.list_all_envs(), 3, 0.5)
        told = f"did you mean {' or '.join(near)}? " if near else ""
        raise ProximaError(
            f"env.name: EnvPool has no {name!r}; {told}(any Gymnasium env runs with "
            "env.backend=gymnasium, several at once with env.workers)"
        )
    spec = envpool.make_spec(name).config
    if spec.max_num_players > 1:
        raise ProximaError(
            f"env.name: {name} is a game of several players; only one can learn here"
        )
    known = {key for key in spec._fields if key not in OURS}
    for key in config.params:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has: {', '.join(sorted(known))}"
            raise ProximaError(f"env.params.{key}: EnvPool's {name} has no such setting; {hint}")
    if config.max_steps_per_episode is not None:
        settings["max_episode_steps"] = config.max_steps_per_episode
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's, on bounds that EnvPool gives as doubles
            pool = envpool.make(name, env_type="gymnasium", **config.params, **settings)
            _ = pool.observation_space  # made when first asked for, with those warnings
            return pool
    except Exception as error:
        raise ProximaError(
            f"env.name: EnvPool could not make {name} with {dict(config.params)}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _import_envpool() -> Any:
    with needs_extra("envpool", "env.backend: envpool"):
        import envpool
    return envpool
