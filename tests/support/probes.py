"""Probe environments: each can be learnt only if one more part of an algorithm is right."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from proxima.core.spaces import (
    Box,
    Discrete,
    MultiDiscrete,
    Space,
    box,
    fields,
    mask_space,
)
from proxima.core.types import Step


class FieldsState(NamedTuple):
    mask: jax.Array
    time: jax.Array


class MaskedProbe(eqx.Module):
    """Named arrays of several shapes and kinds; the last valid action earns 1, an invalid one costs 10.

    Sometimes a single action is valid. `parts` independent choices earn their mean, each with its own mask.
    """

    parts: int = eqx.field(static=True, default=0)  # 0: one Discrete choice
    length: int = eqx.field(static=True, default=4)

    @property
    def action_space(self):
        return MultiDiscrete(3, self.parts) if self.parts else Discrete(3)

    @property
    def observation_space(self):
        return fields(
            {
                "board": box(0.0, 1.0, (2, 3)),
                "time": box(0, self.length, (), "int32"),
                "flag": box(0, 1, (2,), "bool"),
                "action_mask": mask_space(self.action_space),
            }
        )

    def reset(self, key):
        state = FieldsState(self._mask(key), jnp.int32(0))
        return state, self._obs(state)

    def step(self, state, action, key):
        order = jnp.broadcast_to(jnp.arange(3), state.mask.shape)
        best = jnp.max(jnp.where(state.mask, order, -1), axis=-1)
        valid = jnp.take_along_axis(state.mask, action[..., None], axis=-1)[..., 0]
        reward = jnp.mean(jnp.where(valid, action == best, -10.0))
        state = FieldsState(self._mask(key), state.time + 1)
        ended = state.time >= self.length
        return state, Step(self._obs(state), reward, ended, jnp.zeros_like(ended), {})

    def _mask(self, key):
        shape = (*self.action_space.shape, 3)
        draw_key, sure_key = jax.random.split(key)
        sure = jax.nn.one_hot(jax.random.randint(sure_key, shape[:-1], 0, 3), 3, dtype=bool)
        return jax.random.bernoulli(draw_key, 0.4, shape) | sure

    def _obs(self, state):
        return {
            "board": jnp.full((2, 3), 0.5),
            "time": state.time,
            "flag": jnp.asarray([True, False]),
            "action_mask": state.mask,
        }


class ProbeState(NamedTuple):
    obs: jax.Array
    time: jax.Array


REWARDS = ("constant", "obs", "action", "match")  # what a probe may reward


class Probe(eqx.Module):
    """One observation number, two actions; what differs is the reward and when the episode ends.

    All of that is numbers: probes of the same spaces share their compiled programs.
    """

    reward_from: int  # of REWARDS
    length: int = 1
    random_obs: bool = False
    truncates: bool = False
    observation_space: Box = eqx.field(static=True, default=box(-1.0, 1.0, (1,)))
    action_space: Space = eqx.field(static=True, default=Discrete(2))

    def reset(self, key):
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        obs = jnp.where(self.random_obs, sign, 0.0)[None]
        return ProbeState(obs, jnp.int32(0)), obs

    def step(self, state, action, key):
        time = state.time + 1
        ended = time >= self.length
        praises = [self._praise(action, sign) for sign in (jnp.float32(1.0), state.obs[0])]
        earned = jnp.stack([jnp.float32(1.0), state.obs[0], *praises])[self.reward_from]
        reward = jnp.where(ended, earned, 0.0)
        stays = jnp.logical_or(self.random_obs, self.truncates)
        obs = jnp.where(stays, state.obs, time.astype(jnp.float32)[None])
        endings = ended & jnp.logical_not(self.truncates), ended & self.truncates
        return ProbeState(obs, time), Step(obs, reward, *endings, {})

    def _praise(self, action, sign):
        if isinstance(self.action_space, Discrete):
            return (2.0 * action - 1.0) * sign
        return -jnp.abs(jnp.clip(action[0], -1.0, 1.0) - 0.5 * sign)  # best at half the sign


def probe(reward_from: str, **more) -> Probe:
    """A probe that rewards this."""
    return Probe(REWARDS.index(reward_from), **more)


class AnswerProbe(eqx.Module):
    """Numbers are shown, each among as many as its part of an action chooses among; saying them earns 1.

    What is beyond a part's own choices is never to be said: it would cost 100.
    """

    action_space: MultiDiscrete = eqx.field(static=True)

    @property
    def observation_space(self):
        return self.action_space

    def reset(self, key):
        shown = jax.random.randint(key, self.action_space.shape, 0, self._sizes())
        return shown, shown

    def step(self, state, action, key):
        reward = jnp.mean(jnp.where(action < self._sizes(), action == state, -100.0))
        return state, Step(state, reward, jnp.asarray(True), jnp.asarray(False), {})

    def _sizes(self):
        return jnp.asarray(self.action_space.sizes)


CONSTANT = probe("constant")
FROM_OBS = probe("obs", random_obs=True)
DELAYED = probe("constant", length=2)
ACTION = probe("action")
BOTH = probe("match", random_obs=True)
TRUNCATED = probe("constant", truncates=True)
CONTINUOUS = probe("action", action_space=box(-1.0, 1.0, (1,)))


def continuous(probe: Probe) -> Probe:
    """The probe with one bounded number for an action."""
    return replace(probe, action_space=box(-1.0, 1.0, (1,)))


class CueState(NamedTuple):
    cue: jax.Array
    time: jax.Array


class Cue(eqx.Module):
    """The first observation says which action earns 1 in the last step; in between there is nothing to see.

    Without memory no policy earns more than half. The last step is a termination or a truncation.
    """

    length: int = eqx.field(static=True, default=4)
    truncates: bool = eqx.field(static=True, default=False)
    masked: bool = eqx.field(static=True, default=False)  # a third action is never valid

    @property
    def action_space(self):
        return Discrete(3) if self.masked else Discrete(2)

    @property
    def observation_space(self):
        seen = box(-1.0, 1.0, (1,))
        return (
            fields({"cue": seen, "action_mask": mask_space(Discrete(3))}) if self.masked else seen
        )

    def reset(self, key):
        state = CueState(jax.random.bernoulli(key).astype(jnp.int32), jnp.int32(0))
        return state, self._obs(state)

    def step(self, state, action, key):
        state = CueState(state.cue, state.time + 1)
        ended = state.time >= self.length
        reward = jnp.where(ended & (action == state.cue), 1.0, 0.0)
        none = jnp.zeros_like(ended)
        endings = (none, ended) if self.truncates else (ended, none)
        return state, Step(self._obs(state), reward, *endings, {})

    def _obs(self, state):
        shown = jnp.where(state.time == 0, 2.0 * state.cue - 1.0, 0.0)[None]
        if not self.masked:
            return shown
        return {"cue": shown, "action_mask": jnp.arange(3) < 2}


class Clock(eqx.Module):
    """Nothing to see; action 1 earns 1 in every third step of an episode, action 0 in the others.

    Episodes end at random in both ways, so that whoever goes on counting from the last one is wrong.
    """

    length: int = eqx.field(static=True, default=12)
    observation_space: Box = eqx.field(static=True, default=box(0.0, 1.0, (1,)))
    action_space: Discrete = eqx.field(static=True, default=Discrete(2))

    def reset(self, key):
        return jnp.int32(0), jnp.ones(1)

    def step(self, state, action, key):
        reward = ((state % 3 == 2) == (action == 1)).astype(jnp.float32)
        chance = jax.random.uniform(key)
        time = state + 1
        terminated = chance < 0.1
        truncated = ((chance > 0.9) | (time >= self.length)) & ~terminated
        return time, Step(jnp.ones(1), reward, terminated, truncated, {})
