"""PPOTrainer, DDPGTrainer and SPOTrainer: the same experiment as an object, for notebooks and scripts."""

import dataclasses
import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np

from proxima.build import ALGORITHMS, env_settings, make_importable
from proxima.core.errors import ProximaError
from proxima.core.functions import path_to
from proxima.run.display import Callback
from proxima.run.evaluate import evaluate_reference
from proxima.run.files import find_run
from proxima.run.policy import Policy
from proxima.run.results import TrialResult
from proxima.run.start import run_single_experiment
from proxima.scenario import EnvironmentScenario, Scenario, from_mapping, to_mapping

# In the order in which a name is looked for: an environment's own come last, `name` is never meant.
SECTIONS = (
    "algorithm",
    "training",
    "evaluation",
    "convergence",
    "network",
    "checkpoint",
    "tracking",
    "telemetry",
    "env",
    "data",
)


@final
class Trainer:
    """One agent to be trained; made by `PPOTrainer`, `DDPGTrainer` or `SPOTrainer`, or of a Scenario."""

    def __init__(self, scenario: Scenario, progress: bool = True) -> None:
        self.scenario = scenario
        self.progress = progress
        self.results: TrialResult | None = None

    def train(self, callback: Callback | None = None, progress: bool | None = None) -> TrialResult:
        """Train to the end and return the results; the callback may stop it by returning False."""
        shown = self.progress if progress is None else progress
        self.results = run_single_experiment(self.scenario, callback=callback, progress=shown)
        return self.results

    def evaluate(self, num_episodes: int = 100) -> dict[str, Any]:
        """Greedy returns of the trained policy on the fixed evaluation episodes."""
        return evaluate_results(self.scenario, self.results, num_episodes)

    def predict(self, observations: Any) -> np.ndarray:
        """The greedy action at one observation, or the actions at a batch of them."""
        return self.policy.predict(observations)

    def save(self, path: str | Path) -> Path:
        """Write the trained policy into a directory, for `proxima.load_policy` or any program with JAX."""
        return self.policy.save(path)

    @property
    def policy(self) -> Policy:
        """The trained policy."""
        return _policy_of(_trained(self.results), self.scenario.output_directory)

    def __repr__(self) -> str:
        env = dataclasses.asdict(self.scenario).get("env") or {}
        algorithm = dataclasses.asdict(self.scenario).get("algorithm") or {}
        what = " on ".join(str(part) for part in (algorithm.get("name"), env.get("name")) if part)
        state = "not trained yet: train()" if self.results is None else repr(self.results)
        return f"Trainer({what or self.scenario.name}, {state})"


def PPOTrainer(
    env: Any = "CartPole-v1",
    *,
    network: Any = None,
    enable_mlflow: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trainer:
    """A trainer of one PPO agent.

    `env` is a name ("CartPole-v1", "my_module:make_env"), a Gymnasium environment, its class, a function
    that makes one, a compiled environment (`core.types.Env`) or a Scenario. `network` is a kind ("mlp"), an
    `eqx.Module`, a function that makes one or a `Network`. Every other keyword is a setting by its own
    name (`max_episodes=1000`, `target_reward=195.0`, `learning_rate=1e-3`, `seed=7`), found in its section.
    What is not named stays as it is in the scenario, or has its default.
    """
    settings = {"enabled": enable_mlflow} | settings
    return Trainer(scenario_for(env, "ppo", settings, network), progress)


def DDPGTrainer(
    env: Any = "Pendulum-v1",
    *,
    network: Any = None,
    enable_mlflow: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trainer:
    """A trainer of one DDPG agent, or TD3 by its settings; used as `PPOTrainer` is."""
    settings = {"enabled": enable_mlflow} | settings
    return Trainer(scenario_for(env, "ddpg", settings, network), progress)


def SPOTrainer(
    env: Any = "CartPole-v1",
    *,
    network: Any = None,
    enable_mlflow: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trainer:
    """A trainer of one SPO agent on a compiled environment; used as `PPOTrainer` is."""
    settings = {"enabled": enable_mlflow} | settings
    return Trainer(scenario_for(env, "spo", settings, network), progress)


def scenario_for(
    env: Any, algorithm: str, settings: Mapping[str, Any], network: Any = None
) -> Scenario:
    """The scenario of a trainer: an environment's defaults or one given, and the settings."""
    source = f"{algorithm.upper()}Trainer"
    if isinstance(env, Scenario):
        _check_algorithm(env, algorithm, source)
        mapping = to_mapping(env)
    else:
        make_importable(Path.cwd())
        section = env_settings(env)
        name = section.get("name", section["backend"])
        letters = "".join(letter if letter.isalnum() else "_" for letter in name).lower()
        mapping = {"name": letters, "env": section, "algorithm": {"name": algorithm}}
    if network is not None:
        kind = network if isinstance(network, str) else path_to(network, type(network).__name__)
        mapping["network"] = {"kind": kind}
    return with_settings(from_mapping(mapping, source), settings, source)


def _check_algorithm(scenario: Scenario, algorithm: str, source: str) -> None:
    if not isinstance(scenario, EnvironmentScenario):
        raise ProximaError(
            f"{source}: the scenario {scenario.name} has no environment; train it with "
            "proxima.run_single_experiment(scenario)"
        )
    trained_by = scenario.algorithm.name
    if trained_by == algorithm:
        return
    use = (
        f"{trained_by.upper()}Trainer" if trained_by in ALGORITHMS else "proxima.Trainer(scenario)"
    )
    raise ProximaError(
        f"{source}: the scenario {scenario.name} is trained by {trained_by}; "
        f"use {use}, or another scenario"
    )


def _trained(results: TrialResult | None) -> TrialResult:
    if results is None:
        raise ProximaError("train() first: there is no policy yet")
    return results


@cache
def _policy(directory: Path) -> Policy:
    return Policy(directory)


def _policy_of(results: TrialResult, output_directory: str) -> Policy:
    return _policy(find_run(results.run_id, output_directory).trial(results.trial) / "policy")


def evaluate_results(
    scenario: Scenario, results: TrialResult | None, num_episodes: int
) -> dict[str, Any]:
    """Greedy returns of the policy that a training gave."""
    found = evaluate_reference(
        _trained(results).run_id, num_episodes, output_directory=scenario.output_directory
    )["evaluation"]
    return found | {"avg_reward": found["return_mean"], "std_reward": found["return_std"]}


def with_settings(scenario: Scenario, settings: Mapping[str, Any], source: str) -> Scenario:
    """The scenario with settings given by their own names, each put into its section."""
    mapping = to_mapping(scenario)
    for key, value in settings.items():
        section = _section_of(key, mapping, source)
        target = mapping if section is None else mapping[section]
        target[key] = value
    return from_mapping(mapping, source)


def _section_of(key: str, mapping: Mapping[str, Any], source: str) -> str | None:
    """The section that has the setting; None for one of the scenario's own."""
    if key in mapping and key not in SECTIONS:
        return None
    holders = {name: list(mapping[name]) for name in SECTIONS if mapping.get(name) is not None}
    for name, keys in holders.items():
        if key in keys:
            return name
    known = sorted({key for keys in holders.values() for key in keys})
    near = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    raise ProximaError(f"{source}: {key}: unknown setting; {hint}")
