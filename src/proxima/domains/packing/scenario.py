"""A scenario about packing and mazes, and what is wrong with settings that are each right alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic

from pydantic import with_config

from proxima.core.faults import Fault
from proxima.domains.packing.attention import AttentionConfig
from proxima.domains.packing.config import PackingEnvConfig
from proxima.scenario.tree import RULES, A, EnvironmentScenario, N


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class PackingScenario(EnvironmentScenario[A, N], Generic[A, N]):
    """An experiment with an environment of Jumanji."""

    env: PackingEnvConfig = field(default_factory=PackingEnvConfig)
    """The environment."""


def packing_faults(scenario: PackingScenario) -> Iterator[Fault]:
    """A width that cannot be divided among the heads."""
    net = scenario.network
    if isinstance(net, AttentionConfig) and net.width % net.heads:
        paths = (("network", "width"), ("network", "heads"))
        text = f"{net.width} is not a multiple of network.heads ({net.heads})"
        nearest = net.heads * max(1, round(net.width / net.heads))
        yield Fault(paths, f"{text}; take {nearest}, say")
