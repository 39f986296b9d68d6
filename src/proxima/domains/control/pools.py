"""Which pool of host environments a scenario's settings ask for.

backend     workers   pool
gymnasium   0         one after the other in this process      gymnasium_pools.py
gymnasium   n         in n processes                           workers.py
envpool     n         in n C++ threads, 0 for all cores        envpool.py
"""

from collections.abc import Callable, Sequence

from proxima.core.types import HostEnv
from proxima.domains.control import gymnasium
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.envpool import EnvPool
from proxima.domains.control.gymnasium_spaces import Translation
from proxima.domains.control.workers import worker_groups
from proxima.train.host.program import Pools


def translation(config: EnvConfig) -> Translation:
    """What the environment observes, and which actions it takes, in its own terms and in ours."""
    return (
        EnvPool(config, 1).spaces if config.backend == "envpool" else gymnasium.translation(config)
    )


def make_pools(config: EnvConfig, say: Callable[[str], None]) -> Pools:
    """How the environments are made; `say` takes sentences for the user."""
    in_threads = config.backend == "envpool"
    make: Callable[..., HostEnv] = EnvPool if in_threads else gymnasium.make_pool
    in_processes = config.workers > 0 and not in_threads

    def train(num_envs: int) -> Sequence[HostEnv]:
        if in_processes:
            return worker_groups(config, num_envs, config.groups, say)
        return [make(config, num_envs // config.groups) for _ in range(config.groups)]

    def evaluate(num_envs: int, render: bool) -> HostEnv:
        if in_processes and not render:  # pictures come from this process
            return worker_groups(config, num_envs, 1, say)[0]
        return make(config, num_envs, render)

    # Where environments cost little to make, many evaluate side by side.
    return Pools(train, evaluate, evaluation_width=128 if in_threads else 16)
