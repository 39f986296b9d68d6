"""What a control scenario says about its environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The environment, its backend and how many copies step side by side."""

    name: str = "CartPole-v1"
    """The environment's registered name, for example CartPole-v1 or Breakout-MinAtar."""
    backend: Literal["gymnax", "gymnasium"] = "gymnax"
    """gymnax: compiled into the training program; gymnasium: any Gymnasium env, stepped on the host."""
    num_envs: Annotated[int, Ge(1)] = 8
    """Copies of the environment that step side by side."""
    max_steps_per_episode: Annotated[int, Ge(1)] | None = None
    """Episodes are truncated after this many steps; null keeps the environment's own limit."""
    params: Mapping[str, float | int | bool | str] = field(default_factory=dict)
    """The environment's own settings: gymnax EnvParams fields, or gymnasium.make keywords."""
