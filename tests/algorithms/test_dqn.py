"""DQN: probe environments, targets and steps against slow loops, masks, buffer, priorities, resume."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from probes import ACTION, BOTH, CONSTANT, DELAYED, FROM_OBS, TRUNCATED, MaskedProbe
from problems import problem_of

from proxima.algorithms.dqn import ALGORITHM, DQNConfig, beta, dqn, epsilon
from proxima.core.n_step import Sample
from proxima.core.prioritized import SMALLEST, Draw
from proxima.core.replay import pack_samples
from proxima.core.seeds import first_keys, split_streams
from proxima.core.types import TrainState, View
from proxima.nets.actor_critic import MLPConfig
from proxima.train import checkpoint
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import run_updates

ENVS = 4
NETWORK = MLPConfig(hidden=(16, 16), activation="relu")
CONFIG = DQNConfig(
    name="dqn",
    gamma=0.9,
    learning_rate=5e-3,
    tau=0.1,
    target_period=1,
    batch_size=32,
    buffer_size=500,
    warmup_steps=64,
    steps_per_update=1,
    exploration_steps=100,
    exploration_final=0.2,
)
THREE = replace(CONFIG, n_step=3)
# All at once, in one program that many tests share.
ALL = replace(
    THREE,
    double=True,
    dueling=True,
    prioritized=True,
    normalize_observations=True,
    buffer_size=90,  # is overwritten from its start
)
LONGER = replace(BOTH, length=3)  # so that steps wait for others


def make(env, config=CONFIG, **more):
    problem = problem_of((env.observation_space, env.action_space), ENVS, NETWORK, **more)
    return dqn(config, problem), Collector(env, ENVS, config.steps_per_update)


# Each compiled once for all tests whose agents and environments have the same shape.
run = jax.jit(run_updates)
update = jax.jit(lambda agent, *arguments: agent.update(*arguments))
init = jax.jit(lambda agent, key: agent.init(key))
reset = jax.jit(lambda collector, keys: collector.init(keys))


def start(agent, collector, seed=0):
    keys = first_keys(jnp.uint32(seed), ENVS)
    return TrainState(init(agent, keys.weights), reset(collector, keys.resets), keys.streams)


@jax.jit
def collect(agent, collector, state):
    _, use = split_streams(state.key)
    return collector(agent, state.learner, state.actors, use)[1]


def learn(env, config=CONFIG, updates=300):
    agent, collector = make(env, config)
    state, sums = run(agent, collector, start(agent, collector), updates)
    return agent, state, sums


def q_at(agent, learner, obs):
    policy = agent.policy(learner)
    obs = jnp.asarray([obs])
    if policy.obs_moments is not None:
        obs = (obs - policy.obs_moments.mean) / jnp.sqrt(policy.obs_moments.variance + 1e-8)
    return np.asarray(policy.net(obs))


def action_at(agent, learner, *obs):
    return np.asarray(agent.exploit(learner, View(jnp.asarray(obs)[:, None])).action)


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def assert_close(one, other, atol):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


def test_probe_1_constant_reward():
    agent, state, _ = learn(CONSTANT)
    np.testing.assert_allclose(q_at(agent, state.learner, 0.0), 1.0, atol=0.1)


def test_probe_2_reward_from_the_observation():
    agent, state, _ = learn(FROM_OBS)
    np.testing.assert_allclose(q_at(agent, state.learner, 1.0), 1.0, atol=0.15)
    np.testing.assert_allclose(q_at(agent, state.learner, -1.0), -1.0, atol=0.15)


def test_probe_3_delayed_reward_is_discounted():
    agent, state, _ = learn(DELAYED, THREE)
    np.testing.assert_allclose(q_at(agent, state.learner, 0.0), 0.9, atol=0.1)
    np.testing.assert_allclose(q_at(agent, state.learner, 1.0), 1.0, atol=0.1)


def test_probe_4_action_choice():
    agent, state, _ = learn(ACTION)
    assert action_at(agent, state.learner, 0.0) == [1]
    np.testing.assert_allclose(q_at(agent, state.learner, 0.0), [-1.0, 1.0], atol=0.15)


@pytest.mark.parametrize("config", [CONFIG, ALL], ids=["plain", "all"])
def test_probe_5_action_by_observation(config):
    agent, state, sums = learn(BOTH if config is CONFIG else LONGER, config, updates=400)
    np.testing.assert_array_equal(action_at(agent, state.learner, 1.0, -1.0), [1, 0])
    assert all(np.isfinite(value) for value in sums.values())


def test_truncation_does_not_end_the_value():
    agent, state, _ = learn(TRUNCATED, replace(THREE, loss="l2"), updates=800)
    # 1 / (1 − 0.9), not 1
    np.testing.assert_allclose(q_at(agent, state.learner, 0.0), 10.0, atol=1.0)


def test_masked_actions_are_never_taken():
    env = MaskedProbe()
    agent, state, _ = learn(env, ALL, updates=100)
    rollout = collect(agent, make(env, ALL)[1], state)
    chosen = np.take_along_axis(
        np.asarray(rollout.obs["action_mask"]), np.asarray(rollout.action)[..., None], -1
    )
    assert chosen.all()
    masks = jnp.asarray([[1, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)
    view = {
        "board": jnp.full((5, 2, 3), 0.5),
        "time": jnp.zeros(5, jnp.int32),
        "flag": jnp.tile(jnp.asarray([True, False]), (5, 1)),
        "action_mask": masks,
    }
    # an invalid action would cost 10, and was never tried: the net knows nothing about it
    assert np.take_along_axis(
        np.asarray(masks), np.asarray(agent.exploit(state.learner, View(view)).action)[:, None], -1
    ).all()


# One gradient step, written out.


def masked_batch(seed=0, count=6):
    draw = np.random.default_rng(seed)
    space = MaskedProbe().observation_space

    def observations():
        mask = draw.random((count, 3)) < 0.5
        mask[np.arange(count), draw.integers(0, 3, count)] = True
        return {
            "board": draw.normal(size=(count, 2, 3)).astype(np.float32),
            "time": draw.integers(0, 4, count).astype(np.int32),
            "flag": draw.random((count, 2)) < 0.5,
            "action_mask": mask,
        }

    assert set(space.names) == set(observations())
    return Sample(
        obs=observations(),
        action=draw.integers(0, 3, count).astype(np.int32),
        reward=draw.normal(size=count).astype(np.float32),
        next_obs=observations(),
        terminated=np.arange(count) % 3 == 0,
        steps=draw.integers(1, 4, count).astype(np.float32),
    )


def row_of(obs, k):
    parts = [np.asarray(obs[name][k], np.float64).ravel() for name in ("board", "flag", "time")]
    return np.concatenate(parts)


def slow_net(net, x):
    """Q of one flat observation of a plain net, in float64."""
    for layer in net.layers:
        x = np.maximum(x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias), 0.0)
    return x @ np.asarray(net.head.advantage.weight, np.float64) + np.asarray(
        net.head.advantage.bias
    )


def slow_targets(net, target, batch, gamma, double):
    found = []
    for k in range(len(batch.reward)):
        row, mask = row_of(batch.next_obs, k), batch.next_obs["action_mask"][k]
        by, values = slow_net(net if double else target, row), slow_net(target, row)
        best = max((a for a in range(3) if mask[a]), key=lambda a, by=by: by[a])
        bootstrap = 0.0 if batch.terminated[k] else gamma ** batch.steps[k] * values[best]
        found.append(batch.reward[k] + bootstrap)
    return np.asarray(found)


def aged(learner):
    """The learner with a target that has fallen behind its net."""
    keys = iter(jax.random.split(jax.random.key(7), 20))
    target = jax.tree.map(
        lambda leaf: leaf + 1.0 * jax.random.normal(next(keys), leaf.shape), learner.nets.target
    )
    return learner._replace(nets=learner.nets._replace(target=target))


@pytest.mark.parametrize("double", [False, True])
def test_targets_are_those_of_a_slow_loop(double):
    agent, _ = make(MaskedProbe(), replace(CONFIG, double=double))
    learner, batch = aged(init(agent, jax.random.key(0))), masked_batch(count=24)
    nets = learner.nets
    found = agent._target(nets.net, nets.target, learner.hyper, batch)
    expected = slow_targets(nets.net, nets.target, batch, 0.9, double)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    other = slow_targets(nets.net, nets.target, batch, 0.9, not double)
    assert not np.allclose(expected, other)
    unmasked = batch._replace(next_obs=batch.next_obs | {"action_mask": np.ones((24, 3), bool)})
    free = slow_targets(nets.net, nets.target, unmasked, 0.9, double)
    assert not np.allclose(expected, free), "masks are at work"


SLOW_LOSSES = {
    "l2": lambda error: error**2,
    "smooth_l1": lambda error: jnp.where(jnp.abs(error) < 1, 0.5 * error**2, jnp.abs(error) - 0.5),
}


@pytest.mark.parametrize("kind, weighted, clip", [("smooth_l1", True, None), ("l2", False, 0.05)])
def test_a_gradient_step_is_the_textbook_one(kind, weighted, clip):
    config = replace(CONFIG, loss=kind, max_grad_norm=clip, target_period=3, tau=0.25)
    agent, _ = make(MaskedProbe(), config)
    learner, batch = aged(init(agent, jax.random.key(0))), masked_batch()
    before, weight = learner.nets, np.linspace(0.2, 1.0, 6).astype(np.float32)
    drawn = Draw(jnp.arange(6), jnp.asarray(weight)) if weighted else None
    target = slow_targets(before.net, before.target, batch, 0.9, False)

    def loss_of(net):
        total = 0.0
        for k in range(6):
            q = net(jax.tree.map(lambda leaf, k=k: jnp.asarray(leaf[k]), batch.obs))[
                batch.action[k]
            ]
            total += (weight[k] if weighted else 1.0) * SLOW_LOSSES[kind](q - target[k])
        return total / 6

    loss, gradient = jax.value_and_grad(loss_of)(before.net)
    norm = jnp.linalg.norm(ravel_pytree(gradient)[0])
    if clip is not None:
        assert norm > clip
        gradient = jax.tree.map(lambda leaf: leaf * clip / norm, gradient)
    adam = optax.adam(5e-3)
    step, _ = adam.update(gradient, adam.init(before.net))
    after, error, means = agent._gradient_step(before, learner.hyper, batch, drawn)
    expected = optax.apply_updates(before.net, step)
    assert_close(after.net, expected, 1e-5)
    assert means[:2] == pytest.approx([float(loss), float(norm)], rel=1e-4)
    q = [slow_net(before.net, row_of(batch.obs, k))[batch.action[k]] for k in range(6)]
    np.testing.assert_allclose(error, q - target, rtol=1e-4, atol=1e-5)
    # the target waits for the third step, and then moves by a quarter of the way
    assert same(after.target, before.target)
    later = before._replace(gradient_steps=jnp.int32(2))
    third = agent._gradient_step(later, learner.hyper, batch, drawn)[0]
    quarter = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, before.target, third.net)
    assert_close(third.target, quarter, 1e-6)


# The buffer, the warm-up, exploration.


def test_exploration_comes_down_in_a_line_and_the_weights_of_samples_rise():
    config = replace(CONFIG, exploration_steps=None, exploration_fraction=0.5, warmup_steps=10)
    agent, _ = make(BOTH, replace(config, exploration_start=0.8), total_updates=100)  # 400 steps
    hyper = agent.hyper
    found = [float(epsilon(hyper, jnp.int32(steps))) for steps in (0, 9, 10, 100, 200, 300)]
    np.testing.assert_allclose(found, [1.0, 1.0, 0.77, 0.5, 0.2, 0.2], rtol=1e-6)
    found = [float(beta(hyper, jnp.int32(steps))) for steps in (0, 200, 400, 500)]
    np.testing.assert_allclose(found, [0.4, 0.7, 1.0, 1.0], rtol=1e-6)
    assert make(BOTH, config)[0].hyper.exploration_steps == 10_000  # without a budget
    fixed, _ = make(BOTH, replace(CONFIG, exploration_steps=50), total_updates=100)
    assert float(epsilon(fixed.hyper, jnp.int32(64))) == pytest.approx(0.2)


def test_the_warm_up_learns_nothing_and_acts_at_random():
    agent, collector = make(BOTH)
    state = fresh = start(agent, collector)
    state, sums = run(agent, collector, state, 15)  # 60 of 64 steps
    assert same(state.learner.nets, fresh.learner.nets) and sums["loss/q"] == 0.0
    assert sums["train/epsilon"] == 15.0
    _, unpack = pack_samples(example())
    actions = unpack(state.learner.replay.rows).action[:60]
    assert 0.25 < np.mean(actions) < 0.75
    state, sums = run(agent, collector, state, 1)
    assert state.learner.nets.gradient_steps == ENVS and sums["loss/q"] > 0.0


def example():
    number, flag = jnp.zeros(1), jnp.zeros(1, bool)
    return Sample(
        jnp.zeros((1, 1)), jnp.zeros(1, jnp.int32), number, jnp.zeros((1, 1)), flag, number
    )


LONG = replace(ALL, steps_per_update=6, warmup_steps=0, batch_size=8, gradient_steps=2)


def test_rows_that_are_no_steps_teach_nothing_and_are_not_kept():
    agent, collector = make(replace(BOTH, length=4), LONG)
    state = start(agent, collector)
    rollout = collect(agent, collector, state)
    fake = jnp.zeros_like(rollout.mask).at[2].set(True)
    rollout = rollout._replace(mask=~fake)
    poisoned = rollout._replace(
        obs=jnp.where(fake[..., None], jnp.nan, rollout.obs),
        next_obs=jnp.where(fake[..., None], jnp.nan, rollout.next_obs),
        reward=jnp.where(fake, jnp.nan, rollout.reward),
        terminated=rollout.terminated | fake,
    )
    results = [
        update(agent, state.learner, each, jax.random.key(0))[0] for each in (rollout, poisoned)
    ]
    # the window may hold what stood there, which nobody will read
    for part in ("nets", "replay", "priorities", "obs_moments"):
        assert same(getattr(results[0], part), getattr(results[1], part)), part
    assert results[0].obs_moments.number == (~fake).sum()
    assert not same(results[0].nets, state.learner.nets)


def test_priorities_follow_the_errors_and_belong_to_the_rows():
    agent, collector = make(LONGER, ALL)
    state, _ = run(agent, collector, start(agent, collector), 60)
    learner = state.learner
    leaves = np.asarray(learner.priorities.levels[0])
    assert learner.replay.size == 90
    assert np.all(leaves[:90] > 0.0) and not leaves[90:].any()
    assert len(np.unique(leaves[:90])) > 5
    assert leaves.max() <= float(learner.priorities.largest) ** 0.6 * 1.0001
    assert leaves[:90].min() >= SMALLEST**0.6 * 0.999


# What the rest of the program relies on.


def test_numbers_are_leaves_so_that_changing_one_compiles_nothing():
    changed = replace(
        ALL, learning_rate=1e-4, gamma=0.5, warmup_steps=40, exploration_start=0.9,
        exploration_final=0.5, exploration_steps=70, target_period=9, tau=1.0, priority_alpha=0.3,
        priority_beta=0.9, max_grad_norm=0.1, reward_scale=2.0,
    )  # fmt: skip
    results, programs = [], []
    for config in (ALL, changed, replace(ALL, max_grad_norm=None)):
        agent, collector = make(LONGER, config)
        state, _ = run(agent, collector, start(agent, collector), 20)
        results.append(state.learner.nets)
        programs.append(run._cache_size())
    assert len(set(programs)) == 1
    assert not same(*results[:2])


def test_a_state_saved_with_buffer_and_window_goes_on_as_if_it_had_not_been(tmp_path: Path):
    agent, collector = make(LONGER, ALL)
    whole, _ = run(agent, collector, start(agent, collector), 40)
    half, _ = run(agent, collector, start(agent, collector), 25)
    checkpoint.save(tmp_path, 100, half, {"scenario": {}, "loop": {}}, keep=2, best=False)
    restored, _ = checkpoint.load(tmp_path, start(agent, collector))
    resumed, _ = run(agent, collector, restored, 15)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
    assert whole.learner.replay.size == 90


def test_trials_side_by_side_learn_what_each_learns_alone():
    agent, collector = make(LONGER, ALL)
    states = [start(agent, collector, seed) for seed in (0, 1)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    found, _ = jax.jit(jax.vmap(lambda state: run_updates(agent, collector, state, 20)))(batch)
    for k, state in enumerate(states):
        alone, _ = run(agent, collector, state, 20)
        for part in ("nets", "priorities", "recent"):
            pairs = zip(
                jax.tree.leaves(getattr(alone.learner, part)),
                jax.tree.leaves(getattr(found.learner, part)),
                strict=True,
            )
            for one, other in pairs:
                np.testing.assert_allclose(one, other[k], atol=2e-3)


def test_the_policy_acts_as_the_learner_does():
    agent, state, _ = learn(LONGER, ALL, updates=20)
    view = View(jnp.linspace(-1.0, 1.0, 8)[:, None])
    policy = agent.policy(state.learner)
    assert same(agent.policy(policy), policy)
    greedy = agent.exploit(policy, view).action
    np.testing.assert_array_equal(greedy, agent.exploit(state.learner, view).action)
    noise = agent.noise(None, jax.random.key(0), (8,))
    np.testing.assert_array_equal(
        agent.explore(policy, view, noise)[0], agent.explore(state.learner, view, noise)[0]
    )


def faults(max_steps=None, **settings):
    config = replace(CONFIG, **settings)
    training = SimpleNamespace(max_steps=max_steps)
    found = ALGORITHM.checks(SimpleNamespace(algorithm=config, training=training))
    return [fault.paths[0][-1] for fault in found]


def test_settings_that_contradict_each_other_are_named():
    assert faults() == [] == faults(max_steps=10, prioritized=True, exploration_steps=None)
    assert faults(buffer_size=31) == ["buffer_size"]
    assert faults(prioritized=True) == ["priority_beta"]
    assert faults(prioritized=True, priority_beta=1.0) == []
    over = ALGORITHM.over_budget
    assert over(CONFIG) == ()
    assert over(replace(ALL, exploration_steps=None)) == (
        "exploration_fraction",
        "priority_beta",
    )
