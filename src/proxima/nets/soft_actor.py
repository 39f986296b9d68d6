"""What soft actor-critics need to know of actions: stochastic actors, critics, and the soft value of both.

Bounded numbers and choices differ in what `BoundedNumbers` and `Choices` both have. Numbers are in units of
half the action range around its middle, as in `nets/deterministic.py`.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.distributions import Categorical, TanhNormal, categorical
from proxima.core.spaces import Box, Discrete, ObservationSpace, action_mask, flat_size
from proxima.core.types import PyTree
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.deterministic import QEnsemble, from_units, q_ensemble, to_units
from proxima.nets.encoder import Encoder, encoder
from proxima.nets.mlp import MLP, mlp

LEAST_LOG_STD, MOST_LOG_STD = -20.0, 2.0  # the SAC authors' own bounds


class GaussianActor(eqx.Module):
    """Observations ↦ tanh-normal distributions over actions in units; mean and deviation depend on them."""

    encoder: Encoder
    net: MLP

    def __call__(self, obs: PyTree) -> TanhNormal:
        mean, log_std = jnp.split(self.net(self.encoder(obs)), 2, axis=-1)
        bound = jnp.ones_like(mean)
        return TanhNormal(mean, jnp.clip(log_std, LEAST_LOG_STD, MOST_LOG_STD), -bound, bound)


class ChoosingActor(eqx.Module):
    """Observations ↦ distributions over choices; those that an action mask forbids have probability 0."""

    encoder: Encoder
    net: MLP

    def __call__(self, obs: PyTree) -> Categorical:
        return categorical(self.net(self.encoder(obs)), action_mask(obs))


class ChoiceQEnsemble(eqx.Module):
    """Observations ↦ Q of every choice by each of its nets, each (..., choices)."""

    encoder: Encoder  # which all nets share
    nets: tuple[MLP, ...]

    def __call__(self, obs: PyTree) -> tuple[Array, ...]:
        inputs = self.encoder(obs)
        return tuple(net(inputs) for net in self.nets)


Actor = Any  # a GaussianActor of numbers, a ChoosingActor of choices
Critics = Any  # a QEnsemble of numbers, a ChoiceQEnsemble of choices


class SoftValue(NamedTuple):
    """Of each observation, under the policy: V = E[min Q] + α H."""

    q: Array  # E[min over critics of Q(s, a)]
    entropy: Array  # H, or −log π of the one action that stands for it


class BoundedNumbers(NamedTuple):
    """Actions of a bounded Box (Haarnoja et al. 2018, arXiv 1812.05905)."""

    space: Box

    @property
    def noise_lasts(self) -> bool:
        """Whether the noise of one step may go on in the next."""
        return True

    @property
    def usual_entropy(self) -> float:
        """What a learnt temperature aims at; `log_choices` is 0."""
        return -float(flat_size(self.space))

    def nets(
        self, key: Array, config: MLPConfig, observation_space: ObservationSpace, critics: int
    ) -> tuple[GaussianActor, QEnsemble]:
        """Orthogonal nets; the actor's last gain is 0.01, so that it starts as tanh of N(0, 1)."""
        actor_key, critic_key = jax.random.split(key)
        encode = encoder(actor_key, config.torso, observation_space, config.torso_width)
        sizes = (encode.size, *config.hidden, 2 * flat_size(self.space))
        net = mlp(actor_key, sizes, config.activation, 0.01)
        critic = q_ensemble(critic_key, config, observation_space, self.space, critics)
        return GaussianActor(encode, net), critic

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Standard normal numbers (*shape, numbers of an action)."""
        return jax.random.normal(key, (*shape, flat_size(self.space)))

    def uniform(self, obs: PyTree, noise: Array) -> Array:
        """Actions that any part of the range has the same share of."""
        # a normal number's share of the bell, from -1 to 1
        return from_units(self.space, jax.lax.erf(noise / 2**0.5))

    def sample(self, actor: GaussianActor, obs: PyTree, noise: Array) -> Array:
        """Actions drawn from the policy."""
        policy = actor(obs)
        return from_units(self.space, policy.to_action(policy.sample(noise)))

    def mode(self, actor: GaussianActor, obs: PyTree) -> Array:
        """The middle of the policy."""
        policy = actor(obs)
        return from_units(self.space, policy.to_action(policy.mode()))

    def value(
        self, actor: GaussianActor, critics: QEnsemble, obs: PyTree, noise: Array
    ) -> SoftValue:
        """The soft value by one action each, through which a gradient reaches the actor."""
        policy = actor(obs)
        raw, log_prob = policy.sample_and_log_prob(noise)
        return SoftValue(least(critics(obs, policy.to_action(raw))), -log_prob)

    def taken(self, critics: QEnsemble, obs: PyTree, action: Array) -> tuple[Array, ...]:
        """Q of the actions by each critic."""
        return critics(obs, to_units(self.space, action))

    def log_choices(self, obs: PyTree) -> Array:
        """0: there is nothing to count."""
        return jnp.zeros(())


class Choices(NamedTuple):
    """Actions of a Discrete space (Christodoulou 2019, arXiv 1910.07207); means over them are exact."""

    space: Discrete

    @property
    def noise_lasts(self) -> bool:
        """Whether the noise of one step may go on in the next."""
        return False

    @property
    def usual_entropy(self) -> float:
        """What a learnt temperature aims at besides a share of `log_choices`."""
        return 0.0

    def nets(
        self, key: Array, config: MLPConfig, observation_space: ObservationSpace, critics: int
    ) -> tuple[ChoosingActor, ChoiceQEnsemble]:
        """Orthogonal nets; the actor's last gain is 0.01, so that it starts near uniform."""
        actor_key, *critic_keys = jax.random.split(key, 1 + critics)
        seeing = (config.torso, observation_space, config.torso_width)
        encode, encode_critic = encoder(actor_key, *seeing), encoder(critic_keys[0], *seeing)
        sizes = (encode.size, *config.hidden, self.space.n)
        nets = [mlp(critic_key, sizes, config.activation, 1.0) for critic_key in critic_keys]
        actor = ChoosingActor(encode, mlp(actor_key, sizes, config.activation, 0.01))
        return actor, ChoiceQEnsemble(encode_critic, tuple(nets))

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Gumbel numbers (*shape, choices)."""
        return jax.random.gumbel(key, (*shape, self.space.n))

    def uniform(self, obs: PyTree, noise: Array) -> Array:
        """Any valid choice as likely as another."""
        return categorical(jnp.zeros_like(noise), action_mask(obs)).sample(noise)

    def sample(self, actor: ChoosingActor, obs: PyTree, noise: Array) -> Array:
        """Choices drawn from the policy."""
        return actor(obs).sample(noise)

    def mode(self, actor: ChoosingActor, obs: PyTree) -> Array:
        """The likeliest choices."""
        return actor(obs).mode()

    def value(
        self, actor: ChoosingActor, critics: ChoiceQEnsemble, obs: PyTree, noise: Array
    ) -> SoftValue:
        """The soft value, its means over all choices; the noise is not needed."""
        policy = actor(obs)
        q = jnp.sum(jnp.exp(policy.logits) * least(critics(obs)), axis=-1)
        return SoftValue(q, policy.entropy())

    def taken(self, critics: ChoiceQEnsemble, obs: PyTree, action: Array) -> tuple[Array, ...]:
        """Q of the choices by each critic."""
        # A comparison instead of a gather: its gradient is a product, not a scatter.
        values = critics(obs)
        index = jax.lax.broadcasted_iota(jnp.int32, values[0].shape, values[0].ndim - 1)
        chosen = index == action[..., None]
        return tuple(jnp.sum(jnp.where(chosen, q, 0.0), axis=-1) for q in values)

    def log_choices(self, obs: PyTree) -> Array:
        """The logarithm of the number of valid choices: the largest entropy a policy can have there."""
        mask = action_mask(obs)
        if mask is None:
            return jnp.log(jnp.float32(self.space.n))
        # After the last step of an episode there may be none.
        return jnp.log(jnp.maximum(jnp.sum(mask, axis=-1), 1).astype(jnp.float32))


Actions = BoundedNumbers | Choices


def least(values: tuple[Array, ...]) -> Array:
    """The least of several estimates, element by element."""
    return functools.reduce(jnp.minimum, values)
