"""PQN: probe environments, targets and gradient steps against slow loops, masks, no recompiling, resume."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from probes import ACTION, BOTH, DELAYED, TRUNCATED, MaskedProbe
from problems import problem_of

from proxima.algorithms.pqn import ALGORITHM, Batch, PQNConfig, make_batch, pqn
from proxima.core.seeds import first_keys, split_streams
from proxima.core.types import TrainState, View
from proxima.nets.actor_critic import MLPConfig
from proxima.train import checkpoint
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import run_updates

ENVS = 8
NETWORK = MLPConfig(hidden=(16,), activation="relu")
CONFIG = PQNConfig(
    name="pqn",
    gamma=0.9,
    learning_rate=5e-3,
    exploration_steps=2_000,
    exploration_final=0.2,
    batch_size=64,
    minibatch_size=16,
)


def make(env, config=CONFIG, **more):
    problem = problem_of((env.observation_space, env.action_space), ENVS, NETWORK, **more)
    return pqn(config, problem), Collector(env, ENVS, config.batch_size // ENVS)


run = jax.jit(run_updates)
update = jax.jit(lambda agent, *arguments: agent.update(*arguments))


@jax.jit
def start(agent, collector):
    keys = first_keys(jnp.uint32(0), ENVS)
    return TrainState(agent.init(keys.weights), collector.init(keys.resets), keys.streams)


@jax.jit
def collect(agent, collector, state):
    _, use = split_streams(state.key)
    return collector(agent, state.learner, state.actors, use)[1]


def learn(env, config=CONFIG, updates=200):
    agent, collector = make(env, config)
    state, sums = run(agent, collector, start(agent, collector), updates)
    return agent, state, sums


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def q_at(state, obs):
    return np.asarray(state.learner.net(jnp.asarray([obs])))


def test_delayed_reward_is_discounted():
    _, state, _ = learn(DELAYED)
    np.testing.assert_allclose(q_at(state, 0.0), 0.9, atol=0.1)
    np.testing.assert_allclose(q_at(state, 1.0), 1.0, atol=0.1)


def test_action_choice():
    _, state, _ = learn(ACTION)
    np.testing.assert_allclose(q_at(state, 0.0), [-1.0, 1.0], atol=0.15)


def test_action_by_observation():
    agent, state, sums = learn(BOTH, replace(CONFIG, normalize_observations=True))
    found = agent.exploit(state.learner, View(jnp.asarray([[1.0], [-1.0]]))).action
    np.testing.assert_array_equal(found, [1, 0])
    assert all(np.isfinite(value) for value in sums.values())


def test_truncation_does_not_end_the_value():
    _, state, _ = learn(TRUNCATED, replace(CONFIG, learning_rate=2e-2), updates=300)
    np.testing.assert_allclose(q_at(state, 0.0), 10.0, atol=1.0)  # 1 / (1 − 0.9), not 1


@pytest.fixture(scope="module")
def masked():
    """An agent of the masked probe, a learner, and a rollout of it with rows that are no steps."""
    agent, collector = make(MaskedProbe())
    state, _ = run(agent, collector, start(agent, collector), 5)
    rollout = collect(agent, collector, state)
    draw = np.random.default_rng(0)
    ended = rollout.terminated
    return (
        agent,
        state.learner,
        rollout._replace(
            terminated=ended & jnp.asarray(draw.random(ended.shape) < 0.5),
            truncated=ended & jnp.asarray(draw.random(ended.shape) < 0.5),
            mask=jnp.asarray(draw.random(ended.shape) < 0.8),
        ),
    )


def test_actions_are_valid(masked):
    _, _, rollout = masked
    mask, action = np.asarray(rollout.obs["action_mask"]), np.asarray(rollout.action)
    assert np.take_along_axis(mask, action[..., None], -1).all()


def test_targets_are_those_of_a_slow_loop_with_masks_and_both_endings(masked):
    _, learner, rollout = masked
    hyper = learner.hyper._replace(reward_scale=jnp.float32(2.0))
    found = np.asarray(make_batch(learner._replace(hyper=hyper), rollout).target)
    values = np.asarray(learner.net(rollout.next_obs), np.float64)
    allowed = np.asarray(rollout.next_obs["action_mask"])
    best = np.where(allowed, values, -np.inf).max(-1)
    steps, gamma, lam = len(found), 0.9, 0.65
    for b in range(ENVS):
        later = 0.0
        for t in reversed(range(steps)):
            ended = rollout.terminated[t, b] or rollout.truncated[t, b]
            last = ended or t == steps - 1 or not rollout.mask[t + 1, b]
            value = best[t, b] if last else (1 - lam) * best[t, b] + lam * later
            later = 2.0 * rollout.reward[t, b] + gamma * (not rollout.terminated[t, b]) * value
            if rollout.mask[t, b]:
                assert found[t, b] == pytest.approx(float(later), rel=1e-4, abs=1e-4)
    unmasked = np.abs(values.max(-1) - best)
    assert unmasked.max() > 1e-3, "masks are at work"


def test_rows_that_are_no_steps_teach_nothing(masked):
    agent, learner, rollout = masked
    fake = ~rollout.mask
    poisoned = rollout._replace(
        obs=rollout.obs
        | {"board": jnp.where(fake[..., None, None], jnp.nan, rollout.obs["board"])},
        reward=jnp.where(fake, jnp.nan, rollout.reward),
        aux=jnp.where(fake, jnp.nan, rollout.aux),
    )
    results = [update(agent, learner, each, jax.random.key(0)) for each in (rollout, poisoned)]
    assert same(*results) and not same(results[0][0].net, learner.net)


@pytest.mark.parametrize("optimizer", ["radam", "adam"])
def test_an_update_is_the_textbook_one(optimizer):
    """One minibatch that is the whole batch, so that no order matters: two epochs, written out."""
    config = replace(CONFIG, optimizer=optimizer, minibatch_size=64, final_learning_rate=0.0)
    agent, _ = make(BOTH, replace(config, max_grad_norm=0.05), total_updates=10)
    learner = agent.init(jax.random.key(0))._replace(updates=jnp.int32(4))
    draw = np.random.default_rng(1)
    shape = (3, ENVS)
    batch = Batch(
        obs=draw.normal(size=(*shape, 1)).astype(np.float32),
        action=draw.integers(0, 2, shape).astype(np.int32),
        target=draw.normal(size=shape).astype(np.float32),
        weight=(draw.random(shape) < 0.7).astype(np.float32),
    )
    after, metrics = agent._optimize(learner, batch, jax.random.key(0))

    flat, unravel = ravel_pytree(learner.net)
    rate = 5e-3 * 0.6  # four tenths of the way to nothing
    method = {"radam": optax.radam, "adam": optax.adam}[optimizer](rate)
    state, losses = method.init(flat), []

    def loss_of(flat):
        total, count = 0.0, 0
        for t in range(3):
            for b in range(ENVS):
                if batch.weight[t, b]:
                    q = unravel(flat)(jnp.asarray(batch.obs[t, b]))[batch.action[t, b]]
                    total, count = total + 0.5 * (q - batch.target[t, b]) ** 2, count + 1
        return total / count

    for _ in range(2):
        loss, gradient = jax.value_and_grad(loss_of)(flat)
        norm = jnp.linalg.norm(gradient)
        assert norm > 0.05
        step, state = method.update(gradient * 0.05 / norm, state)
        flat = optax.apply_updates(flat, step)
        losses.append(float(loss))
    np.testing.assert_allclose(ravel_pytree(after.net)[0], flat, atol=1e-5)
    assert float(metrics["loss/q"]) == pytest.approx(np.mean(losses), rel=1e-4)
    assert float(metrics["train/learning_rate"]) == pytest.approx(rate)


def test_exploration_comes_down_in_a_line():
    config = replace(CONFIG, exploration_steps=None, exploration_fraction=0.5)
    for agent in (
        make(BOTH, config, total_updates=40)[0],
        make(BOTH, replace(CONFIG, exploration_steps=64 * 20))[0],
    ):
        learner = agent.init(jax.random.key(0))
        found = [
            float(agent.policy(learner._replace(updates=jnp.int32(at))).epsilon)
            for at in (0, 10, 20, 30)
        ]
        np.testing.assert_allclose(found, [1.0, 0.6, 0.2, 0.2], rtol=1e-6)


def test_numbers_are_leaves_and_a_saved_state_goes_on_exactly(tmp_path: Path):
    config = replace(CONFIG, normalize_observations=True)
    agent, collector = make(BOTH, config)
    whole, _ = run(agent, collector, start(agent, collector), 20)
    half, _ = run(agent, collector, start(agent, collector), 12)
    checkpoint.save(tmp_path, 100, half, {"scenario": {}, "loop": {}}, keep=2, best=False)
    restored, _ = checkpoint.load(tmp_path, start(agent, collector))
    resumed, _ = run(agent, collector, restored, 8)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
    changed = replace(
        config, learning_rate=1e-3, final_learning_rate=1e-4, gamma=0.5, q_lambda=0.1,
        exploration_start=0.5, exploration_final=0.1, exploration_steps=100, max_grad_norm=1.0,
        reward_scale=3.0,
    )  # fmt: skip
    programs = run._cache_size()
    agent, collector = make(BOTH, changed)
    other, _ = run(agent, collector, start(agent, collector), 20)
    assert run._cache_size() == programs
    assert not same(other.learner.net, whole.learner.net)


def faults(num_envs=ENVS, **settings):
    scenario = SimpleNamespace(
        algorithm=replace(CONFIG, **settings),
        env=SimpleNamespace(num_envs=num_envs),
    )
    return [fault.paths[0][-1] for fault in ALGORITHM.checks(scenario)]


def test_settings_that_contradict_each_other_are_named():
    assert faults() == []
    assert faults(num_envs=5) == ["batch_size"] == faults(minibatch_size=10)
    over = ALGORITHM.over_budget
    assert over(CONFIG) == () == over(replace(CONFIG, final_learning_rate=5e-3))
    assert over(replace(CONFIG, exploration_steps=None, final_learning_rate=0.0)) == (
        "exploration_fraction",
        "learning_rate",
    )
    assert ALGORITHM.defaults({}, 8) == {"batch_size": 256, "minibatch_size": 32}
    assert ALGORITHM.defaults({"batch_size": 4}, 8) == {}
