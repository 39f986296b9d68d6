"""Which pool of host environments a scenario's settings ask for.

backend     workers   pool
gymnasium   0         one after the other in this process      gymnasium_pools.py
gymnasium   n         in n processes                           workers.py
envpool     n         in n C++ threads, 0 for all cores        envpool.py

Entries are hidden (`hidden.py`) and frames stacked (`stack.py`) here, whatever the pool.
Evaluation plays whole games of Atari (`atari.py`).
"""

from collections.abc import Callable, Sequence

from proxima.core.types import HostEnv
from proxima.domains.control import gymnasium
from proxima.domains.control.atari import whole_games
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.envpool import EnvPool
from proxima.domains.control.gymnasium_spaces import Translation
from proxima.domains.control.hidden import hiding_interface, hiding_pool
from proxima.domains.control.stack import stacked_interface, stacked_pool, stacked_space
from proxima.domains.control.workers import worker_groups
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

    def as_seen(pool: HostEnv) -> HostEnv:
        return stacked_pool(hiding_pool(pool, config.hidden, config.name), config.frame_stack)

    def train(num_envs: int) -> Sequence[HostEnv]:
        pools: Sequence[HostEnv]
        if in_processes:
            pools = worker_groups(config, num_envs, config.groups, say)
        else:
            pools = [make(config, num_envs // config.groups) for _ in range(config.groups)]
        return [as_seen(pool) for pool in pools]

    def evaluate(num_envs: int, render: bool) -> HostEnv:
        pool: HostEnv
        if in_processes and not render:  # pictures come from this process
            pool = worker_groups(whole, num_envs, 1, say)[0]
        else:
            pool = make(whole, num_envs, render)
        return as_seen(pool)

    # Where environments cost little to make, many evaluate side by side.
    return Pools(train, evaluate, evaluation_width=128 if in_threads else 16)
