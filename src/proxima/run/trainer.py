"""PPOTrainer, DDPGTrainer and SPOTrainer: the same experiment as an object, for notebooks and scripts."""

import difflib
from collections.abc import Mapping
from typing import Any, final

from proxima.core.errors import ProximaError
from proxima.run.display import Callback
from proxima.run.evaluate import evaluate_reference
from proxima.run.results import TrialResult
from proxima.run.start import run_single_experiment
from proxima.scenario import Scenario, from_mapping, to_mapping

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
    """One agent to be trained; made by `PPOTrainer`, `DDPGTrainer` or `SPOTrainer`."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.results: TrialResult | None = None

    def train(self, callback: Callback | None = None) -> TrialResult:
        """Train to the end and return the results; the callback may stop it by returning False."""
        self.results = run_single_experiment(self.scenario, callback=callback)
        return self.results

    def evaluate(self, num_episodes: int = 100) -> dict[str, Any]:
        """Greedy returns of the trained policy on the fixed evaluation episodes."""
        return evaluate_results(self.scenario, self.results, num_episodes)


def PPOTrainer(
    env: str | Scenario = "CartPole-v1", *, enable_mlflow: bool = False, **settings: Any
) -> Trainer:
    """A trainer of one PPO agent on a named environment.

    `env` is an environment's name ("CartPole-v1") or a Scenario; every other keyword is a setting by
    its own name (`max_episodes=1000`, `target_reward=195.0`, `learning_rate=1e-3`, `seed=7`), found in
    its section. What is not named stays as it is in the scenario, or has its default.
    """
    return Trainer(scenario_for(env, "ppo", {"enabled": enable_mlflow} | settings))


def DDPGTrainer(
    env: str | Scenario = "Pendulum-v1", *, enable_mlflow: bool = False, **settings: Any
) -> Trainer:
    """A trainer of one DDPG agent, or TD3 by its settings; used as `PPOTrainer` is."""
    return Trainer(scenario_for(env, "ddpg", {"enabled": enable_mlflow} | settings))


def SPOTrainer(
    env: str | Scenario = "CartPole-v1", *, enable_mlflow: bool = False, **settings: Any
) -> Trainer:
    """A trainer of one SPO agent on a compiled environment; used as `PPOTrainer` is."""
    return Trainer(scenario_for(env, "spo", {"enabled": enable_mlflow} | settings))


def scenario_for(env: Any, algorithm: str, settings: Mapping[str, Any]) -> Scenario:
    """The scenario of a trainer: an environment's defaults or one given, and the settings."""
    source = f"{algorithm.upper()}Trainer"
    if isinstance(env, str):
        name = "".join(letter if letter.isalnum() else "_" for letter in env).lower()
        given = {"name": name, "env": {"name": env}, "algorithm": {"name": algorithm}}
        env = from_mapping(given, source)
    elif env.algorithm.name != algorithm:
        raise ProximaError(
            f"{source}: the scenario {env.name} is trained by {env.algorithm.name}; "
            f"use {env.algorithm.name.upper()}Trainer, or another scenario"
        )
    return with_settings(env, settings, source)


def evaluate_results(
    scenario: Scenario, results: TrialResult | None, num_episodes: int
) -> dict[str, Any]:
    """Greedy returns of the policy that a training gave."""
    if results is None:
        raise RuntimeError("train() first: there is no policy to evaluate yet")
    found = evaluate_reference(
        results.run_id, num_episodes, output_directory=scenario.output_directory
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
