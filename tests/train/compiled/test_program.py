"""Chunks: devices that share a batch learn what one would, and stopped or broken trials stay put."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from probes import BOTH
from problems import problem_of

import proxima
from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.seeds import first_keys, split_streams
from proxima.core.types import TrainState
from proxima.domains.reinforcement import prepare_host
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import chunk
from proxima.train.devices import (
    DATA,
    Layout,
    lay_out,
    learner_specs,
    make_mesh,
    plan_layout,
    wanted_devices,
)

ENVS = 8
CONFIG = PPOConfig(
    batch_size=128,
    minibatch_size=128,
    epochs_per_update=1,
    learning_rate=1e-2,
    normalize_observations=True,
    normalize_rewards=True,
)


def make(config=CONFIG, axis=None):
    spaces = (BOTH.observation_space, BOTH.action_space)
    agent = ppo(config, problem_of(spaces, ENVS, axis=axis))
    return agent, Collector(BOTH, ENVS, config.batch_size // ENVS, axis)


def start(agent, collector, seeds):
    def one(seed):
        keys = first_keys(seed, ENVS)
        return TrainState(agent.init(keys.weights), collector.init(keys.resets), keys.streams)

    return jax.vmap(one)(jnp.asarray(seeds, jnp.uint32))


@pytest.mark.parametrize("scope", ["minibatch", "batch", "off"])
def test_two_devices_take_the_step_of_one(scope):
    """One minibatch of the whole batch: the order of samples and who holds them must not matter."""
    config = replace(CONFIG, normalize_advantages=scope)
    alone, collector = make(config)
    state = jax.tree.map(lambda leaf: leaf[0], start(alone, collector, [0]))
    _, rollout, _ = collector(alone, state.learner, state.actors, split_streams(state.key)[1])
    key = jax.random.key(0)
    expected, expected_metrics = alone.update(state.learner, rollout, key)

    shared, _ = make(config, DATA)
    by_env = jax.tree.map(lambda _: P(None, DATA), rollout)
    whole = jax.tree.map(lambda spec: P(*spec[1:]), learner_specs(state.learner))
    update = jax.shard_map(
        shared.update,
        mesh=make_mesh(Layout(1, 2)),
        in_specs=(whole, by_env, P()),
        out_specs=(whole, P()),
        check_vma=False,
    )
    found, metrics = jax.jit(update)(state.learner, rollout, key)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for name in ("loss/total", "train/grad_norm", "train/entropy"):
        assert float(metrics[name]) == pytest.approx(float(expected_metrics[name]), rel=1e-4)


def test_a_batch_shared_by_devices_is_learnt_from():
    config = replace(CONFIG, epochs_per_update=4, minibatch_size=32)
    agent, collector = make(config, DATA)
    layout = Layout(1, 2)
    states = lay_out(start(agent, collector, [0]), layout)
    states, sums = chunk(layout, agent, collector, states, jnp.ones(1, bool), jnp.int32(60))
    assert sums["episode/count"][0] == 60 * 128  # every step ends an episode, on both devices
    _, last = chunk(layout, agent, collector, states, jnp.ones(1, bool), jnp.int32(5))
    assert float(last["episode/return_sum"][0] / last["episode/count"][0]) > 0.9


def test_stopped_trials_stay_and_broken_ones_go_back():
    agent, collector = make(replace(CONFIG, normalize_observations=False, normalize_rewards=False))
    states = start(agent, collector, [0, 1, 2, 3])
    broken = states.learner.hyper.learning_rate.at[2].set(jnp.nan)
    hyper = states.learner.hyper._replace(learning_rate=broken)
    states = states._replace(learner=states.learner._replace(hyper=hyper))
    before = jax.tree.map(np.asarray, states.learner.net)
    layout = Layout(2, 1)
    active = jnp.asarray([True, False, True, True])
    run = partial(chunk, layout, agent, collector)
    states, sums = run(lay_out(states, layout), active, jnp.int32(3))
    moved = [
        any(
            (np.asarray(new)[trial] != old[trial]).any()
            for new, old in zip(
                jax.tree.leaves(states.learner.net), jax.tree.leaves(before), strict=True
            )
        )
        for trial in range(4)
    ]
    assert moved == [True, False, False, True]
    assert not np.isfinite(sums["loss/total"][2]) and np.isfinite(sums["loss/total"][3])
    assert states.learner.updates.tolist() == [3, 0, 0, 3]


@pytest.mark.parametrize(
    "trials, cores, devices", [(1, 2, 2), (2, 2, 2), (5, 2, 5), (8, 2, 2), (9, 2, 3), (4, 16, 4)]
)
def test_devices_wanted_keep_every_core_busy(trials, cores, devices):
    assert wanted_devices(trials, cores) == devices


@pytest.mark.parametrize(
    "name, settings, devices",
    [
        ("cartpole", {"trials": 1}, 1),
        ("cartpole", {"trials": 2}, 2),
        ("cartpole", {"trials": 1, "network.hidden": [256, 256]}, 2),
        ("cartpole", {"trials": 1, "network.memory": "gru"}, 2),
        ("cartpole_spo", {"trials": 1}, 2),
        ("breakout_minatar", {"trials": 1}, 2),
    ],
)
def test_one_small_trial_asks_for_one_device(name, settings, devices, monkeypatch):
    asked = []
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("proxima.train.devices.ask_for_devices", lambda n, _: asked.append(n))
    prepare_host(proxima.load(name, settings))
    assert asked == [devices]


def test_layouts():
    assert plan_layout(trials=8, num_envs=4, minibatch_size=128, devices=2) == Layout(2, 1)
    assert plan_layout(trials=5, num_envs=4, minibatch_size=128, devices=4) == Layout(1, 1)
    assert plan_layout(trials=1, num_envs=64, minibatch_size=2048, devices=2) == Layout(1, 2)
    assert plan_layout(trials=1, num_envs=4, minibatch_size=128, devices=2) == Layout(1, 1)
    assert plan_layout(trials=1, num_envs=63, minibatch_size=2048, devices=2) == Layout(1, 1)
    # sequences of 128 steps: sixteen of them make a minibatch, then one and a half a device
    assert plan_layout(1, 64, 2048, devices=2, sequence=128) == Layout(1, 2)
    assert plan_layout(1, 64, 3 * 2048, devices=2, sequence=2048) == Layout(1, 1)
