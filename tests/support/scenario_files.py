"""Scenario files to load, and what is said of them."""

from pathlib import Path
from typing import Any

import pytest

from proxima.algorithms.ppo import ALGORITHM, PPOConfig
from proxima.core.errors import ProximaError
from proxima.domains.control.config import EnvConfig
from proxima.domains.control.domain import ControlScenario
from proxima.nets.actor_critic import MLPConfig
from proxima.scenario import load

SCENARIO_KEYS = (
    "name, description, domain, seed, trials, output_directory, plots, env, network, algorithm, "
    "training, evaluation, convergence, curriculum, tried, search, checkpoint, tracking, telemetry"
)


def default_scenario(**settings: Any) -> ControlScenario:
    """What a file that says no more than these settings is."""
    sizes = ALGORITHM.defaults({}, EnvConfig().num_envs)
    usual = {"domain": "control", "network": MLPConfig(), "algorithm": PPOConfig(**sizes)}
    return ControlScenario(**usual | settings)


def write(directory: Path, text: str | bytes, name: str = "mine.yaml") -> Path:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def message(call, *arguments) -> str:
    """What the error says that the call raises."""
    with pytest.raises(ProximaError) as caught:
        call(*arguments)
    return str(caught.value)


def file_message(directory: Path, text: str | bytes) -> str:
    """What loading a file with this text says, without the file's path in front."""
    path = write(directory, text)
    lines = message(load, path).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines), lines
    return "\n".join(line.removeprefix(f"{path}: ") for line in lines)
