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

import gymnasium
from gymnasium.wrappers import TimeLimit

from proxima.core.errors import ProximaError
from proxima.core.functions import object_at
from proxima.core.spaces import Box, Discrete, Fields, MultiDiscrete
from proxima.domains.control.config import EnvConfig

KINDS = (
    "a gymnasium.Env (class, instance, or a function that gives one) or a compiled environment with "
    "reset(key) and step(state, action, key)"
)


def is_compiled(thing: Any) -> bool:
    """Whether this is an instance of what core.types.Env describes: its spaces are ours, not Gymnasium's."""
    space = getattr(thing, "observation_space", None)
    return not isinstance(thing, type) and isinstance(
        space, Box | Fields | Discrete | MultiDiscrete
    )


def make_own(config: EnvConfig, render: bool = False) -> Any:
    """One environment of the user's own: of Gymnasium, no other run has it; or a compiled one, as it is."""
    thing = object_at(config.backend, "env.backend", "environment")
    is_instance = isinstance(thing, gymnasium.Env)
    if config.params and (is_instance or is_compiled(thing)):
        kind = "instance" if is_instance else "compiled environment"
        raise ProximaError(
            f"env.params: {config.backend} is an {kind} already, and takes no settings; name a class or a "
            "function that makes it"
        )
    if is_compiled(thing):
        return thing
    env = _copied(thing, config, render) if is_instance else _called(thing, config, render)
    if config.max_steps_per_episode is None or is_compiled(env):
        return env
    return TimeLimit(env, config.max_steps_per_episode)


def name_of(thing: Any) -> str:
    """What an environment is called: as Gymnasium registered it, or by its class or function."""
    if isinstance(thing, gymnasium.Env):
        return str(thing.spec.id if thing.spec is not None else type(thing.unwrapped).__name__)
    name = getattr(thing, "__name__", type(thing).__name__)
    return "environment" if name == "<lambda>" else str(name)


def check_kind(thing: Any) -> None:
    """An error in words where this is no environment, and nothing that could make one."""
    if isinstance(thing, gymnasium.vector.VectorEnv):
        raise ProximaError(
            "env: this is a vector of environments, and Proxima makes its copies itself; give one "
            "environment, or a function that makes one, and num_envs="
        )
    if not (callable(thing) or is_compiled(thing) or isinstance(thing, gymnasium.Env)):
        kind = type(thing).__name__
        raise ProximaError(f"env: a {kind} is no environment; give a name, or {KINDS}")


def _called(make: Any, config: EnvConfig, render: bool) -> Any:
    path = config.backend
    if not callable(make):
        raise ProximaError(f"env.backend: {path} is a {type(make).__name__}, not {KINDS}")
    try:
        signature = inspect.signature(make)
    except ValueError:  # written in C: it does not say what it takes
        signature = inspect.Signature([inspect.Parameter("any", inspect.Parameter.VAR_KEYWORD)])
    settings = dict(config.params)
    if render and "render_mode" in signature.parameters:
        settings["render_mode"] = "rgb_array"
    try:
        signature.bind(**settings)
    except TypeError as error:
        known = ", ".join(name for name in signature.parameters if name != "render_mode")
        raise ProximaError(
            f"env.params: {path} refuses {settings}: {error}; its settings: {known or 'none'}"
        ) from error
    try:
        env = make(**settings)
    except ProximaError:
        raise
    except Exception as error:
        raise ProximaError(
            f"env.backend: {path} could not be made: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(env, gymnasium.Env) and not is_compiled(env):
        raise ProximaError(f"env.backend: {path} gave a {type(env).__name__}, not {KINDS}")
    return env


def _copied(env: gymnasium.Env, config: EnvConfig, render: bool) -> gymnasium.Env:
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
