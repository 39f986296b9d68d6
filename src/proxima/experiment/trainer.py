"""PPOTrainer: the same experiment as an object, for notebooks and scripts."""

import difflib
from collections.abc import Mapping
from typing import Any

from proxima.core.errors import ProximaError
from proxima.experiment.evaluation import evaluate_reference
from proxima.experiment.run import Callback, run_single_experiment
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
    "env",
)


class PPOTrainer:
    """Trains one PPO agent on a named environment.

    `env` is an environment's name ("CartPole-v1") or a Scenario; every other keyword is a setting by
    its own name (`max_episodes=1000`, `target_reward=195.0`, `learning_rate=1e-3`, `seed=7`), found in
    its section. What is not named stays as it is in the scenario, or has its default.
    """

    def __init__(
        self, env: str | Scenario = "CartPole-v1", *, enable_mlflow: bool = False, **settings: Any
    ) -> None:
        base = env if isinstance(env, Scenario) else _scenario_for(env)
        self.scenario = with_settings(base, {"enabled": enable_mlflow} | settings)
        self.results: dict[str, Any] | None = None

    def train(self, callback: Callback | None = None) -> dict[str, Any]:
        """Train to the end and return the results; the callback may stop it by returning False."""
        self.results = run_single_experiment(self.scenario, callback=callback)
        return self.results

    def evaluate(self, num_episodes: int = 100) -> dict[str, Any]:
        """Greedy returns of the trained policy on the fixed evaluation episodes."""
        if self.results is None:
            raise RuntimeError("train() first: there is no policy to evaluate yet")
        found = evaluate_reference(
            self.results["run_id"], num_episodes, output_directory=self.scenario.output_directory
        )["evaluation"]
        return found | {"avg_reward": found["return_mean"], "std_reward": found["return_std"]}


def _scenario_for(env: str) -> Scenario:
    name = "".join(letter if letter.isalnum() else "_" for letter in env).lower()
    return from_mapping({"name": name, "env": {"name": env}}, "PPOTrainer")


def with_settings(scenario: Scenario, settings: Mapping[str, Any]) -> Scenario:
    """The scenario with settings given by their own names, each put into its section."""
    mapping = to_mapping(scenario)
    for key, value in settings.items():
        section = _section_of(key)
        target = mapping if section is None else mapping[section]
        target[key] = value
    return from_mapping(mapping, "PPOTrainer")


def _section_of(key: str) -> str | None:
    """The section that has the setting; None for one of the scenario's own."""
    whole = to_mapping(Scenario())
    if key in whole and key not in SECTIONS:
        return None
    holders = {name: list(whole[name]) for name in SECTIONS}
    for name, keys in holders.items():
        if key in keys:
            return name
    known = sorted({key for keys in holders.values() for key in keys})
    near = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    raise ProximaError(f"PPOTrainer: {key}: unknown setting; {hint}")
