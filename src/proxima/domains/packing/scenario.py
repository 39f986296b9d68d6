"""A scenario about packing and mazes, and what it says about its environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Generic, Literal

from annotated_types import Ge
from pydantic import with_config

from proxima.scenario.tree import RULES, A, EnvironmentScenario, N


@dataclass(frozen=True, kw_only=True)
class PackingEnvConfig:
    """A Jumanji environment: packing, mazes, routing, puzzles."""

    backend: Literal["jumanji"] = "jumanji"
    """Jumanji's environments, compiled into the training program."""
    name: str = "BinPack-v2"
    """The environment's registered name, for example BinPack-v2 or Maze-v0."""
    num_envs: Annotated[int, Ge(1)] = 64
    """Copies of the environment that step side by side."""
    max_steps_per_episode: Annotated[int, Ge(1)] | None = None
    """Episodes are truncated after this many steps; null keeps the environment's own limit."""
    instances: Annotated[int, Ge(0)] = 0
    """Instances made beforehand, from which training episodes are drawn; 0 makes a new one for each.
    Evaluation always makes new ones, so that it never sees an instance that was trained on."""
    params: Mapping[str, float | int | bool | str] = field(default_factory=dict)
    """The environment's own settings and its generator's: max_num_items and max_num_ems of BinPack,
    num_rows and num_cols of Maze, and side for a square one in a corner of these; generator names another of
    Jumanji's generators, like ToyGenerator."""


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class PackingScenario(EnvironmentScenario[A, N], Generic[A, N]):
    """An experiment with an environment of Jumanji."""

    env: PackingEnvConfig = field(default_factory=PackingEnvConfig)
    """The environment."""
