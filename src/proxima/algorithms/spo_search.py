"""SPO's search: `core/smc.py` with a net as prior and critic, and copies of an environment as the model."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core import smc
from proxima.core.distributions import Distribution
from proxima.core.network import PolicyAndValue
from proxima.core.normalize import Moments, normalize
from proxima.core.spaces import Box, Discrete
from proxima.core.types import Env, PyTree, View


class Policy(NamedTuple):
    """Only what acting needs of a learner; without environment states to search in, the net alone."""

    net: PolicyAndValue
    obs_moments: Moments | None
    rules: smc.Rules
    dirichlet_fraction: Array
    reward_scale: Array


class Noise(NamedTuple):
    """The randomness of searches (..., as many numbers as particles, depths, actions need)."""

    root: Array
    search: smc.Noise | None  # environment before depth; None where evaluation does not search
    choice: Array  # uniform: which particle is played
    log_gamma: Array | None  # of Dirichlet noise


class Search(eqx.Module):
    """Searches from a batch of environment states."""

    env: Env
    particles: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    by_ess: bool = eqx.field(static=True)  # resample by effective sample size, not by period
    mix_noise: bool = eqx.field(static=True)  # Dirichlet noise in the prior at the root

    def __call__(
        self, policy: Policy, view: View, noise: Noise, depths: smc.Noise
    ) -> tuple[smc.SearchResult, PyTree]:
        """A search from every environment's state; a depth is one pass of actor and critic.

        The root actions of the result are raw; beside it they are as the environment takes them.
        """
        prior, value = policy.net(normalize(policy.obs_moments, view.obs))
        prior = jax.tree.map(lambda leaf: leaf[:, None], prior)  # one for all particles
        mixed = None
        if noise.log_gamma is not None:
            logits, log_gamma = prior.logits, noise.log_gamma[:, None]  # type: ignore[union-attr]
            mixed = smc.mix_dirichlet(logits, log_gamma, policy.dirichlet_fraction)
        root_action = self.draw(prior, noise.root, mixed)

        def step(state: PyTree, action: PyTree, key: Array):
            state, result = jax.vmap(jax.vmap(self.env.step))(state, action, key)
            return state, result._replace(reward=policy.reward_scale * result.reward)

        def predict(obs: PyTree, noise: Array) -> tuple[PyTree, Array]:
            distribution, value = policy.net(normalize(policy.obs_moments, obs))
            return distribution.to_action(self.draw(distribution, noise)), value

        root = smc.first_particles(view.env_state, root_action, prior.to_action(root_action), value)
        by_depth = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), depths)
        result = smc.search(smc.Model(step, predict), root, by_depth, policy.rules, self.by_ess)
        return result, prior.to_action(result.root_action)

    def draw(
        self, distribution: Distribution, noise: Array, probability: Array | None = None
    ) -> PyTree:
        """Raw actions by the noise; for a discrete one, one uniform number picks among all valid actions."""
        if isinstance(self.env.action_space, Box):
            return distribution.sample(noise)
        if probability is None:
            probability = jnp.exp(distribution.logits)  # type: ignore[union-attr]
        return smc.pick(probability, noise)

    def noise(
        self, key: Array, shape: tuple[int, ...], dirichlet_alpha: Array, searching: bool
    ) -> Noise:
        """The randomness of `shape` searches, or of single actions, drawn in one call."""
        root, action, step, resample, choice, gamma = jax.random.split(key, 6)
        if not searching:
            return Noise(self._action_noise(root, (*shape, 1)), None, jnp.zeros(shape), None)
        copies = (*shape, self.depth, self.particles)
        log_gamma = None
        if self.mix_noise:
            space = self.env.action_space
            assert not isinstance(space, Box)  # checked when the agent was made
            size = (*shape, *space.shape, space.n)
            log_gamma = jax.random.loggamma(gamma, dirichlet_alpha, size)
        return Noise(
            root=self._root_noise(root, shape),
            search=smc.Noise(
                action=self._action_noise(action, copies),
                step=jax.random.split(step, copies),
                resample=jax.random.uniform(resample, copies),
            ),
            choice=jax.random.uniform(choice, shape),
            log_gamma=log_gamma,
        )

    def _root_noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        space = self.env.action_space
        if not isinstance(space, Discrete):
            return self._action_noise(key, (*shape, self.particles))
        # Evenly spaced from one random start: an action is drawn N·π times, give or take less than one.
        start = jax.random.uniform(key, (*shape, 1))
        rank = jax.lax.broadcasted_iota(jnp.float32, (*shape, self.particles), len(shape))
        return (rank + start) / self.particles

    def _action_noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        space = self.env.action_space
        draw = jax.random.normal if isinstance(space, Box) else jax.random.uniform
        return draw(key, (*shape, *space.shape))
