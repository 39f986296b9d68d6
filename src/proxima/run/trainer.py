"""PPOTrainer, DDPGTrainer and their like: the same experiment as an object, for notebooks and scripts."""

import dataclasses
import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, final

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

_load = cache(Policy)
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
    """One agent to be trained; made by `PPOTrainer` or its like, or of a Scenario."""

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
        run_id, output = self._trained().run_id, self.scenario.output_directory
        policies = evaluate_reference(run_id, num_episodes, output_directory=output)
        greedy: dict[str, Any] = policies["evaluation"]
        return greedy | {"avg_reward": greedy["return_mean"], "std_reward": greedy["return_std"]}

    def predict(self, observations: Any, state: Any = None, episode_start: Any = None) -> Any:
        """The greedy action at one observation, or the actions at a batch; or on raw input, see Policy."""
        return self.policy.predict(observations, state, episode_start)

    def save(self, path: str | Path) -> Path:
        """Write the trained policy into a directory, for `proxima.load_policy` or any program with JAX."""
        return self.policy.save(path)

    @property
    def policy(self) -> Policy:
        """The trained policy."""
        results = self._trained()
        files = find_run(results.run_id, self.scenario.output_directory)
        return _load(files.trial(results.trial) / "policy")

    def _trained(self) -> TrialResult:
        if self.results is None:
            raise ProximaError("train() first: there is no policy yet")
        return self.results

    def __repr__(self) -> str:
        settings = dataclasses.asdict(self.scenario)
        names = ((settings.get(key) or {}).get("name") for key in ("algorithm", "env"))
        what = " on ".join(str(name) for name in names if name)
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
    name (`max_episodes=1000`, `target_reward=195.0`, `learning_rate=1e-3`, `seed=7`), found in its section;
    a class or a function in it (`wrappers=[FlattenObservation]`) is named by its path.
    What is not named stays as it is in the scenario, or has its default.
    """
    return _trainer("ppo", env, network, enable_mlflow, progress, settings)


def DDPGTrainer(
    env: Any = "Pendulum-v1",
    *,
    network: Any = None,
    enable_mlflow: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trainer:
    """A trainer of one DDPG agent, or TD3 by its settings; used as `PPOTrainer` is."""
    return _trainer("ddpg", env, network, enable_mlflow, progress, settings)


def SACTrainer(
    env: Any = "Pendulum-v1",
    *,
    network: Any = None,
    enable_mlflow: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trainer:
    """A trainer of one SAC agent, of continuous or of discrete actions; used as `PPOTrainer` is."""
    return _trainer("sac", env, network, enable_mlflow, progress, settings)


def SPOTrainer(
    env: Any = "CartPole-v1",
    *,
    network: Any = None,
    enable_mlflow: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trainer:
    """A trainer of one SPO agent on a compiled environment; used as `PPOTrainer` is."""
    return _trainer("spo", env, network, enable_mlflow, progress, settings)


def DQNTrainer(
    env: Any = "CartPole-v1",
    *,
    network: Any = None,
    enable_mlflow: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trainer:
    """A trainer of one DQN agent; used as `PPOTrainer` is."""
    return _trainer("dqn", env, network, enable_mlflow, progress, settings)


def PQNTrainer(
    env: Any = "CartPole-v1",
    *,
    network: Any = None,
    enable_mlflow: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Trainer:
    """A trainer of one PQN agent; used as `PPOTrainer` is."""
    return _trainer("pqn", env, network, enable_mlflow, progress, settings)


def _trainer(
    algorithm: str,
    env: Any,
    network: Any,
    enable_mlflow: bool,
    progress: bool,
    settings: Mapping[str, Any],
) -> Trainer:
    """The trainer of an environment with its defaults, or of a scenario, and the settings."""
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
    known = to_mapping(from_mapping(mapping, source))
    for key, value in {"enabled": enable_mlflow, **settings}.items():
        owner = _section_of(key, known, source)
        (mapping if owner is None else mapping.setdefault(owner, {}))[key] = _by_path(value)
    return Trainer(from_mapping(mapping, source), progress)


def _by_path(value: Any) -> Any:
    """A setting with the classes and functions in it, such as wrappers, named by their paths."""
    if isinstance(value, Mapping):
        return {key: _by_path(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_by_path(inner) for inner in value]
    return path_to(value, type(value).__name__) if callable(value) else value


def _check_algorithm(scenario: Scenario, algorithm: str, source: str) -> None:
    if not isinstance(scenario, EnvironmentScenario):
        raise ProximaError(
            f"{source}: the scenario {scenario.name} has no environment; train it with "
            "proxima.run_single_experiment(scenario)"
        )
    name = scenario.algorithm.name
    if name != algorithm:
        use = f"{name.upper()}Trainer" if name in ALGORITHMS else "proxima.Trainer(scenario)"
        raise ProximaError(
            f"{source}: the scenario {scenario.name} is trained by {name}; "
            f"use {use}, or another scenario"
        )


def _section_of(key: str, mapping: Mapping[str, Any], source: str) -> str | None:
    """The name of the section that has the setting; None where it is the scenario's own."""
    if key in mapping and key not in SECTIONS:
        return None
    sections = {name: mapping[name] for name in SECTIONS if mapping.get(name)}
    for name, section in sections.items():
        if key in section:
            return name
    known = sorted(set().union(*sections.values()))
    near = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    raise ProximaError(f"{source}: {key}: unknown setting; {hint}")
