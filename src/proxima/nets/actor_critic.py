"""The actor and the critic: two MLPs, or two heads on one trunk, over any leading axes.

observation ─► encoder (torsos for pictures) ─► [memory] ─► [trunk] ─► actor ─► distribution
                                                                  └─► critic ─► value
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from annotated_types import Interval, Len
from jax import Array

from proxima.core.distributions import (
    Distribution,
    MultiCategorical,
    Normal,
    TanhNormal,
    categorical,
)
from proxima.core.errors import ProximaError
from proxima.core.network import WIDEST, Network
from proxima.core.spaces import (
    Box,
    MultiDiscrete,
    ObservationSpace,
    Space,
    action_mask,
    flat_size,
    is_discrete,
    valid_choices,
)
from proxima.core.types import PyTree
from proxima.nets.encoder import Encoder, TorsoChoice, check_torso, encoder, has_torso
from proxima.nets.mlp import ACTIVATIONS, MLP, Linear, linear, mlp
from proxima.nets.recurrent import Recurrent, cell, first_memory, seen_space

SMALL_WIDTH = 128  # units of a layer; at 256 a second core gains a third


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """Multilayer perceptrons over all fields of an observation side by side, pictures by a torso."""

    kind: Literal["mlp"] = "mlp"
    """The kind of net."""
    hidden: Annotated[tuple[Annotated[int, Interval(ge=1, le=WIDEST)], ...], Len(0, 64)] = (64, 64)
    """Widths of the hidden layers, after the torso where there is one; [] for none."""
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    """Nonlinearity after each hidden layer."""
    shared_trunk: bool = False
    """One trunk with a policy and a value head instead of two separate nets; a torso is shared either way."""
    torso: TorsoChoice = "auto"
    """What pictures go through: auto takes nature from 36 pixels a side on, else minatar, and nothing where
    there are no pictures; none lays the pixels side by side."""
    torso_width: Annotated[int, Interval(ge=1, le=64)] = 1
    """Times as many channels in every convolution as the torso's paper has."""
    distribution: Literal["auto", "categorical", "normal", "tanh_normal"] = "auto"
    """Action distribution; auto takes categorical for discrete and normal for continuous actions."""
    memory: Literal["none", "gru", "lstm"] = "none"
    """A recurrent layer before the hidden ones, which carries on what was seen within an episode."""
    memory_size: Annotated[int, Interval(ge=1, le=WIDEST)] = 128
    """Numbers that the memory gives on; an LSTM carries twice as many."""


class ActorCritic(eqx.Module):
    """A policy and a value of observations; `trunk` is None when the two nets are separate."""

    encoder: Encoder
    trunk: MLP | None
    actor: MLP | Linear
    critic: MLP | Linear | None  # None in an exported policy
    log_std: Array | None  # state-independent, as in the PPO paper; None for discrete actions
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
        encoded = self.encoder(obs)
        if self.trunk is None:
            return encoded
        return ACTIVATIONS[self.activation](self.trunk(encoded))

    def _value(self, features: Array) -> Array:
        assert self.critic is not None
        return self.critic(features)[..., 0]

    def _distribution(self, features: Array, mask: Array | None) -> Distribution:
        raw = self.actor(features)
        if isinstance(self.action_space, MultiDiscrete):
            choices = (self.action_space.parts, self.action_space.n)
            valid = valid_choices(self.action_space, mask, raw.ndim - 1)
            return MultiCategorical(*categorical(raw.reshape(*raw.shape[:-1], *choices), valid))
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


def actor_critic(
    key: Array, config: MLPConfig, observation_space: ObservationSpace, action_space: Space
) -> ActorCritic:
    """Orthogonal nets; the policy's last gain is 0.01, so that training starts near uniform."""
    trunk_key, actor_key, critic_key = jax.random.split(key, 3)
    encode = encoder(key, config.torso, observation_space, config.torso_width)
    inputs, numbers = encode.size, flat_size(action_space)
    outputs = numbers if isinstance(action_space, Box) else numbers * action_space.n
    log_std = jnp.zeros(outputs) if isinstance(action_space, Box) else None
    usual = "categorical" if is_discrete(action_space) else "normal"
    kind = usual if config.distribution == "auto" else config.distribution
    fixed = (log_std, action_space, kind, config.activation)
    if config.shared_trunk and config.hidden:
        width = config.hidden[-1]
        trunk = mlp(trunk_key, (inputs, *config.hidden), config.activation, 2**0.5)
        policy, value = linear(actor_key, width, outputs, 0.01), linear(critic_key, width, 1, 1.0)
        return ActorCritic(encode, trunk, policy, value, *fixed)
    actor = mlp(actor_key, (inputs, *config.hidden, outputs), config.activation, 0.01)
    critic = mlp(critic_key, (inputs, *config.hidden, 1), config.activation, 1.0)
    return ActorCritic(encode, None, actor, critic, *fixed)


def actor_critic_with_memory(
    key: Array, config: MLPConfig, observation_space: ObservationSpace, action_space: Space
) -> Any:
    """The net that the settings ask for, with a memory before its hidden layers or without."""
    if config.memory == "none":
        return actor_critic(key, config, observation_space, action_space)
    cell_key, heads_key = jax.random.split(key)
    seen = seen_space(config.memory_size, observation_space)
    encode = encoder(key, config.torso, observation_space, config.torso_width)
    return Recurrent(
        encode=encode,
        cell=cell(cell_key, config.memory, encode.size, config.memory_size),
        heads=actor_critic(heads_key, config, seen, action_space),
    )


def memory(config: MLPConfig, num_envs: int) -> PyTree:
    """What so many environments remember when an episode begins."""
    if config.memory == "none":
        return None
    return first_memory(config.memory, config.memory_size, num_envs)


def check_spaces(
    config: MLPConfig, observation_space: ObservationSpace, action_space: Space, env_name: str
) -> None:
    """An error in words where the observation has nothing to see or the distribution does not fit."""
    kind, discrete = config.distribution, is_discrete(action_space)
    if kind == "tanh_normal" and isinstance(action_space, Box) and not action_space.bounded:
        raise ProximaError(
            f"network.distribution: tanh_normal needs bounded actions, {env_name}'s are not; use normal"
        )
    if kind != "auto" and (kind == "categorical") != discrete:
        fitting = "categorical" if discrete else "normal or tanh_normal"
        actions = "discrete" if discrete else "continuous"
        raise ProximaError(
            f"network.distribution: {kind} does not fit {env_name}, whose actions are {actions}; "
            f"use auto or {fitting}"
        )
    if flat_size(observation_space) == 0:
        raise ProximaError(
            "network.kind: the environment shows nothing but an action mask, and no net can tell "
            "one state from another by that; give its observation a field to see"
        )
    check_torso(config.torso, observation_space, env_name)


def is_small(config: MLPConfig) -> bool:
    """Whether two cores would be slower than one: no torso, no memory, and layers up to this wide.

    Measured with PPO, minibatches of 64 to 256 (docs/performance.md).
    """
    plain = config.memory == "none" and config.torso in ("auto", "none")
    return plain and all(width <= SMALL_WIDTH for width in config.hidden)


NETWORK = Network(
    config=MLPConfig,
    make=actor_critic_with_memory,
    check_spaces=check_spaces,
    shares_torso=lambda config, space: (
        config.shared_trunk or config.memory != "none" or has_torso(config.torso, space)
    ),
    memory=memory,
    small=is_small,
)
