"""PPO: probe environments, every switch, a slow reference of one gradient step, and no recompiling."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probes import ACTION, BOTH, CONSTANT, CONTINUOUS, DELAYED, FROM_OBS, TRUNCATED
from problems import problem_of

from proxima.algorithms.ppo import Aux, PPOConfig, make_batch, ppo, values
from proxima.core.seeds import first_keys, split_streams
from proxima.core.types import PerEnv, TrainState, View
from proxima.nets.actor_critic import MLPConfig
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import run_updates

CONFIG = PPOConfig(
    learning_rate=5e-3, batch_size=128, minibatch_size=32, epochs_per_update=4, gamma=0.9
)
NETWORK = MLPConfig(hidden=(16, 16))
ENVS = 8
WITHOUT_STATISTICS = {"obs_moments": None, "return_moments": None, "running_return": None}


def make(env, config=CONFIG, network=NETWORK):
    spaces = env.observation_space, env.action_space
    agent = ppo(config, problem_of(spaces, ENVS, network, total_updates=100))
    return agent, Collector(env, ENVS, config.batch_size // ENVS)


def start(agent, collector, seed=0):
    keys = first_keys(jnp.uint32(seed), ENVS)
    return TrainState(agent.init(keys.weights), collector.init(keys.resets), keys.streams)


# Compiled once for all tests whose agents and environments have the same shape.
run = jax.jit(run_updates)


def learn(env, config=CONFIG, network=NETWORK, updates=100, seed=0):
    agent, collector = make(env, config, network)
    state, sums = run(agent, collector, start(agent, collector, seed), updates)
    return agent, state, sums


def value_at(learner, *obs):
    return float(learner.net.value(jnp.asarray(obs)))


def test_probe_1_constant_reward():
    _, state, _ = learn(CONSTANT)
    assert value_at(state.learner, 0.0) == pytest.approx(1.0, abs=0.05)


def test_probe_2_reward_from_the_observation():
    _, state, _ = learn(FROM_OBS)
    assert value_at(state.learner, 1.0) == pytest.approx(1.0, abs=0.1)
    assert value_at(state.learner, -1.0) == pytest.approx(-1.0, abs=0.1)


def test_probe_3_delayed_reward_is_discounted():
    _, state, _ = learn(DELAYED)
    assert value_at(state.learner, 0.0) == pytest.approx(0.9, abs=0.07)
    assert value_at(state.learner, 1.0) == pytest.approx(1.0, abs=0.07)


@pytest.mark.parametrize("shared", [False, True])
def test_probe_4_action_choice(shared):
    agent, state, _ = learn(ACTION, network=replace(NETWORK, shared_trunk=shared))
    assert agent.exploit(state.learner, View(jnp.zeros((1, 1)))).action[0] == 1


def test_probe_5_action_by_observation():
    agent, state, _ = learn(BOTH)
    actions = agent.exploit(state.learner, View(jnp.asarray([[1.0], [-1.0]]))).action
    np.testing.assert_array_equal(actions, [1, 0])


def test_truncation_does_not_end_the_value():
    _, state, _ = learn(TRUNCATED, updates=200)
    assert value_at(state.learner, 0.0) == pytest.approx(10.0, abs=0.5)  # 1 / (1 − 0.9), not 1


@pytest.mark.parametrize("distribution", ["normal", "tanh_normal"])
def test_continuous_actions(distribution):
    network = replace(NETWORK, distribution=distribution)
    agent, state, _ = learn(CONTINUOUS, replace(CONFIG, entropy_coef=0.0), network, updates=150)
    action = agent.exploit(state.learner, View(jnp.zeros((1, 1)))).action
    assert action.shape == (1, 1)
    assert float(action[0, 0]) == pytest.approx(0.5, abs=0.2)


def test_the_environment_gets_squashed_actions_and_the_learner_raw_ones():
    agent, collector = make(CONTINUOUS, network=replace(NETWORK, distribution="tanh_normal"))
    learner = start(agent, collector).learner
    wide = eqx.tree_at(lambda learner: learner.net.log_std, learner, jnp.full(1, 3.0))
    view = View(jnp.zeros((64, 1)))
    action, aux, _ = agent.explore(wide, view, agent.noise(wide, jax.random.key(0), (64,)))
    assert jnp.abs(action).max() == 1.0 and jnp.abs(aux.raw_action).max() > 20.0
    policy = wide.net.policy(view.obs)
    np.testing.assert_array_equal(policy.to_action(aux.raw_action), action)
    np.testing.assert_array_equal(policy.log_prob(aux.raw_action), aux.log_prob)
    np.testing.assert_array_equal(agent.exploit(wide, view).action, policy.to_action(policy.mode()))


@pytest.mark.parametrize(
    "changes",
    [
        {"normalize_advantages": "batch", "value_clip_epsilon": 0.2},
        {"normalize_advantages": "off", "target_kl": 0.02},
        {"normalize_observations": True, "normalize_rewards": True},
        {"final_learning_rate": 0.0},
        {"minibatch_size": 128},
    ],
)
def test_every_switch_still_learns(changes):
    # One seed in eight settles on a single action at this high learning rate, so three are asked.
    learnt = 0
    for seed in range(3):
        agent, state, sums = learn(BOTH, replace(CONFIG, **changes), seed=seed)
        actions = agent.exploit(state.learner, View(jnp.asarray([[1.0], [-1.0]]))).action
        learnt += actions.tolist() == [1, 0]
        assert all(np.isfinite(value) for value in sums.values())
    assert learnt >= 2


@jax.jit
def collect(agent, collector, state):
    _, use = split_streams(state.key)
    return collector(agent, state.learner, state.actors, use)[1]


@jax.jit
def updated(agent, learner, rollout):
    return agent.update(learner, rollout, jax.random.key(0))


def one_rollout(config=CONFIG):
    """A fresh agent of these settings, and a rollout of its first policy, which does not depend on them."""
    agent, collector = make(BOTH, config)
    state = start(agent, collector)
    plain, _ = make(BOTH)
    acting = state._replace(learner=state.learner._replace(**WITHOUT_STATISTICS))
    return agent, state.learner, collect(plain, collector, acting)


def test_a_full_batch_update_is_the_textbook_step():
    """One epoch, one minibatch: gradient of the written-out loss, clipped, one Adam step."""
    sizes = {"batch_size": 16, "minibatch_size": 16, "epochs_per_update": 1}
    config = replace(CONFIG, **sizes, normalize_advantages="batch")
    agent, learner, rollout = one_rollout(config=config)
    found, metrics = updated(agent, learner, rollout)

    batch = make_batch(learner, rollout, rollout.reward)
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)

    def loss(net):
        total = 0.0
        for t in range(rollout.reward.shape[0]):
            for b in range(ENVS):
                logits = jax.nn.log_softmax(net.actor(rollout.obs[t, b]))
                ratio = jnp.exp(logits[rollout.action[t, b]] - rollout.aux.log_prob[t, b])
                clipped = jnp.clip(ratio, 0.8, 1.2)
                surrogate = jnp.minimum(ratio * advantage[t, b], clipped * advantage[t, b])
                error = (net.critic(rollout.obs[t, b])[0] - batch.target[t, b]) ** 2
                entropy = -jnp.sum(jnp.exp(logits) * logits)
                total += -surrogate + 0.5 * error - 0.01 * entropy
        return total / rollout.reward.size

    gradient = jax.jit(jax.grad(loss))(learner.net)
    norm = optax.tree.norm(gradient)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(5e-3, eps=1e-5))
    steps, _ = optimizer.update(gradient, optimizer.init(learner.net))
    expected = optax.apply_updates(learner.net, steps)
    for one, other in zip(jax.tree.leaves(found.net), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    assert metrics["train/grad_norm"] == pytest.approx(float(norm), rel=1e-3)
    assert metrics["train/approx_kl"] == pytest.approx(
        0.0, abs=1e-6
    )  # the first step starts at ratio 1
    assert metrics["train/clip_fraction"] == 0.0


@pytest.mark.parametrize("nonsense", [1e6, np.nan])
def test_masked_rows_teach_nothing(nonsense):
    """The fake row after an ending may hold anything."""
    config = replace(CONFIG, normalize_observations=True, normalize_rewards=True)
    agent, learner, rollout = one_rollout(config=config)
    fake = jnp.zeros_like(rollout.mask).at[3::4].set(True)
    rollout = rollout._replace(
        mask=~fake,
        truncated=rollout.truncated.at[2::4].set(True),
        terminated=rollout.terminated & ~fake,
    )
    poisoned = rollout._replace(
        obs=jnp.where(fake[..., None], nonsense, rollout.obs),
        next_obs=jnp.where(fake[..., None], nonsense, rollout.next_obs),
        aux=Aux(
            jnp.where(fake, 1 - rollout.action, rollout.action),
            jnp.where(fake, -nonsense, rollout.aux.log_prob),
            None,
        ),
        reward=jnp.where(fake, nonsense, rollout.reward),
    )
    clean, poisoned = (updated(agent, learner, each) for each in (rollout, poisoned))
    for one, other in zip(jax.tree.leaves(clean), jax.tree.leaves(poisoned), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert clean[0].obs_moments.number == (~fake).sum()


def test_minibatches_of_masked_rows_alone_teach_nothing_and_count_for_nothing():
    """All but two rows are masked: nearly every minibatch of two is empty."""
    for normalize in ("minibatch", "batch"):
        config = replace(CONFIG, minibatch_size=2, normalize_advantages=normalize)
        agent, learner, rollout = one_rollout(config=config)
        few = jnp.zeros_like(rollout.mask).at[3, :2].set(True)
        after, metrics = updated(agent, learner, rollout._replace(mask=few))
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
        # two choices, and not thinned by the zeros of empty minibatches
        assert metrics["train/entropy"] > 0.5
    none, metrics = updated(agent, learner, rollout._replace(mask=jnp.zeros_like(few)))
    for one, other in zip(jax.tree.leaves(none.net), jax.tree.leaves(learner.net), strict=True):
        np.testing.assert_array_equal(one, other)
    assert all(jnp.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("env", [DELAYED, replace(TRUNCATED, length=3)], ids=["ends", "is cut"])
def test_values_said_when_acting_are_those_of_the_whole_rollout(env):
    network = replace(NETWORK, shared_trunk=True)
    spaces = env.observation_space, env.action_space
    problem = problem_of(spaces, ENVS, network, total_updates=100)
    agents = [ppo(CONFIG, problem._replace(env=compiled)) for compiled in (env, None)]
    collector = Collector(env, ENVS, 16)
    found = []
    for agent in agents:
        state = start(agent, collector)
        rollout = collect(agent, collector, state)
        assert (rollout.aux.value is None) != agent.value_when_acting
        assert agent.value_when_acting == (agent is agents[0])
        both = jax.jit(values)(state.learner, rollout)
        # After a termination nobody asks what follows.
        found.append((both[0], jnp.where(rollout.terminated, 0.0, both[1])))
        assert rollout.truncated.any() == (env is not DELAYED)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_advantages_are_normalised_per_minibatch_or_not_at_all():
    agent, learner, rollout = one_rollout()
    scaled = rollout._replace(reward=100.0 * rollout.reward)
    off = make(BOTH, replace(CONFIG, normalize_advantages="off"))[0]

    def policy_loss(agent, rollout):
        return float(updated(agent, learner, rollout)[1]["loss/policy"])

    assert abs(policy_loss(off, scaled)) > 10 * abs(policy_loss(agent, scaled))


def test_kl_stop_freezes_the_rest_of_the_update():
    tight = replace(CONFIG, target_kl=1e-6, learning_rate=0.05)
    agent, learner, rollout = one_rollout(config=tight)
    found, metrics = updated(agent, learner, rollout)
    # 16 gradient steps; the second already sees a moved policy, so only the first one counts
    assert metrics["train/stopped_on_kl"] == pytest.approx(15 / 16)
    assert found.optimizer.count == 1


@pytest.mark.parametrize(
    ("final", "expected"),
    [
        (None, [5e-3, 5e-3, 5e-3, 5e-3]),
        (0.0, [5e-3, 2.5e-3, 0.0, 0.0]),
        (1e-3, [5e-3, 3e-3, 1e-3, 1e-3]),
    ],
)
def test_the_learning_rate_goes_to_its_final_value_over_the_budget(final, expected):
    agent, learner, rollout = one_rollout(config=replace(CONFIG, final_learning_rate=final))

    def rate_after(updates):
        _, metrics = updated(agent, learner._replace(updates=updates), rollout)
        return metrics["train/learning_rate"]

    rates = [float(rate_after(jnp.int32(done))) for done in (0, 50, 100, 150)]
    np.testing.assert_allclose(rates, expected, atol=1e-9)


def test_acting_and_learning_see_the_same_statistics():
    """The first ratio is 1 although the normaliser has seen data, because it moves after the update."""
    config = replace(CONFIG, normalize_observations=True, epochs_per_update=1, minibatch_size=128)
    agent, collector = make(BOTH, config)
    state, _ = run(agent, collector, start(agent, collector), 3)
    assert state.learner.obs_moments.number == 3 * 128
    rollout = collect(agent, collector, state)
    learner, metrics = updated(agent, state.learner, rollout)
    assert metrics["train/approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert learner.obs_moments.number == 4 * 128


def test_reward_scaling_uses_the_deviation_of_discounted_returns():
    agent, learner, rollout = one_rollout(config=replace(CONFIG, normalize_rewards=True))
    rollout = rollout._replace(reward=1000.0 * rollout.reward)
    found, _ = updated(agent, learner, rollout)
    assert isinstance(found.running_return, PerEnv)
    # every episode is one step of ±1000, so the discounted returns deviate by about 1000
    assert float(jnp.sqrt(found.return_moments.variance)) == pytest.approx(1000.0, rel=0.1)


def test_numbers_are_leaves_so_that_changing_one_compiles_nothing():
    changed = replace(
        CONFIG, learning_rate=1e-4, gamma=0.5, gae_lambda=0.3, clip_epsilon=0.1, entropy_coef=0.5,
        value_coef=0.1, max_grad_norm=9.0, final_learning_rate=0.0,
    )  # fmt: skip
    results, programs = [], []
    for config in (CONFIG, changed):
        agent, collector = make(BOTH, config)
        state, _ = run(agent, collector, start(agent, collector), 3)
        results.append(np.asarray(state.learner.net.actor.layers[0].weight))
        programs.append(run._cache_size())
    assert programs[0] == programs[1]
    assert not np.array_equal(*results)


def test_the_policy_carries_what_acting_needs_and_no_more():
    agent, learner, rollout = one_rollout(config=replace(CONFIG, normalize_observations=True))
    obs = View(rollout.obs[0])
    np.testing.assert_array_equal(
        agent.exploit(agent.policy(learner), obs).action, agent.exploit(learner, obs).action
    )
    assert agent.policy(learner).net.critic is None
