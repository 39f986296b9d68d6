"""What is wrong with a search before it starts: paths that lead nowhere, ranges that no setting has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proxima.build import domain_of
from proxima.core.errors import Contradiction, ProximaError
from proxima.scenario import EnvironmentScenario, Scenario, changed, to_mapping
from proxima.scenario.search import Range, SearchConfig, Value, ranges_of
from proxima.scenario.words import present
from proxima.tune.method import Check, Settings

# Sections that say how long and how an experiment is measured and kept: the same for all configurations,
# or their values could not be compared.
FIXED = (
    "name",
    "description",
    "domain",
    "seed",
    "trials",
    "output_directory",
    "plots",
    "tried",
    "search",
    "training",
    "evaluation",
    "convergence",
    "checkpoint",
    "tracking",
    "telemetry",
)
FIXED_KEYS = ("env.name", "env.backend")
SOURCE = "search.space"  # what errors about a configuration call its origin


def checked_ranges(scenario: Scenario) -> dict[str, Range]:
    """The ranges of a scenario's search, every one of settings that it has and can vary."""
    config = search_of(scenario)
    ranges = ranges_of(config)
    if not ranges and config.method != "table":
        raise ProximaError(
            "search.space: is empty; name a setting and its range, for example "
            "--search algorithm.learning_rate=log:1e-5:1e-1"
        )
    for path, span in ranges.items():
        check_path(scenario, path)
        for value in _ends(span):
            _check_value(scenario, path, value, span)
    return ranges


def check_path(scenario: Scenario, path: str) -> None:
    """An error where a setting does not exist or must be the same for all."""
    section = path.partition(".")[0]
    if section in FIXED or path in FIXED_KEYS:
        raise ProximaError(
            f"{SOURCE}: {path}: cannot vary: it is the same for all configurations, or their values could "
            "not be compared; set it with --set"
        )
    parts = tuple(path.split("."))
    known, value = present(parts, to_mapping(scenario))
    if isinstance(value, Mapping) and known == parts:
        names = ", ".join(f"{path}.{key}" for key in value)
        raise ProximaError(f"{SOURCE}: {path}: is a section; name a setting in it: {names}")


def check_of(scenario: Scenario) -> Check:
    """The function that says what contradicts in a configuration."""

    def check(settings: Settings) -> str | None:
        try:
            changed(scenario, dict(settings), SOURCE)
        except Contradiction as contradiction:
            return str(contradiction)
        return None

    return check


def own_values(scenario: Scenario, paths: list[str]) -> dict[str, Value]:
    """The scenario's own values of some settings."""
    content = to_mapping(scenario)
    return {path: _at(content, path) for path in paths}


def check_runnable(scenario: Scenario) -> None:
    """An error where there is no budget of steps, or no target to reach, or the domain has one."""
    config = search_of(scenario)
    domain_of(scenario).check_search(scenario)
    if not isinstance(scenario, EnvironmentScenario):
        if config.method in ("asha", "pbt"):
            raise ProximaError(
                f"search.method: {config.method} stops and copies trainings half-way, and the stages of "
                f"{scenario.domain} run one after the other; take random, sobol, grid, tpe, cma-es or table"
            )
        return
    if scenario.training.max_steps is None:
        raise ProximaError(
            "training.max_steps: null, and a search gives every configuration the same steps; set it"
        )
    if config.objective == "steps_to_target" and scenario.convergence.target_reward is None:
        raise ProximaError(
            "search.objective: steps_to_target needs a target; set convergence.target_reward"
        )


def search_of(scenario: Scenario) -> SearchConfig:
    """The scenario's search, with a method that its trainings can follow."""
    if scenario.search is None:
        raise ProximaError(
            "search: the scenario has no such section; give --search PATH=RANGE, or write one"
        )
    if scenario.search.method != "auto":
        return scenario.search
    return replace(
        scenario.search, method="asha" if isinstance(scenario, EnvironmentScenario) else "random"
    )


def _check_value(scenario: Scenario, path: str, value: Value, span: Range) -> None:
    """An error where a setting alone cannot have a value; what contradicts others is drawn around."""
    try:
        changed(scenario, {path: value}, SOURCE)
    except Contradiction:
        return
    except ProximaError as error:
        words = str(error).removeprefix("--set: ").removeprefix(f"{SOURCE}: ")
        whole = "; write int:LOW:HIGH" if "a whole number" in words and span.kind != "int" else ""
        raise ProximaError(f"{SOURCE}: {words}{whole}") from error


def _ends(span: Range) -> list[Value]:
    """Values between which all others are."""
    if span.kind == "choice":
        return list(span.choices)
    if span.kind == "int":
        return [int(span.low), int(span.high)]
    between = span.low + (span.high - span.low) / 2**0.5  # 8 and 64 would do as whole numbers too
    return [span.low, between, span.high]


def _at(content: Any, path: str) -> Value:
    for key in path.split("."):
        content = content.get(key) if isinstance(content, Mapping) else None
    return content if isinstance(content, bool | int | float | str) else None
