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
class AtariConfig:
    """How games of Atari are shown and played; as Mnih et al. 2015 did, unless said otherwise."""

    frame_skip: Annotated[int, Interval(ge=1, le=60)] = 4
    """Frames of the game per step; what is seen is the larger of the last two."""
    screen_size: Annotated[int, Interval(ge=5, le=210)] = 84
    """Pixels a side of what is seen."""
    grayscale: bool = True
    """Shades of grey instead of colours."""
    noop_max: Annotated[int, Interval(ge=0, le=10_000)] = 30
    """A game begins with up to this many frames of doing nothing."""
    fire_on_reset: bool = True
    """A life begins with the fire button, where there is one: some games stand still without. EnvPool
    presses it when an episode begins, so not between the lives of an evaluation's whole games."""
    episodic_life: bool = True
    """In training, the loss of a life ends the episode, not the game; evaluation plays whole games."""
    clip_rewards: bool = True
    """In training, rewards are −1, 0 or 1; evaluation counts the true score."""
    repeat_action_probability: Annotated[float, Interval(ge=0, le=1)] = 0.0
    """With this probability a frame repeats the last action; 0.25 in Machado et al. 2018."""
    full_action_space: bool = False
    """All 18 actions of the console rather than those that the game uses."""


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
    frame_stack: Annotated[int, Interval(ge=1, le=256)] = 1
    """An observation is the last so many, oldest first; the first of an episode is repeated."""
    atari: AtariConfig | None = None
    """For games of Atari (ALE/Pong-v5 with gymnasium, Pong-v5 with envpool): how they are shown and
    played; {} for the usual way, null for the environment as it comes."""
    workers: Annotated[int, Ge(0)] = 0
    """gymnasium: processes that step the environments, 0 for none but the trainer's own;
    envpool: threads, 0 for as many as there are cores."""
    actors: Annotated[int, Ge(0)] = 0
    """On the host: Ray actors, perhaps on other machines, over which the environments are divided, each with
    workers of its own; 0 for none."""
    groups: Annotated[int, Interval(ge=1, le=2)] = 1
    """2: the policy acts for one half of the environments while the other half steps."""
    worker_timeout: Annotated[float, Gt(0)] = 60.0
    """Seconds after which a worker process or an actor that has not answered counts as hung."""
    on_worker_failure: Literal["stop", "restart"] = "stop"
    """A worker process or an actor that dies or hangs: stop the run, or start its environments again and
    go on."""

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
    atari = None if plain["atari"] is None else AtariConfig(**plain["atari"])
    return EnvConfig(**{**plain, "wrappers": tuple(wrappers), "atari": atari})
