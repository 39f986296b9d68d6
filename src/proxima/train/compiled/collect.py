"""Collecting rollouts from compiled environments: one scan over time, all randomness drawn beforehand."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.curriculum import Begun, Course, tally
from proxima.core.parallel import sum_over
from proxima.core.trees import select
from proxima.core.types import Agent, Env, PyTree, Streams, Transition, View
from proxima.train.compiled.episodes import finished_episodes
from proxima.train.compiled.levels import TALLY


class Actors(NamedTuple):
    """The environments between two rollouts: their states, observations and open episodes, (B, ...)."""

    env_state: PyTree
    obs: PyTree
    episode_return: Array
    episode_length: Array
    memory: PyTree = None  # what the agent remembers of the open episodes


class Collector(eqx.Module):
    """Steps `num_envs` copies of an environment for `steps` steps and resets those that end."""

    env: Env
    num_envs: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    axis: str | None = eqx.field(static=True, default=None)  # mesh axis of the environments
    course: Course | None = None  # of a curriculum; then the environment has levels

    def init(self, reset_keys: Array, memory: PyTree = None) -> Actors:
        """Freshly reset environments, one per key, and what the agent remembers of them."""
        env_state, obs = jax.vmap(self.env.reset)(reset_keys)
        zeros = jnp.zeros(len(reset_keys))
        return Actors(env_state, obs, zeros, zeros, memory)

    def draw(self, env_keys: Array) -> tuple[Array, PyTree]:
        """The rollout's keys to step with, (T, B), and a reset for wherever an episode may end."""
        keys = jax.vmap(lambda env_key: jax.random.split(env_key, (self.steps, 2)))(env_keys)
        keys = jnp.swapaxes(keys, 0, 1)  # (T, B, 2): one to step and one to reset
        # Any step may end an episode: a reset for each, drawn at once, is cheaper than in the loop.
        return keys[:, :, 0], jax.vmap(jax.vmap(self.env.reset))(keys[:, :, 1])

    def __call__(
        self, agent: Agent, learner: PyTree, actors: Actors, key: Streams
    ) -> tuple[Actors, Transition, dict[str, PyTree]]:
        """The actors afterwards, the rollout (T, B, ...), and sums over the episodes that ended."""
        step_keys, resets = self.draw(key.env)
        act_key = key.act
        if self.axis is not None:
            act_key = jax.random.fold_in(act_key, jax.lax.axis_index(self.axis))
        noise = agent.noise(learner, act_key, (self.steps, key.env.shape[0]))

        def step(carry: PyTree, row: PyTree) -> tuple[PyTree, PyTree]:
            env_state, obs, memory = carry
            noise, step_key, reset = row
            action, aux, memory = agent.explore(learner, View(obs, env_state, memory), noise)
            env_state, result = jax.vmap(self.env.step)(env_state, action, step_key)
            ended = result.terminated | result.truncated
            nothing = jax.tree.map(jnp.zeros_like, memory)
            after = select(ended, (*reset, nothing), (env_state, result.obs, memory))
            return after, (obs, action, result._replace(metrics={}), aux)

        rows = (noise, step_keys, resets)
        start = (actors.env_state, actors.obs, actors.memory)
        (env_state, obs, memory), (seen, action, result, aux) = jax.lax.scan(step, start, rows)
        rollout = Transition(
            obs=seen,
            action=action,
            reward=result.reward,
            next_obs=result.obs,
            terminated=result.terminated,
            truncated=result.truncated,
            mask=jnp.ones_like(result.terminated),  # every row is a step
            aux=aux,
        )
        before, actors = actors, actors._replace(env_state=env_state, obs=obs, memory=memory)
        actors, episodes = finished_episodes(rollout, actors)
        if self.course is not None:
            begun = Begun(before.episode_return, before.env_state.level)
            episodes[TALLY] = tally(self.course, rollout, begun, resets[0].level)
        return actors, rollout, sum_over(self.axis, episodes)
