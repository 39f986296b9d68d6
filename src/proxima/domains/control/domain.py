"""Control: environments of Gymnax, Gymnasium and EnvPool, or the user's own.

backend              environments                                    file
gymnax               compiled into the training program              gymnax.py
gymnasium, envpool   pools on the host                               pools.py
module:make_env      the user's own (own.py): compiled, or a pool    compiled.py, pools.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from pydantic import with_config

from proxima.build import backends
from proxima.core.errors import ProximaError
from proxima.core.faults import Fault
from proxima.core.functions import GIVEN, path_to
from proxima.core.types import Env
from proxima.domains import judging, reinforcement
from proxima.domains.control.config import BACKENDS, EnvConfig
from proxima.domains.control.film import film_of
from proxima.domains.domain import Domain, Prepared
from proxima.domains.environments import suggestion
from proxima.domains.interface import Interface
from proxima.domains.judging import Built
from proxima.report import returns
from proxima.scenario.tree import RULES, A, EnvironmentScenario, N
from proxima.scenario.words import either
from proxima.yaml import shown

MOST_ON_THE_HOST = 100_000  # environments, each an object of Python's


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class ControlScenario(EnvironmentScenario[A, N], Generic[A, N]):
    """An experiment with an environment of Gymnax, Gymnasium or EnvPool, or with one of the user's own."""

    env: EnvConfig = field(default_factory=EnvConfig)
    """The environment."""


def control_faults(scenario: ControlScenario) -> Iterator[Fault]:
    """Backends that there are not, and workers or groups of environments that the backend has no use for."""
    env = scenario.env
    if env.backend not in BACKENDS and not env.is_own:
        known = BACKENDS if env.backend in backends() else backends()  # of this domain, or of any
        names = either([*known, "your own as package.module:make_env"])
        yield Fault((("env", "backend"),), f"{shown(env.backend)} is not allowed: must be {names}")
        return
    if env.atari is not None and env.backend not in ("gymnasium", "envpool"):
        text = f"given, and env.backend {env.backend} has no games of Atari; leave the section out"
        yield Fault((("env", "atari"), ("env", "backend")), text)
    if env.backend == "gymnax" and env.workers:
        text = f"{env.workers}, and env.backend gymnax has no workers: it is compiled; set 0"
        yield Fault((("env", "workers"), ("env", "backend")), text)
    yield from _actor_faults(env)
    if env.backend in ("gymnax", "envpool") and env.wrappers:
        text = (
            f"wrappers of Gymnasium's go around its environments, and env.backend {env.backend} has others; "
            "set env.backend to gymnasium, or leave them out"
        )
        yield Fault((("env", "wrappers"), ("env", "backend")), text)
    wrappers = [wrapper.path for wrapper in env.each_wrapper]
    if env.workers and any(path.startswith(GIVEN) for path in (env.backend, *wrappers)):
        what = "an environment" if env.backend.startswith(GIVEN) else "a wrapper"
        text = (
            f"{env.workers}, and worker processes cannot make {what} that lives in this program; "
            "put its class or function into a module and name it package.module:name, or set 0"
        )
        yield Fault((("env", "workers"), ("env", "backend"), ("env", "wrappers")), text)
    total = env.num_envs * scenario.trials
    if env.backend != "gymnax" and total > MOST_ON_THE_HOST:
        count = f"{env.num_envs:,}, which for {scenario.trials:,} trial(s) is {total:,}"
        text = f"{count}; on the host there can be {MOST_ON_THE_HOST:,} environments at most"
        yield Fault((("env", "num_envs"), ("trials",)), text)
    if env.groups == 1:
        return
    beside = env.backend == "envpool" or env.workers or env.actors
    if env.backend == "gymnax" or not beside:
        text = (
            f"{env.groups}, and nothing steps beside the policy; set env.workers (with env.backend "
            "gymnasium), or env.groups to 1"
        )
        yield Fault((("env", "groups"), ("env", "workers"), ("env", "backend")), text)
    if env.num_envs % env.groups:
        text = f"{env.num_envs} environments cannot be divided into {env.groups} groups; take an even number"
        yield Fault((("env", "num_envs"), ("env", "groups")), text)


def _actor_faults(env: EnvConfig) -> Iterator[Fault]:
    """Actors that a compiled backend has no use for, that cannot make the environment, or too many."""
    if not env.actors:
        return
    if env.backend == "gymnax":
        text = f"{env.actors}, and env.backend gymnax has no actors: it is compiled; set 0"
        yield Fault((("env", "actors"), ("env", "backend")), text)
    wrappers = [wrapper.path for wrapper in env.each_wrapper]
    if any(path.startswith(GIVEN) for path in (env.backend, *wrappers)):
        what = "an environment" if env.backend.startswith(GIVEN) else "a wrapper"
        text = (
            f"{env.actors}, and actors cannot make {what} that lives in this program; put its class or "
            "function into a module and name it package.module:name, or set 0"
        )
        yield Fault((("env", "actors"), ("env", "backend"), ("env", "wrappers")), text)
    if env.num_envs % (env.actors * env.groups):
        halves = "" if env.groups == 1 else f" in {env.groups} groups"
        text = (
            f"{env.num_envs} environments cannot be divided over {env.actors} actors{halves}; take a "
            f"multiple of {env.actors * env.groups}"
        )
        yield Fault((("env", "num_envs"), ("env", "actors"), ("env", "groups")), text)


def prepare(scenario: ControlScenario) -> Prepared:
    """The scenario's environments, compiled or on the host, and the program over them."""
    return reinforcement.prepared(scenario, build(scenario), film=film_of)


def build(scenario: ControlScenario) -> Built:
    """The agent and the program of a scenario on the environments it names."""
    config = scenario.env
    if config.backend == "gymnax":
        from proxima.domains.control.gymnax import interface, make

        env = make(config)
        return _compiled(scenario, env, interface(env))
    if config.is_own:
        from proxima.domains.control.compiled import interface, ready
        from proxima.domains.control.own import is_compiled, make_own

        own = make_own(config)
        if is_compiled(own):
            return _compiled(scenario, ready(own, config), interface(own))
        own.close()
    return _build_on_host(scenario)


def _compiled(scenario: ControlScenario, env: Env, interface: Interface) -> Built:
    from proxima.domains.control.hidden import hiding_env, hiding_interface
    from proxima.domains.control.stack import stacked_env, stacked_interface, unstacked_recording

    frames, space = scenario.env.frame_stack, env.observation_space
    hiding = scenario.env.hidden, scenario.env.name
    built = reinforcement.compiled(scenario, stacked_env(hiding_env(env, *hiding), frames))
    interface = hiding_interface(interface, space, *hiding)
    built = built._replace(interface=stacked_interface(interface, space, frames))
    if frames == 1:
        return built
    record = unstacked_recording(space, built.program.record)
    return built._replace(program=built.program._replace(record=record))


def _build_on_host(scenario: ControlScenario) -> Built:
    from proxima.domains.control.pools import make_pools, translation

    config = scenario.env
    waiting: list[str] = []

    def notices() -> list[str]:
        sentences = waiting.copy()
        waiting.clear()
        return sentences

    pools = make_pools(config, waiting.append)
    spaces = translation(config)
    built = reinforcement.hosted(
        scenario, (spaces.observation_space, spaces.action_space), pools, spaces.interface
    )
    return built._replace(program=built.program._replace(notices=notices))


def env_settings(env: Any) -> Mapping[str, Any]:
    """The section `env` of what a program gives as its environment: a name, or one of its own."""
    if isinstance(env, str):
        return _settings_of_name(env)
    from proxima.domains.control.own import check_kind, name_of

    check_kind(env)
    return {"name": name_of(env), "backend": path_to(env, name_of(env))}


def _settings_of_name(name: str) -> dict[str, str]:
    """The backend that has an environment of this name, the compiled one first."""
    module, _, own = name.partition(":")
    if module and own.isidentifier():  # Gymnasium's names end with a version: module:Name-v0
        return {"backend": name}
    from proxima.domains.control import gymnax

    if name in gymnax.names():
        return {"name": name, "backend": "gymnax"}
    from proxima.domains.control import gymnasium

    if ":" in name or name.startswith("ALE/") or gymnasium.has(name):
        return {"name": name, "backend": "gymnasium"}
    known = list(dict.fromkeys([*gymnax.names(), *gymnasium.names()]))
    hint = suggestion(name, known, otherwise=f"there are: {', '.join(known)}")
    raise ProximaError(f"env: neither Gymnax nor Gymnasium has {name!r}; {hint}")


DOMAIN = Domain(
    name="control",
    scenario=ControlScenario,
    checks=control_faults,
    prepare=prepare,
    overview=judging.overview,
    closing=judging.closing,
    page=returns.page,
    backends=BACKENDS,
    networks={"mlp": "proxima.nets.actor_critic:NETWORK"},
    prepare_host=reinforcement.prepare_host,
    gangs=True,
    film=film_of,
    env_settings=env_settings,
)
