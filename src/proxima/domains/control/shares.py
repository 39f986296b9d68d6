"""A share of a pool's environments, made where they step: in the process of an actor (`env.actors`).

Actors import this file: JAX is imported only where the share has worker processes of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from proxima.core.types import HostEnv
from proxima.domains.control.config import EnvConfig, config_from
from proxima.domains.control.envpool import EnvPool
from proxima.domains.control.gymnasium import make_env
from proxima.domains.control.gymnasium_pools import GymnasiumPool
from proxima.domains.control.worker import import_definition


class Shared(NamedTuple):
    """Environments of which each of some processes makes a share; plain values, which travel."""

    config: Mapping[str, Any]  # as `dataclasses.asdict` gives it
    module: str | None  # that registers the environment
    num_envs: int
    groups: int


def make_share(
    shared: Shared, start: int, stop: int, say: Callable[[str], None]
) -> Sequence[HostEnv]:
    """A pool for every group, of its environments from `start` to before `stop`."""
    config = config_from(shared.config)
    import_definition(config.name, shared.module)
    count = stop - start
    if config.backend == "envpool":
        return [EnvPool(config, count) for _ in range(shared.groups)]
    if config.workers > 0:
        from proxima.domains.control.workers import worker_groups

        return worker_groups(config, count * shared.groups, shared.groups, say)
    firsts = range(start, shared.num_envs, shared.num_envs // shared.groups)
    return [_in_process(config, count, first, shared.num_envs) for first in firsts]


def _in_process(config: EnvConfig, count: int, first: int, total: int) -> GymnasiumPool:
    """`count` environments, numbered from `first` on among all."""
    return GymnasiumPool(config.name, [make_env(config) for _ in range(count)], first, total)
