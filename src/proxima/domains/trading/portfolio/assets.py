"""The net for portfolios: one perceptron that looks at every asset by itself, with the same weights for all.

    score of an asset     a perceptron of its features and weight, and of the means over all assets
    policy                a normal distribution around the scores; long only, cash has a score of its own
    value                 a perceptron of the means over all assets

What is learnt of one asset holds for all of them: there are as many samples as bars times assets, and the
order of the assets does not matter (as in Jiang, Xu, Liang 2017, arXiv 1706.10059).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from annotated_types import Interval, Len
from jax import Array

from proxima.core.distributions import Normal
from proxima.core.errors import ProximaError
from proxima.core.network import WIDEST, Network
from proxima.core.spaces import Box, Fields, ObservationSpace, Space
from proxima.core.types import PyTree
from proxima.nets.mlp import MLP, mlp


@dataclass(frozen=True, kw_only=True)
class AssetsConfig:
    """One perceptron for every asset, and one for the value of all."""

    kind: Literal["assets"] = "assets"
    """The kind of net."""
    hidden: Annotated[tuple[Annotated[int, Interval(ge=1, le=WIDEST)], ...], Len(1, 64)] = (32, 32)
    """Widths of the hidden layers."""
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    """Nonlinearity after each of them."""


class AssetsActorCritic(eqx.Module):
    """A policy over weights and a value, over any leading axes."""

    actor: MLP
    cash: Array | None  # its score; None where shorts pay for longs
    log_std: Array  # one for all assets
    critic: MLP | None  # None in an exported policy

    def policy(self, obs: PyTree) -> Normal:
        """The action distribution at each observation."""
        seen = _of_assets(obs)
        everywhere = jnp.broadcast_to(seen.mean(axis=-2, keepdims=True), seen.shape)
        scores = self.actor(jnp.concatenate([seen, everywhere], axis=-1))[..., 0]
        if self.cash is not None:
            cash = jnp.broadcast_to(self.cash, (*scores.shape[:-1], 1))
            scores = jnp.concatenate([cash, scores], axis=-1)
        return Normal(scores, jnp.broadcast_to(self.log_std, scores.shape))

    def value(self, obs: PyTree) -> Array:
        """V of each observation."""
        assert self.critic is not None
        return self.critic(_of_assets(obs).mean(axis=-2))[..., 0]

    def __call__(self, obs: PyTree) -> tuple[Normal, Array]:
        """Both."""
        return self.policy(obs), self.value(obs)


def _of_assets(obs: PyTree) -> Array:
    """What is known of every asset, (..., n, w·k + 1)."""
    return jnp.concatenate([obs["features"], obs["weights"][..., None]], axis=-1)


def make(
    key: Array, config: AssetsConfig, observation_space: ObservationSpace, action_space: Space
) -> AssetsActorCritic:
    """Orthogonal nets; the policy's last gain is 0.01, so that training starts near the uniform portfolio."""
    assert isinstance(observation_space, Fields) and isinstance(action_space, Box)
    features = observation_space.get("features")
    assert features is not None
    actor_key, critic_key = jax.random.split(key)
    assets, inputs = features.shape[0], features.shape[1] + 1
    return AssetsActorCritic(
        actor=mlp(actor_key, (2 * inputs, *config.hidden, 1), config.activation, 0.01),
        cash=jnp.zeros(1) if action_space.shape[0] > assets else None,
        log_std=jnp.zeros(1),
        critic=mlp(critic_key, (inputs, *config.hidden, 1), config.activation, 1.0),
    )


def check_spaces(
    config: AssetsConfig, observation_space: ObservationSpace, action_space: Space, env_name: str
) -> None:
    """An error in words where there are no assets to look at."""
    names = observation_space.names if isinstance(observation_space, Fields) else ()
    if set(names) != {"features", "weights"} or not isinstance(action_space, Box):
        raise ProximaError(
            f"network.kind: assets is for portfolios, and {env_name} is none; use mlp"
        )


NETWORK = Network(config=AssetsConfig, make=make, check_spaces=check_spaces)
