"""The nets of `torchrl_cases` as TorchRL has them, and steps on their losses; needs the extra `oracle`."""

from collections.abc import Iterable
from typing import Any

import torch
import torchrl_cases as given
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.modules import (
    Actor,
    IndependentNormal,
    MaskedCategorical,
    ProbabilisticActor,
    QValueActor,
    TanhNormal,
    ValueOperator,
)
from torchrl.modules.models import DuelingMlpDQNet
from torchrl_samples import tensor


def perceptron(first: int, inputs: int, outputs: int) -> nn.Sequential:
    """Two layers, of which the first is the one that an agent makes as its `first`-th."""
    net = nn.Sequential(nn.Linear(inputs, given.WIDTH), nn.Tanh(), nn.Linear(given.WIDTH, outputs))
    fill(net[0], first)
    fill(net[2], first + 1)
    return net


def fill(linear: nn.Linear, index: int) -> None:
    weight, bias = given.layer(index, linear.in_features, linear.out_features)
    linear.weight.data, linear.bias.data = tensor(weight.T), tensor(bias)


class Means(nn.Module):
    """A net of means, and deviations that are the same everywhere."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.log_std = net, nn.Parameter(torch.zeros(given.NUMBERS))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.net(obs)
        return mean, self.log_std.exp().expand_as(mean)


class MeansAndDeviations(nn.Module):
    """A net that gives both."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(obs).chunk(2, -1)
        return mean, log_std.exp()


class Critic(nn.Module):
    """A net of observations and actions side by side."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.net(torch.cat([obs, action], -1))


def layer_normed(net: nn.Sequential) -> nn.Sequential:
    """The net with a layer norm before its activation."""
    return nn.Sequential(net[0], nn.LayerNorm(given.WIDTH, eps=1e-6), net[1], net[2])


def dueling() -> DuelingMlpDQNet:
    """One hidden layer, and a linear head for either part."""
    net = DuelingMlpDQNet(
        given.CHOICES,
        mlp_kwargs_feature={
            "in_features": given.SEEN,
            "num_cells": [],
            "out_features": given.WIDTH,
            "activation_class": nn.Tanh,
        },
        mlp_kwargs_output={"in_features": given.WIDTH, "num_cells": [], "depth": 0},
    )
    for index, part in enumerate((net.features, net.advantage, net.value)):
        fill(part[0], index)
    return net


def q_actor(net: nn.Module) -> QValueActor:
    """Q of every choice that the mask allows."""
    module = TensorDictModule(net, in_keys=["observation"], out_keys=["action_value"])
    return QValueActor(module, action_space="categorical", action_mask_key="mask")


def choosing_actor(first: int) -> ProbabilisticActor:
    """A policy of masked choices."""
    net = perceptron(first, given.SEEN, given.CHOICES)
    # Times a probability of 0 a true −inf would be NaN.
    settings = {"neg_inf": torch.finfo(torch.float64).min}
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits", "mask"],
        distribution_class=MaskedCategorical,
        distribution_kwargs=settings,
        return_log_prob=True,
    )


def normal_actor() -> ProbabilisticActor:
    """PPO's policy of numbers."""
    return numbers_actor(Means(perceptron(0, given.SEEN, given.NUMBERS)), IndependentNormal)


def tanh_normal_actor() -> ProbabilisticActor:
    """SAC's policy, of actions within [-1, 1] as ours; in other units log π differs by a constant."""
    net = MeansAndDeviations(perceptron(0, given.SEEN, 2 * given.NUMBERS))
    return numbers_actor(net, TanhNormal, safe_tanh=False, tanh_loc=False)


def numbers_actor(net: nn.Module, distribution: type, **settings: Any) -> ProbabilisticActor:
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=distribution,
        distribution_kwargs=settings,
        return_log_prob=True,
    )


def deterministic_actor() -> Actor:
    """DDPG's policy."""
    net = nn.Sequential(perceptron(0, given.SEEN, given.NUMBERS), nn.Tanh())
    return Actor(net, in_keys=["observation"])


def critics(count: int) -> list[ValueOperator]:
    """Critics of observations and actions, whose layers are made after an actor's two."""
    nets = [perceptron(2 + 2 * k, given.SEEN + given.NUMBERS, 1) for k in range(count)]
    return [ValueOperator(Critic(net), in_keys=["observation", "action"]) for net in nets]


def choice_critics() -> list[ValueOperator]:
    """Two critics of every choice, whose layers are made before the actor's."""
    nets = [perceptron(2 * k, given.SEEN, given.CHOICES) for k in range(2)]
    names = {"in_keys": ["observation"], "out_keys": ["action_value"]}
    return [ValueOperator(net, **names) for net in nets]


def adam(parameters: Iterable[Tensor], eps: float = 1e-8) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=given.RATE, eps=eps)


def leaves(parameters: TensorDict) -> list[Tensor]:
    return list(parameters.values(include_nested=True, leaves_only=True))


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    """One step on the loss; the norm of its gradient."""
    optimizer.zero_grad()
    loss.backward()
    parameters = [part for group in optimizer.param_groups for part in group["params"]]
    norm = torch.nn.utils.get_total_norm([part.grad for part in parameters])
    optimizer.step()
    return float(norm)
