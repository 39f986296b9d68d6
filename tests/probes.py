"""Probe environments: each can be learnt only if one more part of an algorithm is right."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from proxima.core.spaces import Box, Discrete, Space, box
from proxima.core.types import Step


class ProbeState(NamedTuple):
    obs: jax.Array
    time: jax.Array


class Probe(eqx.Module):
    """One observation number, two actions; what differs is the reward and when the episode ends."""

    reward_from: str = eqx.field(static=True)  # constant, obs, action, match
    length: int = eqx.field(static=True, default=1)
    random_obs: bool = eqx.field(static=True, default=False)
    truncates: bool = eqx.field(static=True, default=False)
    observation_space: Box = eqx.field(static=True, default=box(-1.0, 1.0, (1,)))
    action_space: Space = eqx.field(static=True, default=Discrete(2))

    def reset(self, key):
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        obs = jnp.where(self.random_obs, sign, 0.0)[None]
        return ProbeState(obs, jnp.int32(0)), obs

    def step(self, state, action, key):
        time = state.time + 1
        ended = time >= self.length
        earned = {
            "constant": jnp.float32(1.0),
            "obs": state.obs[0],
            "action": self._praise(action, jnp.float32(1.0)),
            "match": self._praise(action, state.obs[0]),
        }[self.reward_from]
        reward = jnp.where(ended, earned, 0.0)
        obs = state.obs if self.random_obs else time.astype(jnp.float32)[None]
        if self.truncates:
            obs = state.obs
        none = jnp.zeros_like(ended)
        endings = (none, ended) if self.truncates else (ended, none)
        return ProbeState(obs, time), Step(obs, reward, *endings, {})

    def _praise(self, action, sign):
        if isinstance(self.action_space, Discrete):
            return (2.0 * action - 1.0) * sign
        return -jnp.abs(jnp.clip(action[0], -1.0, 1.0) - 0.5 * sign)  # best at half the sign


CONSTANT = Probe("constant")
FROM_OBS = Probe("obs", random_obs=True)
DELAYED = Probe("constant", length=2)
ACTION = Probe("action")
BOTH = Probe("match", random_obs=True)
TRUNCATED = Probe("constant", truncates=True)
CONTINUOUS = Probe("action", action_space=box(-1.0, 1.0, (1,)))


def continuous(probe: Probe) -> Probe:
    """The probe with one bounded number for an action."""
    return replace(probe, action_space=box(-1.0, 1.0, (1,)))
