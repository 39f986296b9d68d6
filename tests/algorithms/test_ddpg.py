"""DDPG and TD3: probe environments, every formula against a slow loop, noise, warm-up, no recompiling."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probes import ACTION, BOTH, CONSTANT, DELAYED, FROM_OBS, TRUNCATED, continuous
from problems import problem_of

from proxima.algorithms.ddpg import DDPGConfig, check_actions, ddpg
from proxima.core.errors import ProximaError
from proxima.core.off_policy import Sample, samples_of, soft_update
from proxima.core.seeds import first_keys, split_streams
from proxima.core.spaces import Discrete, box
from proxima.core.trees import pack_rows
from proxima.core.types import TrainState, View
from proxima.nets.actor_critic import MLPConfig
from proxima.train import checkpoint
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import run_updates

ENVS = 4
NETWORK = MLPConfig(hidden=(16, 16), activation="relu")
CONFIG = DDPGConfig(
    name="ddpg",
    gamma=0.9,
    tau=0.05,
    batch_size=32,
    buffer_size=1_000,
    warmup_steps=64,
    exploration_noise=0.3,
)
TD3 = replace(CONFIG, critics=2, policy_delay=2, target_noise=0.2)
both_algorithms = pytest.mark.parametrize("config", [CONFIG, TD3], ids=["ddpg", "td3"])


def make(env, config=CONFIG):
    spaces = env.observation_space, env.action_space
    agent = ddpg(config, problem_of(spaces, ENVS, NETWORK))
    return agent, Collector(env, ENVS, config.steps_per_update)


# Each compiled once for all tests whose agents and environments have the same shape.
run = jax.jit(run_updates)
update = jax.jit(lambda agent, *arguments: agent.update(*arguments))
gradient_step = jax.jit(lambda agent, *arguments: agent._gradient_step(*arguments))
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
    agent, collector = make(continuous(env), config)
    state, sums = run(agent, collector, start(agent, collector), updates)
    return agent, state, sums


def q_at(learner, obs, units=0.0):
    values = learner.nets.critic.net(jnp.asarray([obs]), jnp.asarray([units]))
    return [float(value) for value in values]


def action_at(agent, learner, *obs):
    return np.asarray(agent.exploit(learner, View(jnp.asarray(obs)[:, None])).action)[:, 0]


def test_probe_1_constant_reward():
    _, state, _ = learn(CONSTANT)
    assert q_at(state.learner, 0.0) == pytest.approx([1.0], abs=0.05)


def test_probe_2_reward_from_the_observation():
    _, state, _ = learn(FROM_OBS)
    assert q_at(state.learner, 1.0) == pytest.approx([1.0], abs=0.1)
    assert q_at(state.learner, -1.0) == pytest.approx([-1.0], abs=0.1)


@both_algorithms
def test_probe_3_delayed_reward_is_discounted(config):
    _, state, _ = learn(DELAYED, config)
    assert q_at(state.learner, 0.0) == pytest.approx([0.9] * config.critics, abs=0.05)
    assert q_at(state.learner, 1.0) == pytest.approx([1.0] * config.critics, abs=0.05)


def test_probe_4_action_choice():
    agent, state, _ = learn(ACTION, updates=400)
    assert action_at(agent, state.learner, 0.0) == pytest.approx([0.5], abs=0.15)


@both_algorithms
def test_probe_5_action_by_observation(config):
    agent, state, _ = learn(BOTH, config, updates=600)
    assert action_at(agent, state.learner, 1.0, -1.0) == pytest.approx([0.5, -0.5], abs=0.15)


def test_truncation_does_not_end_the_value():
    _, state, _ = learn(TRUNCATED, replace(CONFIG, tau=0.2), updates=600)
    assert q_at(state.learner, 0.0)[0] == pytest.approx(10.0, abs=0.5)  # 1 / (1 − 0.9), not 1


NORMALIZED = {"normalize_observations": True, "critic_loss": "smooth_l1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"exploration": "ou", "critic_loss": "l1"},
        NORMALIZED,
        {"steps_per_update": 3, "gradient_steps": 6},
        {"max_grad_norm": 1.0},
        {"reward_scale": 5.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_switch_still_learns(changes):
    agent, state, sums = learn(BOTH, replace(CONFIG, **changes), updates=600)
    up, down = action_at(agent, state.learner, 1.0, -1.0)
    assert up > 0.25 and down < -0.25
    assert all(np.isfinite(value) for value in sums.values())


# One gradient step, written out.

WIDE = box([-2.0, 0.0], [6.0, 1.0], (2,))  # units are not the environment's own measures
OBS = box(-1.0, 1.0, (3,))


def wide_agent(config):
    return ddpg(config, problem_of((OBS, WIDE), ENVS, NETWORK))


def random_batch(seed=0, count=6):
    draw = np.random.default_rng(seed)
    return Sample(
        obs=draw.normal(size=(count, 3)).astype(np.float32),
        action=np.stack([draw.uniform(-2, 6, count), draw.uniform(0, 1, count)], 1).astype("f4"),
        reward=draw.normal(size=count).astype(np.float32),
        next_obs=draw.normal(size=(count, 3)).astype(np.float32),
        terminated=np.arange(count) % 3 == 0,
    )


def aged(learner, seed=7):
    """The learner with targets that have fallen behind their nets."""
    draw = iter(jax.random.split(jax.random.key(seed), 100))

    def disturb(leaf):
        return leaf + 0.1 * jax.random.normal(next(draw), leaf.shape)

    nets = learner.nets
    parts = {
        name: getattr(nets, name)._replace(target=jax.tree.map(disturb, getattr(nets, name).target))
        for name in ("actor", "critic")
    }
    return learner._replace(nets=nets._replace(**parts))


def slow_mlp(net, x):
    """A perceptron of one sample, neuron by neuron."""
    x = [float(value) for value in x]
    for depth, layer in enumerate(net.layers):
        weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
        total = [
            bias[j] + sum(x[i] * weight[i, j] for i in range(len(x))) for j in range(len(bias))
        ]
        last = depth == len(net.layers) - 1
        x = total if last else [max(value, 0.0) for value in total]
    return x


def slow_target(nets, batch, gamma, noise):
    targets = []
    for k in range(len(batch.reward)):
        action = [np.tanh(value) for value in slow_mlp(nets.actor.target.net, batch.next_obs[k])]
        action = [min(max(a + e, -1.0), 1.0) for a, e in zip(action, noise[k], strict=True)]
        values = [
            slow_mlp(net, [*batch.next_obs[k], *action])[0] for net in nets.critic.target.nets
        ]
        value = 0.0 if batch.terminated[k] else min(values)
        targets.append(float(batch.reward[k]) + gamma * value)
    return np.asarray(targets)


def test_ddpg_targets_are_those_of_a_slow_loop():
    agent = wide_agent(CONFIG)
    learner, batch = aged(init(agent, jax.random.key(0))), random_batch()
    found = agent._target(learner.nets, learner.hyper, batch, jax.random.key(1))
    expected = slow_target(learner.nets, batch, 0.9, np.zeros((6, 2)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_td3_targets_smooth_the_action_and_take_the_least_critic():
    agent = wide_agent(replace(TD3, target_noise=0.6, target_noise_clip=0.4))
    learner, batch, key = aged(init(agent, jax.random.key(0))), random_batch(), jax.random.key(1)
    noise = np.clip(0.6 * np.asarray(jax.random.normal(key, (6, 2))), -0.4, 0.4)
    assert np.any(np.abs(noise) == np.float32(0.4)), "the clip is at work"
    found = agent._target(learner.nets, learner.hyper, batch, key)
    np.testing.assert_allclose(found, slow_target(learner.nets, batch, 0.9, noise), rtol=1e-5)
    plain = slow_target(learner.nets, batch, 0.9, np.zeros((6, 2)))
    assert not np.allclose(found, plain, rtol=1e-3)


def test_gamma_counts_only_where_the_episode_went_on():
    agent = wide_agent(CONFIG)
    learner, batch = aged(init(agent, jax.random.key(0))), random_batch()
    targets = [
        np.asarray(
            agent._target(
                learner.nets, learner.hyper._replace(gamma=gamma), batch, jax.random.key(1)
            )
        )
        for gamma in (0.0, 0.5, 1.0)
    ]
    np.testing.assert_allclose(targets[0], batch.reward, rtol=1e-6)
    ended = batch.terminated
    np.testing.assert_array_equal(targets[0][ended], targets[2][ended])
    np.testing.assert_allclose(2 * targets[1] - targets[0], targets[2], rtol=1e-4, atol=1e-5)
    assert not np.any(np.isclose(targets[0][~ended], targets[2][~ended]))


SLOW_LOSSES = {
    "l2": lambda error: error**2,
    "l1": abs,
    "smooth_l1": lambda error: 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5,
}


@pytest.mark.parametrize("kind", SLOW_LOSSES)
def test_critic_losses_are_those_of_a_slow_loop(kind):
    agent = wide_agent(replace(TD3, critic_loss=kind))
    critic, batch = init(agent, jax.random.key(0)).nets.critic.net, random_batch()
    target = np.linspace(-3.0, 3.0, 6).astype(np.float32)  # errors on both sides of 1
    loss, (q, error) = agent._critic_loss(critic, batch, target)
    expected, errors = 0.0, []
    for net in critic.nets:
        for k in range(6):
            units = [(batch.action[k, 0] - 2.0) / 4.0, (batch.action[k, 1] - 0.5) / 0.5]
            errors.append(slow_mlp(net, [*batch.obs[k], *units])[0] - target[k])
            expected += SLOW_LOSSES[kind](errors[-1]) / 6
    assert min(map(abs, errors)) < 1 < max(map(abs, errors))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(q - target, errors[:6], rtol=1e-4, atol=1e-5)
    assert float(error) == pytest.approx(np.mean(np.abs(errors[:6])), rel=1e-5)


def slow_adam(net, gradients, rate):
    """Adam (arXiv 1412.6980) over a sequence of gradients of one net, leaf by leaf."""
    leaves, structure = jax.tree.flatten(net)
    leaves = [np.asarray(leaf, np.float64) for leaf in leaves]
    first, second = [[np.zeros_like(leaf) for leaf in leaves] for _ in range(2)]
    for time, gradient in enumerate(gradients, start=1):
        for i, slope in enumerate(
            np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(gradient)
        ):
            first[i] = 0.9 * first[i] + 0.1 * slope
            second[i] = 0.999 * second[i] + 0.001 * slope**2
            mean, square = first[i] / (1 - 0.9**time), second[i] / (1 - 0.999**time)
            leaves[i] = leaves[i] - rate * mean / (np.sqrt(square) + 1e-8)
    return jax.tree.unflatten(structure, leaves)


def assert_close(found, expected, tolerance=2e-5):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_gradient_step_is_the_textbook_one(clip):
    """Critic on its written-out loss, then the actor through the new critic, then both targets."""
    config = replace(CONFIG, max_grad_norm=clip, actor_learning_rate=2e-3)
    agent = wide_agent(config)
    learner, batch, key = aged(init(agent, jax.random.key(0))), random_batch(), jax.random.key(1)
    before = learner.nets
    after, means = gradient_step(agent, before, learner.hyper, batch, key)

    target = slow_target(before, batch, 0.9, np.zeros((6, 2)))

    def critic_loss(critic):
        total = 0.0
        for k in range(6):
            units = (jnp.asarray(batch.action[k]) - jnp.asarray([2.0, 0.5])) / jnp.asarray(
                [4.0, 0.5]
            )
            q = critic.nets[0](jnp.concatenate([batch.obs[k], units]))[0]
            total += (q - target[k]) ** 2
        return total / 6

    def clipped(gradient):
        norm = optax.tree.norm(gradient)
        if clip is None or norm < clip:
            return gradient, norm
        return jax.tree.map(lambda leaf: leaf * clip / norm, gradient), norm

    loss, gradient = jax.value_and_grad(critic_loss)(before.critic.net)
    gradient, critic_norm = clipped(gradient)
    critic = slow_adam(before.critic.net, [gradient], 1e-3)
    assert_close(after.critic.net, critic)

    def actor_loss(actor):
        total = 0.0
        for k in range(6):
            units = jnp.tanh(actor.net(batch.obs[k]))
            total -= after.critic.net.nets[0](jnp.concatenate([batch.obs[k], units]))[0]
        return total / 6

    policy_loss, gradient = jax.value_and_grad(actor_loss)(before.actor.net)
    gradient, actor_norm = clipped(gradient)
    assert_close(after.actor.net, slow_adam(before.actor.net, [gradient], 2e-3))
    for name in ("actor", "critic"):
        old, new = getattr(before, name), getattr(after, name)
        expected = jax.tree.map(
            lambda behind, ahead: 0.05 * np.asarray(ahead) + 0.95 * np.asarray(behind),
            *(old.target, new.net),
        )
        assert_close(new.target, expected, 1e-6)
    assert float(means[0]) == pytest.approx(float(loss), rel=1e-4)
    assert float(means[1]) == pytest.approx(float(policy_loss), rel=1e-4)
    assert float(means[2]) == pytest.approx(float(np.hypot(critic_norm, actor_norm)), rel=1e-4)


def test_the_soft_update_is_the_written_sum():
    target, net = {"w": jnp.asarray([0.0, 1.0])}, {"w": jnp.asarray([1.0, -1.0])}
    moved = soft_update(target, net, jnp.float32(0.1))["w"]
    np.testing.assert_allclose(moved, [0.1 * 1 + 0.9 * 0, 0.1 * -1 + 0.9 * 1], rtol=1e-6)
    np.testing.assert_array_equal(soft_update(target, net, jnp.float32(1.0))["w"], net["w"])


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_a_delayed_policy_waits_and_the_targets_with_it():
    agent = wide_agent(replace(TD3, policy_delay=3))
    learner, batch = aged(init(agent, jax.random.key(0))), random_batch()
    nets, losses = learner.nets, []
    for step in range(1, 7):
        after, means = gradient_step(agent, nets, learner.hyper, batch, jax.random.key(step))
        assert not same(after.critic.net, nets.critic.net)
        waits = step % 3 != 0
        assert same(after.actor, nets.actor) == waits
        assert same(after.critic.target, nets.critic.target) == waits
        losses.append((float(means[1]), after.actor.optimizer.count))
        nets = after
    assert [count for _, count in losses] == [0, 0, 1, 1, 1, 2]
    q = float(jnp.mean(nets.critic.net.first(batch.obs, nets.actor.net(batch.obs))))
    # the mean over all steps is that of the steps which had a loss
    assert np.mean([loss for loss, _ in losses[3:]]) == pytest.approx(-q, rel=0.1)


def test_the_actor_learns_from_the_first_critic_only():
    agent = wide_agent(TD3)
    learner, batch = init(agent, jax.random.key(0)), random_batch()

    def stepped(second):
        nets = learner.nets
        critic = nets.critic._replace(
            net=replace(nets.critic.net, nets=(nets.critic.net.nets[0], second))
        )
        return agent._delayed_step((nets.actor, critic, jnp.zeros(2)), (learner.hyper, batch))[0]

    first, second = learner.nets.critic.net.nets
    assert same(stepped(second), stepped(first))


# The rollout, the buffer and the warm-up.


def one_rollout(env=BOTH, config=CONFIG):
    agent, collector = make(continuous(env), config)
    state = start(agent, collector)
    return agent, state.learner, collect(agent, collector, state)


LONG = replace(
    CONFIG, steps_per_update=12, warmup_steps=0, batch_size=8, normalize_observations=True
)


def test_the_buffer_holds_the_steps_as_they_were():
    agent, learner, rollout = one_rollout(DELAYED, LONG)
    found, metrics = update(agent, learner, rollout, jax.random.key(0))
    _, unpack = pack_rows(samples_of(rollout), 1)
    kept = unpack(found.replay.rows[: int(found.replay.size)])
    assert kept.reward.shape == (12 * ENVS,) and metrics["buffer/size"] == 12 * ENVS
    for t in range(12):
        for b in range(ENVS):
            row = jax.tree.map(lambda leaf, at=t * ENVS + b: np.asarray(leaf[at]), kept)
            np.testing.assert_array_equal(row.obs, rollout.obs[t, b])
            np.testing.assert_array_equal(row.action, rollout.action[t, b])
            np.testing.assert_array_equal(row.next_obs, rollout.next_obs[t, b])
            assert row.reward == rollout.reward[t, b]
            assert row.terminated == rollout.terminated[t, b]


def test_masked_rows_teach_nothing_and_are_not_kept():
    agent, learner, rollout = one_rollout(config=LONG)
    fake = jnp.zeros_like(rollout.mask).at[3::4].set(True)
    rollout = rollout._replace(mask=~fake)
    poisoned = rollout._replace(
        obs=jnp.where(fake[..., None], 50.0, rollout.obs),
        reward=jnp.where(fake, 1e6, rollout.reward),
        terminated=rollout.terminated | fake,
    )
    results = [update(agent, learner, each, jax.random.key(0))[0] for each in (rollout, poisoned)]
    assert same(*results)
    assert results[0].replay.size == (~fake).sum() == results[0].obs_moments.number
    assert not same(results[0].nets, learner.nets)


def test_the_warm_up_acts_uniformly_and_learns_nothing():
    agent, collector = make(continuous(BOTH))
    state = fresh = start(agent, collector)
    for _ in range(15):  # 60 of 64 steps
        state, sums = run(agent, collector, state, 1)
        assert same(state.learner.nets, fresh.learner.nets)
        assert all(np.isfinite(value) for value in sums.values())
        assert sums["loss/critic"] == sums["loss/actor"] == 0.0
    actions = kept_actions(state)[: int(state.learner.replay.size)]
    assert len(actions) == 60 and np.std(actions) == pytest.approx(1 / 3**0.5, abs=0.1)
    state, sums = run(agent, collector, state, 1)
    assert not same(state.learner.nets, fresh.learner.nets)
    assert sums["loss/critic"] > 0.0
    state, _ = run(agent, collector, state, 10)
    # the actor starts at the middle of the range, so that now only the noise is left
    assert np.std(kept_actions(state)[64:84]) < 0.45


def kept_actions(state):
    return np.asarray(state.learner.replay.rows)[:, 1]


def test_nothing_is_learnt_from_fewer_samples_than_a_batch():
    agent, collector = make(continuous(BOTH), replace(CONFIG, warmup_steps=0))
    fresh = start(agent, collector)
    waiting, _ = run(agent, collector, fresh, 7)
    assert same(waiting.learner.nets, fresh.learner.nets)
    learning, _ = run(agent, collector, waiting, 1)
    assert not same(learning.learner.nets, fresh.learner.nets)
    assert learning.learner.nets.gradient_steps == ENVS


def test_gradient_steps_follow_the_steps_collected_unless_told():
    problem = problem_of((OBS, WIDE), 5)
    assert ddpg(replace(CONFIG, steps_per_update=3), problem).gradient_steps == 15
    assert ddpg(replace(CONFIG, gradient_steps=2), problem).gradient_steps == 2


def test_trials_side_by_side_begin_each_when_its_own_warm_up_is_over():
    agent, collector = make(continuous(BOTH), TD3)
    states = [start(agent, collector, seed) for seed in (0, 1)]
    late = states[1].learner.hyper._replace(warmup_steps=jnp.int32(100))
    states[1] = states[1]._replace(learner=states[1].learner._replace(hyper=late))
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    found, _ = jax.jit(jax.vmap(lambda state: run_updates(agent, collector, state, 20)))(batch)
    for k, state in enumerate(states):
        alone, _ = run(agent, collector, state, 20)
        for one, other in zip(
            jax.tree.leaves(alone.learner.nets), jax.tree.leaves(found.learner.nets), strict=True
        ):
            np.testing.assert_allclose(one, other[k], atol=1e-4)
    np.testing.assert_array_equal(found.learner.nets.gradient_steps, [5 * ENVS, 0])


# Noise.


def test_noise_is_reproducible_and_as_large_as_told():
    agent, learner, _ = one_rollout()
    learner = learner._replace(steps=jnp.int32(1_000))
    first, again, other = (
        agent.noise(learner, jax.random.key(k), (2_000, ENVS)) for k in (0, 0, 1)
    )
    assert same(first, again) and not same(first, other)
    assert not first.warmup.any()
    view = View(jnp.zeros((2_000 * ENVS, 1)))
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), first)
    action, aux, _ = agent.explore(learner, view, flat)
    assert aux is None
    greedy = agent.exploit(learner, view).action
    assert float(jnp.std(action - greedy)) == pytest.approx(0.3, abs=0.01)
    assert float(jnp.max(jnp.abs(action))) <= 1.0


def test_actions_stay_within_the_environments_own_range():
    agent = wide_agent(replace(CONFIG, exploration_noise=3.0, warmup_steps=500))
    learner = init(agent, jax.random.key(0))
    noise = agent.noise(learner, jax.random.key(1), (200, ENVS))
    assert noise.warmup[:125].all() and not noise.warmup[125:].any()  # 500 steps of 4 environments
    action = jax.vmap(lambda row: agent.explore(learner, View(jnp.zeros((ENVS, 3))), row)[0])(noise)
    low, high = np.asarray(WIDE.low), np.asarray(WIDE.high)
    flat = np.asarray(action).reshape(-1, 2)
    assert np.all(flat >= low) and np.all(flat <= high)
    assert np.all(flat.max(0) == high) and np.all(flat.min(0) == low), (
        "the noise reaches the bounds"
    )
    random = np.asarray(action[:125]).reshape(-1, 2)
    share = (random - low) / (high - low)
    np.testing.assert_allclose(share.mean(0), 0.5, atol=0.06)
    greedy = agent.exploit(learner, View(jnp.zeros((1, 3)))).action
    np.testing.assert_allclose(greedy[0], [2.0, 0.5], atol=0.05)  # the middle of the range


def test_noise_for_an_evaluation_is_a_draw_of_single_actions():
    agent, learner, _ = one_rollout(config=replace(CONFIG, exploration="ou"))
    keys = jax.random.split(jax.random.key(0), 3)
    noise = jax.vmap(lambda key: agent.noise(None, key, ()))(keys)
    action, *_ = agent.explore(agent.policy(learner), View(jnp.zeros((3, 1))), noise)
    assert action.shape == (3, 1) and len(np.unique(action)) == 3


def test_an_ornstein_uhlenbeck_path_goes_on_and_restarts_with_the_episode():
    config = replace(CONFIG, exploration="ou", ou_theta=0.2, warmup_steps=0, steps_per_update=5)
    agent, learner, rollout = one_rollout(replace(BOTH, length=1_000), config)
    key = jax.random.key(5)
    begun = jnp.arange(4.0).reshape(4, 1)
    learner = learner._replace(ou_path=learner.ou_path._replace(value=begun))
    found = np.asarray(agent.noise(learner, key, (5, ENVS)).amount)
    kicks = np.asarray(jax.random.normal(key, (5, ENVS, 1)))
    x = np.asarray(begun)
    for t in range(5):
        x = 0.8 * x + kicks[t]
        np.testing.assert_allclose(found[t], x, rtol=1e-5)

    ended = jnp.asarray([False, True, False, False])
    rollout = rollout._replace(
        aux=jnp.asarray(found), truncated=rollout.truncated.at[-1].set(ended)
    )
    after, _ = update(agent, learner, rollout, jax.random.key(0))
    np.testing.assert_array_equal(
        after.ou_path.value, np.where(np.asarray(ended)[:, None], 0.0, found[-1])
    )


def test_a_path_that_is_pulled_back_at_once_is_gaussian_noise():
    agent, learner, _ = one_rollout(config=replace(CONFIG, exploration="ou", ou_theta=1.0))
    plain, other, _ = one_rollout()
    key = jax.random.key(0)
    paths = [
        each.noise(state._replace(steps=jnp.int32(999)), key, (6, ENVS)).amount
        for each, state in ((agent, learner), (plain, other))
    ]
    np.testing.assert_array_equal(*paths)


def test_the_warm_up_leaves_the_path_at_rest():
    agent, learner, rollout = one_rollout(config=replace(CONFIG, exploration="ou"))
    np.testing.assert_array_equal(rollout.aux, np.zeros((1, ENVS, 1)))
    noise = agent.noise(learner, jax.random.key(0), (20, ENVS))
    row = jax.tree.map(lambda leaf: leaf[-1], noise)  # after the warm-up's 64 steps
    _, aux, _ = agent.explore(learner, View(jnp.zeros((ENVS, 1))), row)
    np.testing.assert_array_equal(aux, noise.amount[-1])


# What the rest of the program relies on.


def test_numbers_are_leaves_so_that_changing_one_compiles_nothing():
    changed = replace(
        TD3, actor_learning_rate=1e-4, critic_learning_rate=3e-4, gamma=0.5, tau=0.5,
        warmup_steps=40, exploration_noise=0.7, policy_delay=3, target_noise=0.5,
        target_noise_clip=0.1, max_grad_norm=0.1, reward_scale=2.0,
    )  # fmt: skip
    results, programs = [], []
    for config in (TD3, changed):
        agent, collector = make(continuous(BOTH), config)
        state, _ = run(agent, collector, start(agent, collector), 20)
        results.append(state.learner.nets)
        programs.append(run._cache_size())
    assert programs[0] == programs[1]
    assert not same(*results)


def test_gradients_that_are_never_cut_take_the_same_program():
    agents = [make(continuous(BOTH), replace(TD3, max_grad_norm=norm))[0] for norm in (None, 0.1)]
    assert jax.tree.structure(agents[0]) == jax.tree.structure(agents[1])


def test_a_state_saved_with_its_buffer_goes_on_as_if_it_had_not_been(tmp_path: Path):
    config = replace(TD3, exploration="ou", normalize_observations=True, buffer_size=90)
    agent, collector = make(continuous(BOTH), config)
    whole, _ = run(agent, collector, start(agent, collector), 40)
    half, _ = run(agent, collector, start(agent, collector), 25)
    checkpoint.save(tmp_path, 100, half, {"scenario": {}, "loop": {}}, keep=2, best=False)
    restored, _ = checkpoint.load(tmp_path, start(agent, collector))
    resumed, _ = run(agent, collector, restored, 15)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
    assert whole.learner.replay.size == 90 and whole.learner.replay.position == 160 % 90


def test_statistics_belong_to_the_policy_and_the_buffer_stays_raw():
    config = replace(CONFIG, **NORMALIZED, warmup_steps=1_000)
    agent, collector = make(continuous(BOTH), config)
    state, _ = run(agent, collector, start(agent, collector), 6)
    moments, kept = state.learner.obs_moments, state.learner.replay.rows[: 6 * ENVS, 0]
    assert moments.number == 6 * ENVS
    assert set(np.unique(kept)) == {-1.0, 1.0}
    assert float(moments.mean[0]) == pytest.approx(float(np.mean(kept)), abs=1e-6)
    policy, view = agent.policy(state.learner), View(jnp.asarray([[1.0], [0.0]]))
    np.testing.assert_array_equal(
        agent.exploit(policy, view).action, agent.exploit(state.learner, view).action
    )
    plain = policy._replace(obs_moments=None)
    assert not np.array_equal(agent.exploit(plain, view).action, agent.exploit(policy, view).action)
    assert same(agent.policy(policy), policy)


def test_actions_that_ddpg_cannot_choose_are_refused_in_words():
    assert check_actions(WIDE, "Pendulum-v1") is WIDE
    with pytest.raises(
        ProximaError, match=r"algorithm\.name: ddpg needs continuous .*CartPole.*ppo"
    ):
        check_actions(Discrete(2), "CartPole-v1")
    with pytest.raises(ProximaError, match=r"algorithm\.name: ddpg needs bounded .*Free.*ppo"):
        check_actions(box(-np.inf, 1.0, (1,)), "Free-v0")
