"""Gymnasium environments by their names, or the user's own (`own.py`), as pools on the host.

Without workers they step one after the other in this process (`gymnasium_pools.py`), else in processes
of their own (`workers.py`).
"""

import inspect
import os
import sys
import warnings
from contextlib import closing
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from proxima.core.errors import ProximaError
from proxima.core.extras import missing_extra, needs_extra
from proxima.core.functions import note_import
from proxima.core.spaces import ObservationSpace, Space
from proxima.domains.control import atari
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.gymnasium_pools import GymnasiumPool
from proxima.domains.control.gymnasium_spaces import Translation, translate
from proxima.domains.control.own import make_own
from proxima.domains.control.wrappers import wrapped
from proxima.domains.environments import suggestion

ALE = "ALE/"  # what the names of Atari's games begin with
BOX2D = ("Box2D", "pygame")  # modules that the extra box2d installs


def make_pool(config: EnvConfig, num_envs: int, render: bool = False) -> GymnasiumPool:
    """`num_envs` of the named environment; `render` asks for pictures where it can draw any."""
    if render:
        with closing(make_env(config)) as env:
            render = "rgb_array" in (env.metadata.get("render_modes") or ())
    return GymnasiumPool(config.name, [make_env(config, render) for _ in range(num_envs)])


def spaces(config: EnvConfig) -> tuple[ObservationSpace, Space]:
    """What the named environment observes, and which actions it takes."""
    found = translation(config)
    return found.observation_space, found.action_space


def translation(config: EnvConfig) -> Translation:
    """The named environment's spaces as ours, and the ways between."""
    with closing(make_env(config)) as env:
        return translate(config.name, env.observation_space, env.action_space)


def module_of(name: str) -> str | None:
    """The module that defines the environment, if it was registered from within Python."""
    spec = gymnasium.registry.get(name)
    if spec is None or spec.entry_point is None:
        return None
    if isinstance(spec.entry_point, str):
        return spec.entry_point.partition(":")[0]
    return spec.entry_point.__module__


def has(name: str) -> bool:
    """Whether Gymnasium can make an environment of this name."""
    try:
        gymnasium.spec(name)
    except (gymnasium.error.Error, ModuleNotFoundError):
        return False
    return True


def names() -> list[str]:
    """The names that are registered with Gymnasium."""
    return list(gymnasium.registry)


def _without_devices() -> None:
    """Pictures of SDL (pygame) need no sound and, where there is no screen, no window; else it complains."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    has_screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if sys.platform == "linux" and not has_screen:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def make_env(config: EnvConfig, render: bool = False) -> Any:
    """One environment in its wrappers, or in words why there is none."""
    _without_devices()
    env = make_own(config, render) if config.is_own else _make_named(config, render)
    try:
        return wrapped(env, config)
    except ProximaError:
        env.close()
        raise


def _make_named(config: EnvConfig, render: bool) -> Any:
    """The environment that Gymnasium has under the name."""
    # The checker only warns, and once; what it would find, the pool meets as an error of its own.
    settings: dict[str, Any] = {
        "disable_env_checker": True,
        **config.params,
        **atari.ale_settings(config),
    }
    if config.max_steps_per_episode is not None and config.atari is None:
        settings["max_episode_steps"] = config.max_steps_per_episode
    if render:
        settings["render_mode"] = "rgb_array"
    name = config.name
    if name.startswith(ALE) and name not in gymnasium.registry:
        _register_atari(name)
    try:
        with warnings.catch_warnings():
            # Box2D's, made by SWIG; turned into an error, it ends the whole process.
            warnings.filterwarnings("ignore", "builtin type", DeprecationWarning)
            env = gymnasium.make(name, **settings)
        if ":" in name:
            note_import(name.partition(":")[0])
        return atari.wrapped(env, config)
    except gymnasium.error.DependencyNotInstalled as error:
        missing = error.__cause__.name if isinstance(error.__cause__, ImportError) else None
        if missing in BOX2D:
            raise missing_extra("box2d", f"env.name: {name}", missing) from error
        raise ProximaError(f"env.name: {name} needs a package that is missing: {error}") from error
    except gymnasium.error.UnregisteredEnv as error:
        elsewhere = 'an environment of another package is named "package:Name-v0"'
        hint = suggestion(name, gymnasium.registry, otherwise=elsewhere)
        raise ProximaError(f"env.name: Gymnasium has no {name!r}; {hint}") from error
    except ModuleNotFoundError as error:
        raise ProximaError(f"env.name: {name}{_missing_module(name, error)}") from error
    except TypeError as error:
        raise ProximaError(
            f"env.params: {name} refuses {dict(config.params)}: {error}; "
            f"its settings: {', '.join(_settings_of(name)) or 'none'}"
        ) from error
    except Exception as error:
        raise ProximaError(
            f"env.name: Gymnasium could not make {name}: {type(error).__name__}: {error}"
        ) from error


def _register_atari(name: str) -> None:
    """Makes Gymnasium know the games of ALE, which then says nothing of itself."""
    with needs_extra("atari", f"env.name: {name}"):
        import ale_py
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def _missing_module(name: str, error: ModuleNotFoundError) -> str:
    """In words which module is missing; never whose it is: anyone may own that name on an index."""
    own = name.partition(":")[0] if ":" in name else None
    module = error.name or own  # Gymnasium raises its own without the name
    advice = "it must be installed, or stand in the working directory or beside the scenario's file"
    if module is not None and own is not None and own.split(".")[0] == module.split(".")[0]:
        return f": there is no module {module}; {advice}"
    return f" needs the module {module}, which is missing; {advice}"


def _settings_of(name: str) -> list[str]:
    entry_point = gymnasium.spec(name).entry_point
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    parameters = inspect.signature(creator).parameters if creator is not None else ()
    return [setting for setting in parameters if setting not in ("render_mode", "kwargs")]
