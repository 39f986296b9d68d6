"""Which pool of host environments a scenario's settings ask for.

backend     workers   pool
gymnasium   0         one after the other in this process      gymnasium_pools.py
gymnasium   n         in n processes                           workers.py
envpool     n         in n C++ threads, 0 for all cores        envpool.py
"""

from collections.abc import Callable, Sequence

from proxima.core.spaces import ObservationSpace, Space
from proxima.core.types import HostEnv
from proxima.domains.control import envpool, gymnasium
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.workers import worker_groups

Say = Callable[[str], None]  # takes a sentence for the user


def spaces(config: EnvConfig) -> tuple[ObservationSpace, Space]:
    """What the environment observes, and which actions it takes."""
    return (envpool if config.backend == "envpool" else gymnasium).spaces(config)


def evaluation_width(config: EnvConfig) -> int:
    """Environments per trial that evaluate side by side, at most: where they cost little to make, many."""
    return 128 if config.backend == "envpool" else 16


def training_pools(config: EnvConfig, num_envs: int, say: Say) -> Sequence[HostEnv]:
    """So many environments, in the scenario's groups."""
    share = num_envs // config.groups
    if config.backend == "envpool":
        return [envpool.make_pool(config, share) for _ in range(config.groups)]
    if config.workers:
        return worker_groups(config, num_envs, config.groups, say)
    return [gymnasium.make_pool(config, share) for _ in range(config.groups)]


def evaluation_pool(config: EnvConfig, num_envs: int, render: bool, say: Say) -> HostEnv:
    """So many environments as one group; pictures come from this process."""
    if config.backend == "envpool":
        return envpool.make_pool(config, num_envs, render)
    if config.workers and not render:
        return worker_groups(config, num_envs, 1, say)[0]
    return gymnasium.make_pool(config, num_envs, render=render)
