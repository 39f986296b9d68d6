"""The section `network` as algorithms use it whose nets are not an actor-critic: separate perceptrons."""

from proxima.core.algorithm import Problem
from proxima.core.errors import ProximaError
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.encoder import check_torso


def perceptron_settings(problem: Problem, algorithm: str) -> MLPConfig:
    """The settings of the algorithm's perceptrons, or an error in words where they cannot be like that."""
    network, config = problem.network, problem.network.config
    if not isinstance(config, MLPConfig):
        raise ProximaError(
            f"network.kind: {algorithm}'s actor and critics are perceptrons, not {network.name} nets; "
            "set it to mlp"
        )
    if config.shared_trunk:
        raise ProximaError(
            f"network.shared_trunk: {algorithm}'s actor and critics share nothing; set it to false"
        )
    if config.distribution != "auto":
        raise ProximaError(
            f"network.distribution: {config.distribution} is no use to {algorithm}, whose actions "
            "follow from the algorithm; leave it at auto"
        )
    check_torso(config.torso, problem.observation_space, problem.env_name)
    return config
