"""Q of every discrete action, over any leading axes; a dueling head and layer norms are values of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.algorithm import Problem
from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Discrete, ObservationSpace, action_mask
from proxima.core.types import PyTree
from proxima.nets.actor_critic import MLPConfig, check_spaces
from proxima.nets.encoder import Encoder, check_normalized, encoder
from proxima.nets.mlp import ACTIVATIONS, Linear, linear

NORM_EPS = 1e-6  # added to the variance; what Flax adds, and so the nets of arXiv 2407.04811


class LayerNorm(eqx.Module):
    """x with mean 0 and deviation 1 over its last axis, then scaled and shifted as learnt."""

    scale: Array
    shift: Array

    def __call__(self, x: Array) -> Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        deviation = jnp.sqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + NORM_EPS)
        scale, shift = (jnp.broadcast_to(part, x.shape) for part in (self.scale, self.shift))
        return centred / deviation * scale + shift


class Head(eqx.Module):
    """Features ↦ Q: one number per action or, dueling, V + A less the mean of A (arXiv 1511.06581, eq. 9)."""

    advantage: Linear  # Q itself, where there is no value
    value: Linear | None

    def __call__(self, features: Array) -> Array:
        advantage = self.advantage(features)
        if self.value is None:
            return advantage
        return self.value(features) + advantage - jnp.mean(advantage, axis=-1, keepdims=True)


class QNet(eqx.Module):
    """Observations ↦ Q of every action, (..., actions), valid or not."""

    encoder: Encoder
    layers: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...] | None  # before each activation
    head: Head
    activation: str = eqx.field(static=True)

    def __call__(self, obs: PyTree) -> Array:
        x = self.encoder(obs)
        for depth, layer in enumerate(self.layers):
            x = layer(x) if self.norms is None else self.norms[depth](layer(x))
            x = ACTIVATIONS[self.activation](x)
        return self.head(x)


def q_net(
    key: Array,
    config: MLPConfig,
    spaces: tuple[ObservationSpace, Discrete],
    *,
    dueling: bool,
    layer_norm: bool,
) -> QNet:
    """An orthogonal net with hidden gains √2 and last gain 1."""
    observation_space, action_space = spaces
    encode = encoder(key, config.torso, observation_space, config.torso_width)
    *keys, advantage_key, value_key = jax.random.split(key, len(config.hidden) + 2)
    widths = (encode.size, *config.hidden)
    layers = [
        linear(layer_key, widths[depth], widths[depth + 1], 2**0.5)
        for depth, layer_key in enumerate(keys)
    ]
    norms = [LayerNorm(jnp.ones(width), jnp.zeros(width)) for width in config.hidden]
    head = Head(
        linear(advantage_key, widths[-1], action_space.n, 1.0),
        linear(value_key, widths[-1], 1, 1.0) if dueling else None,
    )
    return QNet(
        encode, tuple(layers), tuple(norms) if layer_norm else None, head, config.activation
    )


def valid(q: Array, obs: PyTree) -> Array:
    """Q with −inf for the actions that the mask of the observation does not allow."""
    mask = action_mask(obs)
    return q if mask is None else jnp.where(mask, q, -jnp.inf)


def greedy(q: Array, obs: PyTree) -> Array:
    """The valid action of the largest Q, the first of equals."""
    return jnp.argmax(valid(q, obs), axis=-1).astype(jnp.int32)


def largest(q: Array, obs: PyTree) -> Array:
    """The largest Q of a valid action; 0 where none is valid, as after the end of an episode."""
    best = jnp.max(valid(q, obs), axis=-1)
    return jnp.where(best > -jnp.inf, best, 0.0)


def of_action(q: Array, action: Array) -> Array:
    """Q of the actions."""
    # A comparison instead of a gather: its gradient is a product, not a scatter.
    index = jax.lax.broadcasted_iota(jnp.int32, q.shape, q.ndim - 1)
    return jnp.sum(jnp.where(index == action[..., None], q, 0.0), axis=-1)


def random_valid(uniform: Array, actions: int, obs: PyTree) -> Array:
    """A valid action for each number in [0, 1), all valid ones equally likely."""
    mask = action_mask(obs)
    if mask is None:
        return jnp.minimum((uniform * actions).astype(jnp.int32), actions - 1)
    rank = jnp.cumsum(mask, axis=-1, dtype=jnp.int32)  # 1 for the first valid action
    count = rank[..., -1]
    wanted = 1 + jnp.minimum((uniform * count).astype(jnp.int32), jnp.maximum(count - 1, 0))
    return jnp.argmax(mask & (rank == wanted[..., None]), axis=-1).astype(jnp.int32)


def epsilon_greedy(uniforms: Array, epsilon: Array, q: Array, obs: PyTree) -> Array:
    """Valid actions: with probability ε a random one, else that of the largest Q; uniforms are (..., 2)."""
    chance = random_valid(uniforms[..., 1], q.shape[-1], obs)
    return jnp.where(uniforms[..., 0] < epsilon, chance, greedy(q, obs))


def check_q(
    problem: Problem, algorithm: str, normalize_observations: bool
) -> tuple[Discrete, MLPConfig]:
    """Actions and settings of the net, or an error in words where a Q of every action cannot be like that."""
    space, config = problem.action_space, problem.network.config
    if not isinstance(space, Discrete):
        kind = "continuous" if isinstance(space, Box) else "several choices at once"
        raise ProximaError(
            f"algorithm.name: {algorithm} needs one choice among discrete actions and "
            f"{problem.env_name}'s are {kind}; use another algorithm, or wrap the environment"
        )
    if not isinstance(config, MLPConfig):
        raise ProximaError(
            f"network.kind: {algorithm}'s Q is a perceptron, not a {problem.network.name} net; "
            "set it to mlp, or use another algorithm"
        )
    if config.shared_trunk:
        raise ProximaError(f"network.shared_trunk: {algorithm} has one net only; set it to false")
    if config.distribution != "auto":
        raise ProximaError(
            f"network.distribution: {config.distribution} is no use to {algorithm}, which takes the "
            "action of the largest Q; leave it at auto"
        )
    check_spaces(config, problem.observation_space, space, problem.env_name)
    check_normalized(problem.observation_space, problem.env_name, normalize_observations)
    return space, config
