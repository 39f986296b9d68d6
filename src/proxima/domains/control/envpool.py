"""EnvPool's environments as pools: stepped in C++ threads while Python does something else.

EnvPool resets in the step after an ending, whose row is a fake one: the action is ignored, `mask` is
False. Its seeds are fixed when a pool is made, so a reset makes a new one (milliseconds). A pool's rows
keep the order of its environments, whichever thread is done first. EnvPool cannot tell of an environment
that hangs: threads share this process.
"""

import warnings
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.core.types import HostStep
from proxima.domains.control.atari import envpool_settings
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium_spaces import translate
from proxima.domains.environments import check_params, suggestion

# What EnvPool's make takes and we set ourselves.
OURS = frozenset(
    {"num_envs", "batch_size", "num_threads", "max_num_players", "seed", "env_seed", "base_path"}
    | {"gym_reset_return_info", "max_episode_steps", "reward_threshold", "thread_affinity_offset"}
)


@final
class EnvPool:
    """One EnvPool, made anew at every reset."""

    def __init__(self, config: EnvConfig, num_envs: int, render: bool = False):
        self._config = config
        pool = _make(config, num_envs=1)
        self._render = render and not _draws_by_opengl(pool)
        try:
            self.spaces = translate(config.name, pool.observation_space, pool.action_space)
        except ProximaError as error:
            raise ProximaError(f"{error} (EnvPool's take no wrappers, Gymnasium's do)") from error
        self.observation_space = self.spaces.observation_space
        self.action_space = self.spaces.action_space
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
        return self.spaces.rows(obs)

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment; those that ended before only reset."""
        self.send(actions)
        return self.receive()

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of every environment."""
        self._pool.send(self.spaces.to_env(actions))

    def receive(self) -> HostStep:
        """The step that was started last."""
        observed, reward, terminated, truncated, _ = self._pool.recv()
        obs = self.spaces.rows(observed)
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


def _draws_by_opengl(pool: Any) -> bool:
    """Whether a picture needs OpenGL: without a display MuJoCo's ends the whole process, not the call."""
    return any(kind.__module__.startswith("envpool.mujoco") for kind in type(pool).__mro__)


def _make(config: EnvConfig, **settings: Any) -> Any:
    """An EnvPool, or in words why there is none."""
    with needs_extra("envpool", "env.backend: envpool"):
        import envpool
    name = config.name
    if name not in envpool.list_all_envs():
        all_names = "envpool.list_all_envs() names all"  # there are thousands
        hint = suggestion(name, envpool.list_all_envs(), otherwise=all_names)
        raise ProximaError(
            f"env.name: EnvPool has no {name!r}; {hint} (any Gymnasium env runs with "
            "env.backend=gymnasium, several at once with env.workers)"
        )
    spec = envpool.make_spec(name).config
    if spec.max_num_players > 1:
        raise ProximaError(
            f"env.name: {name} is a game of several players; only one can learn here"
        )
    known = {key: value for key, value in spec._asdict().items() if key not in OURS}
    check_params(config.params, known, f"EnvPool's {name}")
    settings |= envpool_settings(config, known)
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
