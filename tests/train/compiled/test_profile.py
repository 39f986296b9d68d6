"""The parts of an update measured apart: they are the real parts, and the run does not notice."""

from functools import partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny

from proxima.core.seeds import split_streams
from proxima.core.types import Env, PerEnv, TrainState
from proxima.domains.control.domain import build
from proxima.domains.control.gymnax import make
from proxima.train.compiled import profile
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import compiled_program
from proxima.train.devices import Layout


def bits(tree) -> list[bytes]:
    def raw(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes()

    return [raw(leaf) for leaf in jax.tree.leaves(tree)]


def test_the_parts_of_an_update(tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "PART_SECONDS", 0.1)
    built = build(tiny(tmp_path, "trials=6"))  # two by two on three devices
    states = built.program.init(list(range(6)))
    before = bits(states)
    found = built.program.profile(states)
    assert bits(states) == before, "nothing was given up or changed"
    assert list(found) == ["rollout", "env", "act", "learn", "update"]
    assert all(seconds >= 0 for seconds in found.values()) and found["update"] > 0
    assert found["act"] == pytest.approx(max(0.0, found["rollout"] - found["env"]))


class Clock:
    """A clock that only steps of environments move on: by 1 each, where reading it takes 1e-6."""

    now = 0.0

    def read(self) -> float:
        self.now += 1e-6
        return self.now

    def tick(self, reward):
        self.now += 1.0
        return reward


class TickingEnv(eqx.Module):
    """An environment whose steps are all that takes time."""

    env: Env
    clock: Clock = eqx.field(static=True)

    @property
    def observation_space(self):
        return self.env.observation_space

    @property
    def action_space(self):
        return self.env.action_space

    def reset(self, key):
        return self.env.reset(key)

    def step(self, state, action, key):
        state, result = self.env.step(state, action, key)
        shape = jax.ShapeDtypeStruct(result.reward.shape, result.reward.dtype)
        tick = partial(jax.pure_callback, self.clock.tick, shape, vmap_method="broadcast_all")
        return state, result._replace(reward=tick(result.reward))


def test_time_is_found_where_it_is_spent(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(profile, "time", SimpleNamespace(perf_counter=clock.read))
    monkeypatch.setattr(profile, "CALL_SECONDS", 1e-5)  # by that clock: a few runs in one call
    scenario = tiny(tmp_path)
    ticking = Collector(TickingEnv(make(scenario.env), clock), 4, 16)
    program = compiled_program(build(scenario).agent, ticking, Layout(1, 1), 0, acting="search")
    found = program.profile(program.init([0]))
    assert list(found) == ["rollout", "env", "search", "learn", "update"]
    assert found == pytest.approx(
        {"rollout": 16, "env": 16, "search": 0, "learn": 0, "update": 16}, abs=1e-3
    )


def test_the_replayed_environments_take_the_way_of_the_rollout(tmp_path):
    scenario = tiny(tmp_path)
    agent, collector = build(scenario).agent, Collector(make(scenario.env), 4, 64)
    layout, once = Layout(1, 1), jnp.int32(1)
    states = compiled_program(agent, collector, layout, 0).init([3])
    rollout = profile._rollouts(layout, agent, collector, states, once)
    state: TrainState = jax.tree.map(lambda leaf: leaf[0], states)
    _, use = split_streams(state.key)
    expected = collector(agent, state.learner, state.actors, use)[1]
    assert np.array_equal(rollout.action[0], expected.action)
    actions = states._replace(learner=PerEnv(profile.swapped(rollout.action, 1)))
    replayed = profile._rollouts(layout, profile.Replaying(), collector, actions, once)
    assert np.allclose(replayed.next_obs, rollout.next_obs, atol=1e-6)
    for name in ("action", "reward", "terminated", "truncated"):
        assert np.array_equal(getattr(replayed, name), getattr(rollout, name)), name
    assert replayed.terminated.sum() > 0
