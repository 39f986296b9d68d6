"""Which pool of host environments a scenario's settings ask for.

backend     workers   pool
gymnasium   0         one after the other in this process      gymnasium_pools.py
gymnasium   n         in n processes                           workers.py
envpool     n         in n C++ threads, 0 for all cores        envpool.py

With actors each of these is divided over that many processes of a Ray cluster, which make their own shares
(`shares.py`, `domains/control/actors.py`); `workers` are then those of each share.

Entries are hidden (`hidden.py`) and frames stacked (`stack.py`) here, whatever the pool.
Evaluation plays whole games of Atari (`atari.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from proxima.core.types import HostEnv
from proxima.domains.control import gymnasium
from proxima.domains.control.actors import Actors, Settings, Shape
from proxima.domains.control.atari import whole_games
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.envpool import EnvPool
from proxima.domains.control.gymnasium_spaces import Translation
from proxima.domains.control.hidden import hiding_interface, hiding_pool
from proxima.domains.control.shares import Shared, make_share
from proxima.domains.control.stack import stacked_interface, stacked_pool, stacked_space
from proxima.domains.control.workers import MOST_FAILURES, STEADY, worker_groups
from proxima.train.host.program import Pools


def translation(config: EnvConfig) -> Translation:
    """What is observed, frames stacked, and which actions are taken, in the environment's terms and ours."""
    found = (
        EnvPool(config, 1).spaces if config.backend == "envpool" else gymnasium.translation(config)
    )
    space, frames = found.observation_space, config.frame_stack
    shown = hiding_interface(found.interface, space, config.hidden, config.name)
    return found._replace(
        observation_space=stacked_space(space, frames),
        interface=stacked_interface(shown, space, frames),
    )


def make_pools(config: EnvConfig, say: Callable[[str], None]) -> Pools:
    """How the environments are made; `say` takes sentences for the user."""
    in_threads = config.backend == "envpool"
    make: Callable[..., HostEnv] = EnvPool if in_threads else gymnasium.make_pool
    in_processes = config.workers > 0 and not in_threads
    whole = whole_games(config)
    actors = Actors(_actor_settings(config), say)

    def as_seen(pool: HostEnv) -> HostEnv:
        return stacked_pool(hiding_pool(pool, config.hidden, config.name), config.frame_stack)

    def train(num_envs: int) -> Sequence[HostEnv]:
        pools: Sequence[HostEnv]
        if config.actors:
            pools = _on_actors(actors, config, num_envs, config.groups)
        elif in_processes:
            pools = worker_groups(config, num_envs, config.groups, say)
        else:
            pools = [make(config, num_envs // config.groups) for _ in range(config.groups)]
        return [as_seen(pool) for pool in pools]

    def evaluate(num_envs: int, render: bool) -> HostEnv:
        pool: HostEnv
        if config.actors and not render:  # pictures come from this process
            (pool,) = _on_actors(actors, whole, num_envs, 1)
        elif in_processes and not render:
            pool = worker_groups(whole, num_envs, 1, say)[0]
        else:
            pool = make(whole, num_envs, render)
        return as_seen(pool)

    # Where environments cost little to make, many evaluate side by side.
    return Pools(train, evaluate, evaluation_width=128 if in_threads else 16)


def _on_actors(actors: Actors, config: EnvConfig, num_envs: int, groups: int) -> Sequence[HostEnv]:
    """The environments in as many pools as there are groups, each divided over all actors."""
    if config.backend == "envpool":
        module, spaces = None, EnvPool(config, 1).spaces
    else:
        module = None if config.is_own else gymnasium.module_of(config.name)
        spaces = gymnasium.translation(config)
    shape = Shape(spaces.observation_space, spaces.action_space, num_envs, groups)
    shared = Shared(asdict(config), module, num_envs, groups)
    return actors.open(shape, partial(make_share, shared))


def _actor_settings(config: EnvConfig) -> Settings:
    return Settings(
        name=config.name,
        actors=config.actors,
        cores=max(1, config.workers),
        timeout=config.worker_timeout,
        restarts=config.on_worker_failure == "restart",
        most_failures=MOST_FAILURES,
        steady=STEADY,
    )
