"""A scenario about control: an environment, and what is wrong with settings that are each right alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic

from pydantic import with_config

from proxima.build import backends
from proxima.core.faults import Fault
from proxima.core.functions import GIVEN
from proxima.domains.control.config import BACKENDS, EnvConfig
from proxima.scenario.tree import RULES, A, EnvironmentScenario, N
from proxima.scenario.words import either
from proxima.yaml import shown


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class ControlScenario(EnvironmentScenario[A, N], Generic[A, N]):
    """An experiment with an environment of Gymnax, Gymnasium or EnvPool, or with one of the user's own."""

    env: EnvConfig = field(default_factory=EnvConfig)
    """The environment."""


def control_faults(scenario: ControlScenario) -> Iterator[Fault]:
    """Backends that there are not, and workers or groups of environments that the backend has no use for."""
    env = scenario.env
    if env.backend not in BACKENDS and ":" not in env.backend:
        known = BACKENDS if env.backend in backends() else backends()  # of this domain, or of any
        names = either([*known, "your own as package.module:make_env"])
        yield Fault((("env", "backend"),), f"{shown(env.backend)} is not allowed: must be {names}")
        return
    if env.backend == "gymnax" and env.workers:
        text = f"{env.workers}, and env.backend gymnax has no workers: it is compiled; set 0"
        yield Fault((("env", "workers"), ("env", "backend")), text)
    if env.backend.startswith(GIVEN) and env.workers:
        text = (
            f"{env.workers}, and worker processes cannot make an environment that lives in this program; "
            "put its class or function into a module and name it package.module:make_env, or set 0"
        )
        yield Fault((("env", "workers"), ("env", "backend")), text)
    if env.groups == 1:
        return
    if env.backend == "gymnax" or (env.backend != "envpool" and not env.workers):
        text = (
            f"{env.groups}, and nothing steps beside the policy; set env.workers (with env.backend "
        )
        paths = (("env", "groups"), ("env", "workers"), ("env", "backend"))
        yield Fault(paths, text + "gymnasium), or env.groups to 1")
    if env.num_envs % env.groups:
        text = f"{env.num_envs} environments cannot be divided into {env.groups} groups"
        yield Fault((("env", "num_envs"), ("env", "groups")), text + "; take an even number")
