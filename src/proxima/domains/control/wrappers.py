"""Gymnasium's wrappers, and the user's own, around every environment: `env.wrappers`.

    env: {wrappers: ["gymnasium.wrappers:FlattenObservation", {path: "my_module:Slow", params: {by: 2}}]}

The first is the innermost. What comes out is what the policy meets in training, evaluation and films, and
what an exported policy takes: a wrapper is part of the environment, and is not exported. It must keep nothing
from one episode to the next, because environments are made anew when a run is resumed.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from proxima.core.errors import ProximaError
from proxima.core.functions import object_at
from proxima.domains.control.config import EnvConfig
from proxima.domains.environments import suggestion

# Each copy of an environment would have statistics of its own, which no checkpoint and no policy holds.
INSTEAD = {
    NormalizeObservation: "algorithm.normalize_observations",
    NormalizeReward: "algorithm.normalize_rewards",
}


def wrapped(env: Any, config: EnvConfig) -> Any:
    """The environment in its wrappers, or in words which of them cannot be put around it."""
    for number, wrapper in enumerate(config.each_wrapper):
        env = _wrap(env, f"env.wrappers.{number}", wrapper.path, wrapper.params)
    return env


def _wrap(env: Any, setting: str, path: str, params: Mapping[str, Any]) -> Any:
    make = object_at(path, setting, "wrapper")
    if not callable(make):
        raise ProximaError(
            f"{setting}: {path} is a {type(make).__name__}, not a gymnasium.Wrapper or a function of an "
            "environment that gives one"
        )
    for kind, ours in INSTEAD.items():
        if isinstance(make, type) and issubclass(make, kind):
            raise ProximaError(
                f"{setting}: {path} learns statistics in every copy of the environment by itself, and "
                f"neither checkpoints nor exported policies would hold them; set {ours} to true instead"
            )
    _check_params(make, setting, path, params)
    try:
        made = make(env, **params)
    except Exception as error:  # whatever a wrapper makes of an environment that it does not fit
        raise ProximaError(
            f"{setting}: {path} cannot be put around {env}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, gymnasium.Env):
        raise ProximaError(f"{setting}: {path} gave a {type(made).__name__}, not a gymnasium.Env")
    return made


def _check_params(make: Any, setting: str, path: str, params: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(make)
    except ValueError:  # written in C: it does not say what it takes
        return
    known = list(signature.parameters)[1:]
    takes_all = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()
    )
    for key in params:
        if key not in known and not takes_all:
            hint = suggestion(key, known, 1)
            raise ProximaError(f"{setting}.params.{key}: {path} has no such setting; {hint}")
    try:
        signature.bind(None, **params)
    except TypeError as error:
        raise ProximaError(
            f"{setting}.params: {path} refuses {dict(params)}: {error}; "
            f"its settings: {', '.join(known) or 'none'}"
        ) from error
