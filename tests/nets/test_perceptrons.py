"""Settings of nets that an algorithm with nets of its own cannot use are refused in words."""

from dataclasses import replace

import pytest
from problems import problem_of

from proxima.core.errors import ProximaError
from proxima.core.network import NetworkSpec
from proxima.core.spaces import box
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.network import CustomConfig, network_of
from proxima.nets.perceptrons import perceptron_settings

NETWORK = MLPConfig(hidden=(16, 16), activation="relu")


def problem(network):
    return problem_of((box(-1.0, 1.0, (3,)), box(-1.0, 1.0, (1,))), 1, network)


def test_settings_that_cannot_be_used_are_refused_in_words():
    assert perceptron_settings(problem(NETWORK), "ddpg") is NETWORK
    with pytest.raises(ProximaError, match=r"network\.shared_trunk: ddpg's .*set it to false"):
        perceptron_settings(problem(replace(NETWORK, shared_trunk=True)), "ddpg")
    with pytest.raises(ProximaError, match=r"network\.distribution: .*leave it at auto"):
        perceptron_settings(problem(replace(NETWORK, distribution="tanh_normal")), "sac")
    other = NetworkSpec(network_of(lambda key, *spaces: None), CustomConfig(kind="mine:net"))
    with pytest.raises(ProximaError, match=r"network\.kind: .*not mine:net nets; set it to mlp"):
        perceptron_settings(problem(other), "sac")
