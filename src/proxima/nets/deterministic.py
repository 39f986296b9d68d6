"""The nets of deterministic actor-critics: one action per observation, and Q of both, over any leading axes.

Both nets take actions in units of half the action range around its middle: every coordinate lies in
[-1, 1], whatever the environment's own range.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.spaces import Box, ObservationSpace, flat_size
from proxima.core.types import PyTree
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.encoder import Encoder, encoder, flat
from proxima.nets.mlp import MLP, mlp

SMALLEST_HALF = 1e-8  # a coordinate whose bounds coincide is 0 in units


class DeterministicActor(eqx.Module):
    """Observations ↦ actions in units, flat, (..., numbers of an action)."""

    encoder: Encoder
    net: MLP

    def __call__(self, obs: PyTree) -> Array:
        return jnp.tanh(self.net(self.encoder(obs)))


class QEnsemble(eqx.Module):
    """Observations and actions in units ↦ Q of each of its nets, which share nothing."""

    encoders: tuple[Encoder, ...]
    nets: tuple[MLP, ...]

    def __call__(self, obs: PyTree, units: Array) -> tuple[Array, ...]:
        """Q by every net, each (...)."""
        values = []
        for encode, net in zip(self.encoders, self.nets, strict=True):
            inputs = jnp.concatenate([encode(obs), units], axis=-1)
            values.append(net(inputs)[..., 0])
        return tuple(values)

    def first(self, obs: PyTree, units: Array) -> Array:
        """Q by the first net, whose gradient trains the actor."""
        return QEnsemble(self.encoders[:1], self.nets[:1])(obs, units)[0]


def deterministic_actor(
    key: Array, config: MLPConfig, observation_space: ObservationSpace, action_space: Box
) -> DeterministicActor:
    """An orthogonal net whose last gain is 0.01: its first actions are the middle of the range."""
    encode = encoder(key, config.torso, observation_space, config.torso_width)
    sizes = (encode.size, *config.hidden, flat_size(action_space))
    return DeterministicActor(encode, mlp(key, sizes, config.activation, 0.01))


def q_ensemble(
    key: Array,
    config: MLPConfig,
    observation_space: ObservationSpace,
    action_space: Box,
    count: int,
) -> QEnsemble:
    """`count` orthogonal nets that differ in their first weights only."""
    keys = jax.random.split(key, count)
    encoders = [encoder(one, config.torso, observation_space, config.torso_width) for one in keys]
    sizes = (encoders[0].size + flat_size(action_space), *config.hidden, 1)
    nets = [mlp(one, sizes, config.activation, 1.0) for one in keys]
    return QEnsemble(tuple(encoders), tuple(nets))


def to_units(space: Box, action: Array) -> Array:
    """Actions of the space as flat numbers in [-1, 1]."""
    numbers = flat(action, len(space.shape))
    middle, half = _range(space, numbers)
    return (numbers - middle) / half


def from_units(space: Box, units: Array) -> Array:
    """Flat numbers in [-1, 1] as actions of the space."""
    middle, half = _range(space, units)
    return (middle + half * units).reshape(*units.shape[:-1], *space.shape).astype(space.dtype)


def _range(space: Box, like: Array) -> tuple[Array, Array]:
    """Middle and half width of the range, shaped like the actions."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    half = jnp.maximum((high - low) / 2, SMALLEST_HALF)
    return jnp.broadcast_to((low + high) / 2, like.shape), jnp.broadcast_to(half, like.shape)
