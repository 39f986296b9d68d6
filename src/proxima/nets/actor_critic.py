"""The actor and the critic: two MLPs, or two heads on one trunk, over any leading axes."""

from dataclasses import dataclass
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from annotated_types import Ge, MinLen
from jax import Array

from proxima.core.distributions import Distribution, Normal, TanhNormal, categorical
from proxima.core.spaces import Box, Discrete, Space, flat_size
from proxima.nets.mlp import ACTIVATIONS, MLP, Linear, linear, mlp


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The shape of the policy's and the value's nets."""

    hidden: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] = (64, 64)
    """Widths of the hidden layers."""
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    """Nonlinearity after each hidden layer."""
    shared_trunk: bool = False
    """One trunk with a policy and a value head instead of two separate nets."""
    distribution: Literal["auto", "categorical", "normal", "tanh_normal"] = "auto"
    """Action distribution; auto takes categorical for discrete and normal for continuous actions."""


class ActorCritic(eqx.Module):
    """A policy and a value of observations; `trunk` is None when the two nets are separate."""

    trunk: MLP | None
    actor: MLP | Linear
    critic: MLP | Linear | None  # None in an exported policy
    log_std: Array | None  # state-independent, as in the PPO paper; None for discrete actions
    action_space: Space = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    activation: str = eqx.field(static=True)
    observation_rank: int = eqx.field(static=True)  # axes of one observation

    def policy(self, obs: Array) -> Distribution:
        """The action distribution at each observation."""
        return self._distribution(self._features(obs))

    def value(self, obs: Array) -> Array:
        """V of each observation."""
        return self._value(self._features(obs))

    def __call__(self, obs: Array) -> tuple[Distribution, Array]:
        """Both, the trunk evaluated once."""
        features = self._features(obs)
        return self._distribution(features), self._value(features)

    def _features(self, obs: Array) -> Array:
        leading = obs.shape[: obs.ndim - self.observation_rank]
        flat = obs.reshape(*leading, -1).astype(jnp.float32)
        if self.trunk is None:
            return flat
        return ACTIVATIONS[self.activation](self.trunk(flat))

    def _value(self, features: Array) -> Array:
        assert self.critic is not None
        return self.critic(features)[..., 0]

    def _distribution(self, features: Array) -> Distribution:
        raw = self.actor(features)
        if self.log_std is None:
            return categorical(raw)
        log_std = jnp.broadcast_to(self.log_std, raw.shape)
        if self.kind == "normal":
            return Normal(raw, log_std)
        assert isinstance(self.action_space, Box)
        low, high = (
            jnp.broadcast_to(jnp.asarray(bound), raw.shape)
            for bound in (self.action_space.low, self.action_space.high)
        )
        return TanhNormal(raw, log_std, low, high)


def distribution_kind(config: NetworkConfig, space: Space) -> str:
    """The distribution that `auto` stands for."""
    if config.distribution != "auto":
        return config.distribution
    return "categorical" if isinstance(space, Discrete) else "normal"


def actor_critic(
    key: Array, config: NetworkConfig, observation_space: Box, action_space: Space
) -> ActorCritic:
    """Orthogonal nets; the policy's last gain is 0.01, so that training starts near uniform."""
    trunk_key, actor_key, critic_key = jax.random.split(key, 3)
    outputs = action_space.n if isinstance(action_space, Discrete) else flat_size(action_space)
    inputs = flat_size(observation_space)
    kind = distribution_kind(config, action_space)
    log_std = None if isinstance(action_space, Discrete) else jnp.zeros(outputs)
    fixed = (log_std, action_space, kind, config.activation, len(observation_space.shape))
    if config.shared_trunk:
        width = config.hidden[-1]
        trunk = mlp(trunk_key, (inputs, *config.hidden), config.activation, 2**0.5)
        policy, value = linear(actor_key, width, outputs, 0.01), linear(critic_key, width, 1, 1.0)
        return ActorCritic(trunk, policy, value, *fixed)
    actor = mlp(actor_key, (inputs, *config.hidden, outputs), config.activation, 0.01)
    critic = mlp(critic_key, (inputs, *config.hidden, 1), config.activation, 1.0)
    return ActorCritic(None, actor, critic, *fixed)
