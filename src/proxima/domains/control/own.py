"""Environments of the user's own, by the path that `env.backend` says.

    env: {backend: "my_module:make_env", params: {size: 4}}

    a class of gymnasium.Env, or a function that gives one    called with env.params for every copy
    an instance of gymnasium.Env    copied: made again from its `spec` where Gymnasium made it, so that what
                                    was changed in it later is not in the copies; else by copy.deepcopy
    a compiled environment          what core.types.Env describes; or a class or a function that gives one

JAX is never imported here: worker processes make environments with this file too.
"""

import copy
import inspect
from typing import Any

from proxima.core.errors import ProximaError
from proxima.core.functions import object_at
from proxima.core.spaces import Box, Fields
from proxima.domains.control.config import EnvConfig

KINDS = (
    "a gymnasium.Env (class, instance, or a function that gives one) or a compiled environment with "
    "reset(key) and step(state, action, key)"
)


def is_own(config: EnvConfig) -> bool:
    """Whether the backend is a path to the user's own."""
    return ":" in config.backend


def is_compiled(thing: Any) -> bool:
    """Whether this is an instance of what core.types.Env describes: its spaces are ours, not Gymnasium's."""
    space = getattr(thing, "observation_space", None)
    return not isinstance(thing, type) and isinstance(space, Box | Fields)


def make_own(config: EnvConfig, render: bool = False) -> Any:
    """One environment of the user's own: of Gymnasium, no other run has it; or a compiled one, as it is."""
    thing = object_at(config.backend, "env.backend", "environment")
    if is_compiled(thing):
        _refuse_params(config, "compiled environment")
        return thing
    if _is_gymnasium(thing):
        _refuse_params(config, "instance")
        return _limited(_copied(thing, config, render), config)
    if not callable(thing):
        raise ProximaError(f"env.backend: {config.backend} is {_named(thing)}, not {KINDS}")
    return _limited(_called(thing, config, render), config)


def name_of(thing: Any) -> str:
    """What an environment is called: as Gymnasium registered it, or by its class or function."""
    if _is_gymnasium(thing):
        return str(thing.spec.id if thing.spec is not None else type(thing.unwrapped).__name__)
    name = getattr(thing, "__name__", type(thing).__name__)
    return "environment" if name == "<lambda>" else str(name)


def check_kind(thing: Any) -> None:
    """An error in words where this is no environment, and nothing that could make one."""
    if _is_vector(thing):
        raise ProximaError(
            "env: this is a vector of environments, and Proxima makes its copies itself; give one "
            "environment, or a function that makes one, and num_envs="
        )
    if not (callable(thing) or is_compiled(thing) or _is_gymnasium(thing)):
        raise ProximaError(f"env: {_named(thing)} is no environment; give a name, or {KINDS}")


def _called(make: Any, config: EnvConfig, render: bool) -> Any:
    settings = dict(config.params)
    if render and "render_mode" in _parameters(make):
        settings["render_mode"] = "rgb_array"
    try:
        inspect.signature(make).bind(**settings)
    except ValueError:  # written in C: it has no signature
        pass
    except TypeError as error:
        known = ", ".join(each for each in _parameters(make) if each != "render_mode")
        raise ProximaError(
            f"env.params: {config.backend} refuses {settings}: {error}; its settings: {known or 'none'}"
        ) from error
    try:
        env = make(**settings)
    except ProximaError:
        raise
    except Exception as error:
        raise ProximaError(
            f"env.backend: {config.backend} could not be made: {type(error).__name__}: {error}"
        ) from error
    if not _is_gymnasium(env) and not is_compiled(env):
        raise ProximaError(f"env.backend: {config.backend} gave {_named(env)}, not {KINDS}")
    return env


def _copied(env: Any, config: EnvConfig, render: bool) -> Any:
    import gymnasium

    reason: Exception | None = None
    if env.spec is not None:
        settings: dict[str, Any] = {"disable_env_checker": True}
        if render:
            settings["render_mode"] = "rgb_array"
        elif "render_mode" in env.spec.kwargs:
            settings["render_mode"] = None  # a window for every copy is not what was meant
        if config.max_steps_per_episode is not None:  # its own limit may be the shorter one
            settings["max_episode_steps"] = config.max_steps_per_episode
        try:
            return gymnasium.make(env.spec, **settings)
        except Exception as error:  # such as of a wrapper that does not say what it was made with
            reason = error
    try:
        return copy.deepcopy(env)
    except Exception as error:  # whatever holds a window, a socket or another language's memory
        raise ProximaError(
            f"env.backend: {name_of(env)} cannot be copied ({reason or error}), and training and "
            "evaluation need copies; give a function that makes one: env=lambda: MyEnv(…)"
        ) from error


def _limited(env: Any, config: EnvConfig) -> Any:
    if config.max_steps_per_episode is None or is_compiled(env):
        return env
    from gymnasium.wrappers import TimeLimit

    return TimeLimit(env, config.max_steps_per_episode)


def _refuse_params(config: EnvConfig, what: str) -> None:
    if config.params:
        raise ProximaError(
            f"env.params: {config.backend} is an {what} already, and takes no settings; name a class or a "
            "function that makes it"
        )


def _parameters(make: Any) -> list[str]:
    try:
        return list(inspect.signature(make).parameters)
    except ValueError:
        return []


def _is_gymnasium(thing: Any) -> bool:
    import gymnasium

    return isinstance(thing, gymnasium.Env)


def _is_vector(thing: Any) -> bool:
    import gymnasium

    return isinstance(thing, gymnasium.vector.VectorEnv)


def _named(thing: Any) -> str:
    return f"a {type(thing).__name__}"
