"""A scenario about packing and mazes."""

from dataclasses import dataclass, field
from typing import Generic

from pydantic import with_config

from proxima.domains.packing.config import PackingEnvConfig
from proxima.scenario.tree import RULES, A, EnvironmentScenario, N


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class PackingScenario(EnvironmentScenario[A, N], Generic[A, N]):
    """An experiment with an environment of Jumanji."""

    env: PackingEnvConfig = field(default_factory=PackingEnvConfig)
    """The environment."""
