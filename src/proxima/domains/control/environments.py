"""Where a control scenario's environments come from: Gymnax, pools on the host, or the user's own."""

import difflib
from functools import partial
from typing import Any

from proxima.core.errors import ProximaError
from proxima.core.functions import path_to
from proxima.domains.control import gymnasium
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.own import check_kind, is_compiled, is_own, make_own, name_of
from proxima.domains.control.scenario import ControlScenario
from proxima.domains.judging import Built
from proxima.domains.reinforcement import compiled, hosted


def build(scenario: ControlScenario) -> Built:
    """The agent and the program of a scenario on the environments it names."""
    if scenario.env.backend == "gymnax":
        from proxima.domains.control.gymnax import make

        return compiled(scenario, make(scenario.env))
    if is_own(scenario.env):
        env = make_own(scenario.env)
        if is_compiled(env):
            return _build_own(scenario, env)
        env.close()
    return _build_host(scenario, scenario.env)


def env_settings(env: Any) -> dict[str, Any]:
    """The section `env` of what a program gives as its environment: a name, or one of its own."""
    if isinstance(env, str):
        return _settings_of_name(env)
    check_kind(env)
    return {"name": name_of(env), "backend": path_to(env, name_of(env))}


def _settings_of_name(name: str) -> dict[str, Any]:
    """The backend that has an environment of this name, the compiled one first."""
    from proxima.domains.control import gymnax

    module, _, own = name.partition(":")
    if module and own.isidentifier():  # Gymnasium's names end with a version: module:Name-v0
        return {"backend": name}
    if name in gymnax.names():
        return {"name": name, "backend": "gymnax"}
    if ":" in name or name.startswith("ALE/") or gymnasium.has(name):
        return {"name": name, "backend": "gymnasium"}
    known = list(dict.fromkeys([*gymnax.names(), *gymnasium.names()]))
    near = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
    raise ProximaError(f"env: neither Gymnax nor Gymnasium has {name!r}; {hint}")


def _build_own(scenario: ControlScenario, env: Any) -> Built:
    from proxima.domains.control.compiled import ready

    if scenario.env.workers:
        raise ProximaError(
            f"env.workers: {scenario.env.workers}, and {scenario.env.name} is compiled into the "
            "training program; set 0"
        )
    return compiled(scenario, ready(env, scenario.env))


def _build_host(scenario: ControlScenario, config: EnvConfig) -> Built:
    from proxima.domains.control.pools import (
        evaluation_pool,
        evaluation_width,
        spaces,
        training_pools,
    )
    from proxima.train.host.program import Pools

    waiting: list[str] = []

    def notices() -> list[str]:
        sentences = waiting.copy()
        waiting.clear()
        return sentences

    pools = Pools(
        train=lambda num_envs: training_pools(config, num_envs, waiting.append),
        evaluate=lambda num_envs, render: evaluation_pool(config, num_envs, render, waiting.append),
        evaluation_width=evaluation_width(config),
    )
    built = hosted(scenario, spaces(config), pools)
    return built._replace(
        program=built.program._replace(notices=notices),
        space_notes=dict if config.backend == "envpool" else partial(gymnasium.space_notes, config),
    )
