"""The actor and the critic: two MLPs, or two heads on one trunk, over any leading axes."""

from dataclasses import dataclass
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from annotated_types import Ge, MinLen
from jax import Array

from proxima.core.distributions import (
    Distribution,
    MultiCategorical,
    Normal,
    TanhNormal,
    categorical,
)
from proxima.core.errors import ProximaError
from proxima.core.network import Network
from proxima.core.spaces import (
    Box,
    MultiDiscrete,
    ObservationSpace,
    Space,
    action_mask,
    flat_size,
    is_discrete,
)
from proxima.core.types import PyTree
from proxima.nets.mlp import ACTIVATIONS, MLP, Linear, linear, mlp
from proxima.nets.observations import Dense


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """Multilayer perceptrons over all fields of an observation side by side."""

    kind: Literal["mlp"] = "mlp"
    """The kind of net."""
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
    adapter: Dense = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def policy(self, obs: PyTree) -> Distribution:
        """The action distribution at each observation."""
        return self._distribution(self._features(obs), action_mask(obs))

    def value(self, obs: PyTree) -> Array:
        """V of each observation."""
        return self._value(self._features(obs))

    def __call__(self, obs: PyTree) -> tuple[Distribution, Array]:
        """Both, the trunk evaluated once."""
        features = self._features(obs)
        return self._distribution(features, action_mask(obs)), self._value(features)

    def _features(self, obs: PyTree) -> Array:
        flat = self.adapter(obs)
        if self.trunk is None:
            return flat
        return ACTIVATIONS[self.activation](self.trunk(flat))

    def _value(self, features: Array) -> Array:
        assert self.critic is not None
        return self.critic(features)[..., 0]

    def _distribution(self, features: Array, mask: Array | None) -> Distribution:
        raw = self.actor(features)
        if isinstance(self.action_space, MultiDiscrete):
            choices = (self.action_space.parts, self.action_space.n)
            return MultiCategorical(*categorical(raw.reshape(*raw.shape[:-1], *choices), mask))
        if self.log_std is None:
            return categorical(raw, mask)
        log_std = jnp.broadcast_to(self.log_std, raw.shape)
        if self.kind == "normal":
            return Normal(raw, log_std)
        assert isinstance(self.action_space, Box)
        low, high = (
            jnp.broadcast_to(jnp.asarray(bound), raw.shape)
            for bound in (self.action_space.low, self.action_space.high)
        )
        return TanhNormal(raw, log_std, low, high)


def distribution_kind(config: MLPConfig, space: Space) -> str:
    """The distribution that `auto` stands for."""
    if config.distribution != "auto":
        return config.distribution
    return "categorical" if is_discrete(space) else "normal"


def actor_critic(
    key: Array, config: MLPConfig, observation_space: ObservationSpace, action_space: Space
) -> ActorCritic:
    """Orthogonal nets; the policy's last gain is 0.01, so that training starts near uniform."""
    trunk_key, actor_key, critic_key = jax.random.split(key, 3)
    numbers = flat_size(action_space)
    outputs = numbers if isinstance(action_space, Box) else numbers * action_space.n
    adapter = Dense(observation_space)
    kind = distribution_kind(config, action_space)
    log_std = jnp.zeros(outputs) if isinstance(action_space, Box) else None
    fixed = (log_std, adapter, action_space, kind, config.activation)
    if config.shared_trunk:
        width = config.hidden[-1]
        trunk = mlp(trunk_key, (adapter.size, *config.hidden), config.activation, 2**0.5)
        policy, value = linear(actor_key, width, outputs, 0.01), linear(critic_key, width, 1, 1.0)
        return ActorCritic(trunk, policy, value, *fixed)
    actor = mlp(actor_key, (adapter.size, *config.hidden, outputs), config.activation, 0.01)
    critic = mlp(critic_key, (adapter.size, *config.hidden, 1), config.activation, 1.0)
    return ActorCritic(None, actor, critic, *fixed)


def check_spaces(
    config: MLPConfig, observation_space: ObservationSpace, action_space: Space, env_name: str
) -> None:
    """An error in words where the observation has nothing to see or the distribution does not fit."""
    check_distribution(config.distribution, action_space, env_name)
    if flat_size(observation_space) == 0:
        raise ProximaError(
            "network.kind: the environment shows nothing but an action mask, and no net can tell "
            "one state from another by that; give its observation a field to see"
        )


def check_distribution(kind: str, space: Space, env_name: str) -> None:
    """An error in words where the distribution does not fit the actions."""
    discrete = is_discrete(space)
    if kind == "tanh_normal" and isinstance(space, Box) and not space.bounded:
        raise ProximaError(
            f"network.distribution: tanh_normal needs bounded actions, {env_name}'s are not; use normal"
        )
    if kind == "auto" or (kind == "categorical") == discrete:
        return
    fitting = "categorical" if discrete else "normal or tanh_normal"
    actions = "discrete" if discrete else "continuous"
    raise ProximaError(
        f"network.distribution: {kind} does not fit {env_name}, whose actions are {actions}; "
        f"use auto or {fitting}"
    )


NETWORK = Network(
    config=MLPConfig,
    make=actor_critic,
    check_spaces=check_spaces,
    shares_torso=lambda config: config.shared_trunk,
)
