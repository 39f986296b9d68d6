"""What agents are made for, in tests."""

from typing import Any

from proxima.core.algorithm import Problem
from proxima.core.network import NetworkSpec
from proxima.core.spaces import ObservationSpace, Space
from proxima.nets.actor_critic import NETWORK, MLPConfig


def spec(config: MLPConfig | None = None) -> NetworkSpec:
    """An mlp of these settings."""
    return NetworkSpec(NETWORK, config or MLPConfig(hidden=(8,)))


def problem_of(
    spaces: tuple[ObservationSpace, Space],
    num_envs: int,
    network: MLPConfig | NetworkSpec | None = None,
    **more: Any,
) -> Problem:
    """A problem with these spaces; a net of one small layer unless another is given."""
    return Problem(
        env_name="Probe-v0",
        backend="probe",
        observation_space=spaces[0],
        action_space=spaces[1],
        num_envs=num_envs,
        network=network if isinstance(network, NetworkSpec) else spec(network),
        **({"total_updates": None} | more),
    )
