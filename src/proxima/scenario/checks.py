"""What is wrong with settings that are each right alone, whatever the scenario is about."""

from collections.abc import Iterator

from proxima.core.faults import Fault
from proxima.scenario.tree import EnvironmentScenario, Scenario
from proxima.yaml import shown


def common_faults(scenario: Scenario) -> Iterator[Fault]:
    """Those that no domain and no algorithm knows better."""
    yield from _name_faults(scenario)
    yield from _endpoint_faults(scenario)
    if isinstance(scenario, EnvironmentScenario):
        yield from _budget_faults(scenario)


def _name_faults(scenario: Scenario) -> Iterator[Fault]:
    name = scenario.name
    if name.startswith(".") or set(name) & set("/\\") or not name.isprintable():
        told = "names a directory: no slashes, line breaks or leading dot"
        yield Fault((("name",),), f"{shown(name)} is not allowed: it {told}")


def _budget_faults(scenario: EnvironmentScenario) -> Iterator[Fault]:
    if scenario.training.max_steps is None and scenario.training.max_episodes is None:
        paths = (("training", "max_steps"), ("training", "max_episodes"))
        told = "null, and training.max_episodes is null too: training would never end; set one"
        yield Fault(paths, told)


def _endpoint_faults(scenario: Scenario) -> Iterator[Fault]:
    endpoint = scenario.telemetry.otlp_endpoint
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        told = (
            f"{shown(endpoint)} is no address; write http://HOST:4318, OTLP over HTTP's usual port"
        )
        yield Fault((("telemetry", "otlp_endpoint"),), told)
