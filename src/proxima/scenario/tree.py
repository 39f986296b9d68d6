"""The config tree of a scenario: the sections that all have, and those of environments; its keys by path.

A domain's own scenario class has these sections and adds its own. The classes of the sections `algorithm`
and `network` depend on a key in them, so the scenario's class is generic over both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Interval
from pydantic import ConfigDict, with_config

from proxima.build import ALGORITHMS, algorithm, domain, domain_with_backend
from proxima.core.faults import KeyPath
from proxima.core.network import Network
from proxima.scenario.search import SearchConfig
from proxima.track.tracker import TelemetryConfig, TrackingConfig
from proxima.train.checkpoint import CheckpointConfig
from proxima.train.config import EvaluationConfig, TrainingConfig
from proxima.train.convergence import ConvergenceConfig
from proxima.train.curriculum import CurriculumConfig

RULES = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)
LAST = ("tried", "search", "checkpoint", "tracking", "telemetry")  # sections that few people change
A = TypeVar("A")  # the settings of an algorithm
N = TypeVar("N")  # the settings of a network


@with_config(RULES)  # holds for the sections too: they bring no rules of their own
@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What every experiment says, whatever it is about."""

    name: str = ""
    """The experiment's name, which is the file's name without its ending."""
    description: str = ""
    """One line for the list of scenarios."""
    domain: str = ""
    """What it is about; where it is left out, the environment's backend says it."""
    seed: Annotated[int, Interval(ge=0, lt=2**31)] = 0
    """Seed of the first trial; trial k has seed + k."""
    trials: Annotated[int, Interval(ge=1, le=10_000)] = 1
    """Independent repetitions."""
    output_directory: str = "logs"
    """Directory for results, checkpoints and plots."""
    plots: Literal["few", "all"] = "few"
    """Trials that get pictures of their own: first, median, best and worst, or all."""
    tried: Annotated[int, Ge(1)] = 1
    """Configurations among which these settings were chosen; `proxima tune` writes it."""
    search: SearchConfig | None = None
    """Settings that `proxima tune` varies, and how; null: its options say so."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """What is saved."""
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    """Where runs are recorded."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    """What is measured and sent besides."""


@with_config(RULES)
@dataclass(frozen=True, kw_only=True)
class EnvironmentScenario(Scenario, Generic[A, N]):
    """What an experiment with an environment says besides; its domain adds the environment's section."""

    network: N
    """The nets."""
    algorithm: A
    """The algorithm and its settings."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The budget."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """How the policy is measured."""
    convergence: ConvergenceConfig = field(default_factory=ConvergenceConfig)
    """What counts as solved."""
    curriculum: CurriculumConfig | None = None
    """Levels of the environment's numbers that training goes through; null: it trains on the task itself."""


class Choice(NamedTuple):
    """A section whose class depends on one of its own keys."""

    section: str
    key: str
    names: tuple[str, ...]  # the first is the default
    config: Callable[[str], type]  # a name → the section's class


def choices_of(name: str) -> list[Choice]:
    """The sections of a domain's scenarios whose class depends on a key in them."""
    owner = domain(name)
    if not issubclass(owner.scenario, EnvironmentScenario):
        return []
    return [
        Choice("algorithm", "name", tuple(ALGORITHMS), lambda name: algorithm(name).config),
        Choice("network", "kind", tuple(owner.networks), lambda kind: network(owner, kind).config),
    ]


def network(owner: Any, kind: str) -> Network:
    """The Network of a kind that the domain offers, or the user's own at package.module:name."""
    from proxima.nets.network import network_at

    return network_at(owner.networks.get(kind, kind))


def domain_name(merged: Mapping[str, Any]) -> str:
    """The domain of a scenario: the one it names, or the one that has its environment's backend."""
    written = merged.get("domain")
    if isinstance(written, str) and written:
        return written
    env = merged.get("env")
    backend = env.get("backend") if isinstance(env, Mapping) else None
    return domain_with_backend(backend if isinstance(backend, str) else "")


def class_of(merged: Mapping[str, Any]) -> Any:
    """The class of a scenario whose choices are named, its parameters filled in."""
    kind: Any = domain(merged["domain"]).scenario
    choices = choices_of(merged["domain"])
    configs = [choice.config(merged[choice.section][choice.key]) for choice in choices]
    return kind[tuple(configs)] if configs else kind


@cache  # a search reads thousands of scenarios
def section_types(kind: Any) -> Mapping[str, Any]:
    """The types of a config class's fields by name; a generic class's parameters filled in.

    A scenario's own sections come between those that every scenario begins and ends with.
    """
    origin = get_origin(kind) or kind
    given = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=False))
    hints = {name: given.get(hint, hint) for name, hint in get_type_hints(origin).items()}
    if not issubclass(origin, Scenario):
        return hints
    first, shared = get_type_hints(Scenario), get_type_hints(EnvironmentScenario)
    order = sorted(hints, key=lambda name: (name in LAST, name not in first, name in shared))
    return {name: hints[name] for name in order}


def section_keys(merged: Mapping[str, Any]) -> dict[str, list[str]]:
    """The keys of every section by its dotted path; under the empty one those of the scenario itself."""

    def collect(kind: Any, above: str) -> Iterator[tuple[str, list[str]]]:
        types = section_types(kind)
        yield above, list(types)
        for key, hint in types.items():
            if not above and is_optional(hint) and merged.get(key) is None:
                continue  # not in this scenario: its keys would only confuse
            for config in _configs_in(hint):
                yield from collect(config, f"{above}.{key}".lstrip("."))

    return dict(collect(class_of(merged), ""))


def is_optional(hint: Any) -> bool:
    """Whether a section may be left out altogether, so that null is no word for its defaults."""
    return type(None) in get_args(hint)


def free_mappings(kind: Any, above: KeyPath = ()) -> Iterator[KeyPath]:
    """The keys whose values are not ours but the environment's or the pattern's: no sections."""
    for key, hint in section_types(kind).items():
        if any(get_origin(part) is Mapping for part in (hint, *get_args(hint))):
            yield (*above, key)
        for config in _configs_in(hint):
            yield from free_mappings(config, (*above, key))


def _configs_in(hint: Any) -> list[type]:
    """The config classes that a type is made of: itself, a union's members, a tuple's entries."""
    if is_dataclass(hint):
        return [hint] if isinstance(hint, type) else []
    return [config for part in get_args(hint) for config in _configs_in(part)]


def dotted(path: Iterable[str | int]) -> str:
    return ".".join(map(str, path))
