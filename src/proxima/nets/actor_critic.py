"""The actor and the critic: two MLPs, or two heads on one trunk, over any leading axes.

For packings and for boards there are nets of their own; which one takes an observation is its adapter.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

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
from proxima.core.spaces import (
    Box,
    Discrete,
    Fields,
    MultiDiscrete,
    ObservationSpace,
    Space,
    action_mask,
    flat_size,
    is_discrete,
)
from proxima.core.types import PyTree
from proxima.domains.packing import attention, grid
from proxima.domains.packing.attention import AttentionConfig, packing_actor_critic
from proxima.domains.packing.grid import GridConfig, grid_actor_critic
from proxima.nets.mlp import ACTIVATIONS, MLP, Linear, linear, mlp
from proxima.nets.observations import Dense


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
    adapter: Literal["auto", "dense", "binpack", "grid"] = "auto"
    """How observations go into the net: dense lays all fields side by side, binpack lets items and spaces
    attend to each other, grid spreads values over boards; auto takes what the fields fit."""
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    """The net of the binpack adapter."""
    grid: GridConfig = field(default_factory=GridConfig)
    """The net of the grid adapter; hidden and activation are those of its outputs."""


class PolicyAndValue(Protocol):
    """What a learner needs of a net, over any leading axes."""

    @property
    def critic(self) -> PyTree: ...  # None in an exported policy

    def policy(self, obs: PyTree) -> Distribution: ...

    def value(self, obs: PyTree) -> Array: ...

    def __call__(self, obs: PyTree) -> tuple[Distribution, Array]: ...


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


def distribution_kind(config: NetworkConfig, space: Space) -> str:
    """The distribution that `auto` stands for."""
    if config.distribution != "auto":
        return config.distribution
    return "categorical" if is_discrete(space) else "normal"


def actor_critic(
    key: Array,
    config: NetworkConfig,
    observation_space: ObservationSpace,
    action_space: Space,
) -> PolicyAndValue:
    """The net that the observation's adapter stands for."""
    kind = adapter_kind(config, observation_space, action_space)
    if kind == "binpack":
        assert isinstance(observation_space, Fields) and isinstance(action_space, Discrete)
        return packing_actor_critic(key, config.attention, observation_space, action_space)
    if kind == "grid":
        assert isinstance(observation_space, Fields) and isinstance(action_space, Discrete)
        spaces = observation_space, action_space
        return grid_actor_critic(key, config.grid, config.hidden, config.activation, spaces)
    return dense_actor_critic(key, config, observation_space, action_space)


def adapter_kind(
    config: NetworkConfig, observation_space: ObservationSpace, action_space: Space
) -> str:
    """The adapter that `auto` stands for; an error in words where the one asked for does not fit."""
    fitting = {
        "binpack": attention.fits(observation_space),
        "grid": grid.fits(observation_space, action_space),
        "dense": flat_size(observation_space) > 0,
    }
    if not any(fitting.values()):
        raise ProximaError(
            "network.adapter: the environment shows nothing but an action mask, and no net can tell "
            "one state from another by that; give its observation a field to see"
        )
    if config.adapter == "auto":
        return next(name for name, fits in fitting.items() if fits)
    if not fitting[config.adapter]:
        needed = {
            "binpack": f"the fields {', '.join(attention.FIELDS)}",
            "grid": "boards of truth values in one shape and positions on them",
            "dense": "a field besides the mask",
        }[config.adapter]
        names = observation_space.names if isinstance(observation_space, Fields) else ()
        has = f"it has {', '.join(names)}" if names else "it is one array"
        raise ProximaError(
            f"network.adapter: {config.adapter} needs an observation with {needed}; {has}; "
            "use auto or dense"
        )
    return config.adapter


def shares_torso(
    config: NetworkConfig, observation_space: ObservationSpace, action_space: Space
) -> bool:
    """Whether policy and value are computed from one torso, so that both cost little more than one."""
    kind = adapter_kind(config, observation_space, action_space)
    return kind != "dense" or config.shared_trunk


def dense_actor_critic(
    key: Array,
    config: NetworkConfig,
    observation_space: ObservationSpace,
    action_space: Space,
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
