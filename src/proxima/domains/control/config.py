"""What a control scenario says about its environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval

BACKENDS = ("gymnax", "gymnasium", "envpool")
DEFAULT_NAME = "CartPole-v1"

Setting = float | int | bool | str


@dataclass(frozen=True, kw_only=True)
class WrapperConfig:
    """A wrapper of Gymnasium's or of the user's own, with its settings."""

    path: str
    """Where it is: package.module:name."""
    params: Mapping[str, Setting | tuple[Setting, ...]] = field(default_factory=dict)
    """What it is made with, besides the environment."""


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The environment, its backend and how many copies step side by side."""

    name: str = DEFAULT_NAME
    """The environment's registered name, for example CartPole-v1 or Breakout-MinAtar; one of your own is
    called as its backend is unless it is named here."""
    backend: str = "gymnax"
    """gymnax: compiled into the training program; gymnasium: any Gymnasium env, stepped on the host;
    envpool: those that EnvPool has in C++, stepped in threads; package.module:make_env: your own."""
    num_envs: Annotated[int, Ge(1)] = 8
    """Copies of the environment that step side by side."""
    max_steps_per_episode: Annotated[int, Ge(1)] | None = None
    """Episodes are truncated after this many steps; null keeps the environment's own limit."""
    params: Mapping[str, Setting] = field(default_factory=dict)
    """The environment's own settings: gymnax EnvParams fields, gymnasium.make or envpool.make keywords,
    or those of make_env."""
    hidden: tuple[Annotated[int, Ge(0)], ...] = ()
    """Entries of the observation that the policy does not get to see, by number: they are always 0."""
    wrappers: tuple[str | WrapperConfig, ...] = ()
    """gymnasium, and your own of that kind: wrappers around each environment, the first one innermost, such
    as gymnasium.wrappers:FlattenObservation, or {path: package.module:name, params: {...}}."""
    workers: Annotated[int, Ge(0)] = 0
    """gymnasium: processes that step the environments, 0 for none but the trainer's own;
    envpool: threads, 0 for as many as there are cores."""
    groups: Annotated[int, Interval(ge=1, le=2)] = 1
    """2: the policy acts for one half of the environments while the other half steps."""
    worker_timeout: Annotated[float, Gt(0)] = 60.0
    """Seconds after which a worker process that has not answered counts as hung."""
    on_worker_failure: Literal["stop", "restart"] = "stop"
    """A worker process that dies or hangs: stop the run, or start its environments again and go on."""

    def __post_init__(self) -> None:
        # Without this, one's own environment would be called CartPole-v1 in tables, and drawn as such.
        if self.is_own and self.name == DEFAULT_NAME:
            object.__setattr__(self, "name", self.backend.rpartition(":")[2])

    @property
    def is_own(self) -> bool:
        """Whether the backend is a path to the user's own."""
        return ":" in self.backend

    @property
    def each_wrapper(self) -> list[WrapperConfig]:
        """The wrappers, also those that are named by their path alone."""
        return [
            WrapperConfig(path=wrapper) if isinstance(wrapper, str) else wrapper
            for wrapper in self.wrappers
        ]


def config_from(plain: Mapping[str, Any]) -> EnvConfig:
    """The settings that `dataclasses.asdict` gave as plain values."""
    wrappers = (
        wrapper if isinstance(wrapper, str) else WrapperConfig(**wrapper)
        for wrapper in plain["wrappers"]
    )
    return EnvConfig(**{**plain, "wrappers": tuple(wrappers)})
