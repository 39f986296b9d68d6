"""What is wrong with settings that are each right alone: checks over several of them."""

from collections.abc import Callable, Iterator

from proxima.domains.control.config import EnvConfig
from proxima.domains.trading.config import TradingEnvConfig
from proxima.scenario.tree import ALGORITHMS, NETWORKS, Problem, Scenario
from proxima.yaml import shown


def _name_problems(scenario: Scenario) -> Iterator[Problem]:
    name = scenario.name
    if name.startswith(".") or set(name) & set("/\\") or not name.isprintable():
        told = "names a directory: no slashes, line breaks or leading dot"
        yield Problem((("name",),), f"{shown(name)} is not allowed: it {told}")


def _algorithm_problems(scenario: Scenario) -> Iterator[Problem]:
    for fault in ALGORITHMS[scenario.algorithm.name].checks(scenario):
        yield Problem(*fault)


def _network_problems(scenario: Scenario) -> Iterator[Problem]:
    for fault in NETWORKS[scenario.network.kind].checks(scenario):
        yield Problem(*fault)


def _budget_problems(scenario: Scenario) -> Iterator[Problem]:
    if scenario.training.max_steps is None and scenario.training.max_episodes is None:
        paths = (("training", "max_steps"), ("training", "max_episodes"))
        told = "null, and training.max_episodes is null too: training would never end; set one"
        yield Problem(paths, told)


def _data_problems(scenario: Scenario) -> Iterator[Problem]:
    data, trades = scenario.data, isinstance(scenario.env, TradingEnvConfig)
    if data is None:
        if trades:
            told = (
                "null, and trading needs prices; write data: {pattern: sine_wave} or {path: FILE}"
            )
            yield Problem((("data",), ("env", "backend")), told)
        return
    if not trades:
        told = f"only trading reads prices, and env.backend is {scenario.env.backend}"
        yield Problem((("data",), ("env", "backend")), told + "; set it to trading")
    if (data.path is None) == (data.pattern is None):
        told = "set one of data.pattern (synthetic prices) and data.path (your own file)"
        which = "neither is given" if data.path is None else "both are given"
        yield Problem((("data", "path"), ("data", "pattern")), f"{which}; {told}")
    split = data.split
    if split.validation + split.test >= 1:
        paths = (("data", "split", "validation"), ("data", "split", "test"))
        told = f"{split.validation:g} and data.split.test {split.test:g} leave nothing to train on"
        yield Problem(paths, told)
    if split.fold >= split.folds:
        paths = (("data", "split", "fold"), ("data", "split", "folds"))
        told = f"{split.fold} is not one of {split.folds} folds; the first is 0, the last"
        yield Problem(paths, f"{told} {split.folds - 1}")


def _position_problems(scenario: Scenario) -> Iterator[Problem]:
    if not isinstance(scenario.env, TradingEnvConfig):
        return
    positions = scenario.env.positions
    if len(set(positions)) < len(positions):
        told = f"{list(positions)} names a position twice"
        yield Problem((("env", "positions"),), told)


def _pool_problems(scenario: Scenario) -> Iterator[Problem]:
    env = scenario.env
    if not isinstance(env, EnvConfig):
        return
    if env.backend == "gymnax" and env.workers:
        told = f"{env.workers}, and env.backend gymnax has no workers: it is compiled; set 0"
        yield Problem((("env", "workers"), ("env", "backend")), told)
    if env.groups == 1:
        return
    if env.backend == "gymnax" or (env.backend == "gymnasium" and not env.workers):
        told = (
            f"{env.groups}, and nothing steps beside the policy; set env.workers (with env.backend "
        )
        paths = (("env", "groups"), ("env", "workers"), ("env", "backend"))
        yield Problem(paths, told + "gymnasium), or env.groups to 1")
    if env.num_envs % env.groups:
        told = f"{env.num_envs} environments cannot be divided into {env.groups} groups"
        yield Problem((("env", "num_envs"), ("env", "groups")), told + "; take an even number")


def _endpoint_problems(scenario: Scenario) -> Iterator[Problem]:
    endpoint = scenario.telemetry.otlp_endpoint
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        told = (
            f"{shown(endpoint)} is no address; write http://HOST:4318, OTLP over HTTP's usual port"
        )
        yield Problem((("telemetry", "otlp_endpoint"),), told)


FIELD_CHECKS: tuple[Callable[[Scenario], Iterator[Problem]], ...] = (
    _name_problems,
    _algorithm_problems,
    _budget_problems,
    _data_problems,
    _position_problems,
    _pool_problems,
    _endpoint_problems,
    _network_problems,
)
