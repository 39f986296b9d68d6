"""The config tree of a scenario, and which class of config stands at each place in it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from annotated_types import Ge, Interval
from pydantic import Discriminator, with_config

from proxima.algorithms import ddpg, ppo, spo
from proxima.algorithms.ddpg import DDPGConfig
from proxima.algorithms.ppo import PPOConfig
from proxima.algorithms.spo import SPOConfig
from proxima.domains.control.config import EnvConfig
from proxima.domains.language.scenario import DOMAIN, OPTIONAL, TYPE_RULES, LanguageScenario
from proxima.domains.packing import attention, grid
from proxima.domains.packing.attention import AttentionConfig
from proxima.domains.packing.config import PackingEnvConfig
from proxima.domains.packing.grid import GridConfig
from proxima.domains.trading.config import DataConfig, TradingEnvConfig
from proxima.nets import actor_critic
from proxima.nets.actor_critic import MLPConfig
from proxima.track.telemetry import TelemetryConfig
from proxima.track.tracker import TrackingConfig
from proxima.train.checkpoint import CheckpointConfig
from proxima.train.convergence import ConvergenceConfig
from proxima.train.evaluate import EvaluationConfig
from proxima.train.loop import TrainingConfig

KeyPath = tuple[str | int, ...]
ALGORITHMS = {"ppo": ppo.ALGORITHM, "ddpg": ddpg.ALGORITHM, "spo": spo.ALGORITHM}
NETWORKS = {"mlp": actor_critic.NETWORK, "attention": attention.NETWORK, "grid": grid.NETWORK}


@with_config(TYPE_RULES)  # holds for the sections too: they bring no rules of their own
@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An experiment: a problem, an algorithm and a budget."""

    name: str = ""
    """The experiment's name, which is the file's name without its ending."""
    description: str = ""
    """One line for the list of scenarios."""
    seed: Annotated[int, Interval(ge=0, lt=2**31)] = 0
    """Seed of the first trial; trial k has seed + k."""
    trials: Annotated[int, Ge(1)] = 1
    """Independent repetitions."""
    output_directory: str = "logs"
    """Directory for results, checkpoints and plots."""
    data: DataConfig | None = None
    """The prices, for trading only."""
    env: Annotated[EnvConfig | TradingEnvConfig | PackingEnvConfig, Discriminator("backend")] = (
        field(default_factory=EnvConfig)
    )
    """The environment."""
    network: Annotated[MLPConfig | AttentionConfig | GridConfig, Discriminator("kind")] = field(
        default_factory=MLPConfig
    )
    """The nets."""
    algorithm: Annotated[PPOConfig | DDPGConfig | SPOConfig, Discriminator("name")] = field(
        default_factory=PPOConfig
    )
    """The algorithm and its settings."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The budget."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """How the policy is measured."""
    convergence: ConvergenceConfig = field(default_factory=ConvergenceConfig)
    """What counts as solved."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """What is saved."""
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    """Where runs are recorded."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    """What is measured and sent besides."""


class Choice(NamedTuple):
    """A section whose class depends on one of its own keys."""

    key: str
    classes: Mapping[str, type]  # by the key's value; the first is the default


CHOICES = {
    "env": Choice(
        "backend",
        {
            "gymnax": EnvConfig,
            "gymnasium": EnvConfig,
            "envpool": EnvConfig,
            "trading": TradingEnvConfig,
            "jumanji": PackingEnvConfig,
        },
    ),
    "network": Choice("kind", {kind: network.config for kind, network in NETWORKS.items()}),
    "algorithm": Choice("name", {name: each.config for name, each in ALGORITHMS.items()}),
}


class Problem(NamedTuple):
    """What is wrong, and the keys that make it so, the one to name first."""

    paths: tuple[KeyPath, ...]
    text: str


def root_of(merged: Mapping[str, Any]) -> type[Scenario] | type[LanguageScenario]:
    """The class of a scenario, by its `domain`."""
    return LanguageScenario if merged.get("domain") == DOMAIN else Scenario


def name_choices(merged: dict[str, Any]) -> None:
    """Write the key by which a section's class is chosen where it was left out."""
    if root_of(merged) is not Scenario:
        return
    for section, choice in CHOICES.items():
        written = merged.setdefault(section, {})
        if isinstance(written, dict):
            written.setdefault(choice.key, next(iter(choice.classes)))


def section_keys(merged: Mapping[str, Any]) -> dict[str, list[str]]:
    """The keys of every section by its dotted path; under the empty one those of the scenario itself."""
    root = root_of(merged)
    return {section: list(get_type_hints(kind)) for section, kind in _sections(merged, root, "")}


def _sections(merged: Mapping[str, Any], kind: type, place: str) -> Iterator[tuple[str, type]]:
    yield place, kind
    for key, hint in get_type_hints(kind).items():
        inner = f"{place}.{key}".lstrip(".")
        classes = _configs_in(hint)
        if inner in absent_sections(merged) and merged.get(inner) is None:
            continue  # not in this scenario: its keys would only confuse
        if inner in CHOICES and kind is Scenario:
            choice, written = CHOICES[inner], merged[inner]
            said = written.get(choice.key) if isinstance(written, dict) else None
            classes = [choice.classes.get(str(said), classes[0])]
        for each in classes:
            yield from _sections(merged, each, inner)


def absent_sections(merged: Mapping[str, Any]) -> tuple[str, ...]:
    """The sections that a scenario of this kind may do without: null there is no default."""
    return ("data",) if root_of(merged) is Scenario else OPTIONAL


def free_mappings(kind: type = Scenario, above: KeyPath = ()) -> Iterator[KeyPath]:
    """The places whose keys are not ours but the environment's or the pattern's: no sections."""
    for key, hint in get_type_hints(kind).items():
        if any(get_origin(part) is Mapping for part in (hint, *get_args(hint))):
            yield (*above, key)
        for config in _configs_in(hint):
            yield from free_mappings(config, (*above, key))


def _configs_in(hint: Any) -> list[type]:
    """The config classes that a type is made of: itself, a union's members, a tuple's entries."""
    if is_dataclass(hint):
        return [hint] if isinstance(hint, type) else []
    return [found for part in get_args(hint) for found in _configs_in(part)]


def dotted(path: Iterable[str | int]) -> str:
    return ".".join(map(str, path))
