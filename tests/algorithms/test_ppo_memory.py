"""PPO with memory: what cannot be learnt without, both endings forget, and sequences by brute force."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P
from probes import Clock, Cue
from problems import problem_of

from proxima.algorithms.ppo import Aux, PPOConfig, make_batch, ppo
from proxima.core.seeds import first_keys, split_streams
from proxima.core.types import TrainState, View
from proxima.nets.actor_critic import MLPConfig
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.episodes import evaluator
from proxima.train.compiled.program import run_updates
from proxima.train.devices import DATA, Layout, learner_specs, make_mesh

CONFIG = PPOConfig(
    learning_rate=1e-2, batch_size=256, minibatch_size=64, epochs_per_update=4, gamma=0.9
)
NETWORK = MLPConfig(hidden=(8,), memory="gru", memory_size=8)
ENVS = 16
ONE_STEP = replace(
    CONFIG, minibatch_size=256, epochs_per_update=1, max_grad_norm=1e9, entropy_coef=0.0
)


def make(env, config=CONFIG, network=NETWORK, compiled=True):
    spaces = env.observation_space, env.action_space
    problem = problem_of(spaces, ENVS, network, total_updates=100)
    agent = ppo(config, problem._replace(env=env if compiled else None))
    return agent, Collector(env, ENVS, config.batch_size // ENVS)


def start(agent, collector, seed=0):
    keys = first_keys(jnp.uint32(seed), ENVS)
    actors = collector.init(keys.resets, agent.memory(ENVS))
    return TrainState(agent.init(keys.weights), actors, keys.streams)


def greedy_return(env, config=CONFIG, network=NETWORK, updates=60):
    agent, collector = make(env, config, network)
    state, _ = jax.jit(run_updates)(agent, collector, start(agent, collector), updates)
    learners = jax.tree.map(lambda leaf: leaf[None], state.learner)
    evaluate = evaluator(agent, env, Layout(1, 1), 5)
    evaluation = evaluate(learners, "greedy", 64)
    return (evaluation.returns.sum() / evaluation.lengths.sum()), evaluation.returns.mean()


@pytest.mark.parametrize(
    "env, kind",
    [
        (Cue(), "gru"),
        (Cue(truncates=True), "lstm"),
        (Cue(masked=True), "gru"),
    ],
    ids=["terminated", "truncated, LSTM", "masked"],
)
def test_a_cue_is_remembered(env, kind):
    assert greedy_return(env, network=replace(NETWORK, memory=kind))[1] > 0.95


def test_a_cue_cannot_be_acted_on_without_memory():
    assert greedy_return(Cue(), network=replace(NETWORK, memory="none"))[1] < 0.8


def test_both_endings_forget():
    assert greedy_return(Clock())[0] > 0.95  # two thirds without counting from the episode's start


def one_rollout(env, config=ONE_STEP, network=NETWORK, compiled=True, rollouts=2):
    """The last of some rollouts, which begins within episodes."""
    agent, collector = make(env, config, network, compiled)
    learner, actors, key, _ = start(agent, collector, seed=3)
    collect = jax.jit(lambda learner, actors, use: collector(agent, learner, actors, use))
    for _ in range(rollouts):
        key, use = split_streams(key)
        actors, rollout, _ = collect(learner, actors, use)
    return agent, learner, rollout


@jax.jit
def updated(agent, learner, rollout):
    return agent.update(learner, rollout, jax.random.key(0))


@pytest.mark.parametrize("length", [None, 4])
def test_two_devices_share_sequences_and_take_the_step_of_one(length):
    """Each device has half of the environments, whole sequences of them, with their memories."""
    config = replace(ONE_STEP, sequence_length=length)
    agent, learner, rollout = one_rollout(Clock(), config)
    expected, metrics = updated(agent, learner, rollout)
    shared = ppo(config, agent.problem._replace(axis=DATA, env=Clock()))
    whole = jax.tree.map(lambda spec: P(*spec[1:]), learner_specs(learner))
    update = jax.shard_map(
        lambda learner, rollout: shared.update(learner, rollout, jax.random.key(0)),
        mesh=make_mesh(Layout(1, 2)),
        in_specs=(whole, jax.tree.map(lambda _: P(None, DATA), rollout)),
        out_specs=(whole, P()),
        check_vma=False,
    )
    found, found_metrics = jax.jit(update)(learner, rollout)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert float(found_metrics["loss/total"]) == pytest.approx(
        float(metrics["loss/total"]), rel=1e-4
    )


def test_the_memory_of_a_rollout_is_that_of_its_episodes():
    """Row by row: zeros after an ending, else what the net remembers after the row before."""
    _, learner, rollout = one_rollout(Clock())
    ended = np.asarray(rollout.terminated | rollout.truncated)
    assert rollout.terminated.any() and rollout.truncated.any()
    memory = rollout.aux.memory
    assert np.abs(memory.output[0]).sum() > 0  # carried on from the rollout before
    _, after = learner.net.remember(memory, rollout.obs)
    expected = np.where(ended[:-1, :, None], 0.0, after.output[:-1])
    np.testing.assert_allclose(memory.output[1:], expected, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False], ids=["values when acting", "values later"])
def test_values_at_truncations_remember_the_episode_that_was_cut(compiled):
    _, learner, rollout = one_rollout(Clock(), compiled=compiled)
    batch = make_batch(learner, rollout, rollout.reward)
    steps, gamma, lam = rollout.reward.shape[0], 0.9, 0.95
    net = learner.net
    advantage = jnp.zeros(ENVS)
    for t in reversed(range(steps)):
        memory = jax.tree.map(lambda leaf: leaf[t], rollout.aux.memory)  # noqa: B023
        seen, after = net.remember(memory, rollout.obs[t])
        next_value = net.value(net.remember(after, rollout.next_obs[t])[0])
        delta = rollout.reward[t] - net.value(seen)
        delta += gamma * jnp.where(rollout.terminated[t], 0.0, next_value)
        going_on = ~(rollout.terminated[t] | rollout.truncated[t])
        advantage = delta + gamma * lam * going_on * advantage
        np.testing.assert_allclose(batch.advantage[t], advantage, atol=1e-4)


@pytest.mark.parametrize("length", [None, 4])
def test_a_gradient_step_is_the_slow_one(length):
    """Step by step from each sequence's start, with fake rows between some episodes."""
    config = replace(ONE_STEP, sequence_length=length)
    agent, learner, rollout = one_rollout(Clock(), config)
    # After an ending an environment pool may insert a row that is no step.
    ended = rollout.terminated | rollout.truncated
    fake = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]]).at[:, ::2].set(False)
    rollout = rollout._replace(
        mask=~fake,
        terminated=rollout.terminated & ~fake,
        truncated=rollout.truncated & ~fake,
    )
    found, metrics = updated(agent, learner, rollout)
    batch = make_batch(learner, rollout, rollout.reward)
    weight = np.asarray(batch.weight)
    mean = np.sum(batch.advantage * weight) / weight.sum()
    deviation = np.sqrt(np.sum(weight * (batch.advantage - mean) ** 2) / weight.sum())
    advantage = (batch.advantage - mean) / (deviation + 1e-8)
    steps = rollout.reward.shape[0]
    ends = np.asarray(rollout.terminated | rollout.truncated | fake)

    def loss(net):
        total = 0.0
        for t in range(steps):
            if t % (length or steps) == 0:
                memory = jax.tree.map(lambda leaf: leaf[t], rollout.aux.memory)  # noqa: B023
            else:
                output = jnp.where(ends[t - 1, :, None], 0.0, memory.output)
                memory = memory._replace(output=output)
            seen, memory = net.remember(memory, rollout.obs[t])
            log_prob = net.policy(seen).log_prob(rollout.action[t])
            ratio = jnp.exp(log_prob - rollout.aux.log_prob[t])
            error = 0.5 * (net.value(seen) - batch.target[t]) ** 2
            total += jnp.sum(jnp.where(weight[t] > 0, error - ratio * advantage[t], 0.0))
        return total / weight.sum()

    gradient = jax.jit(jax.grad(loss))(learner.net)
    assert metrics["train/grad_norm"] == pytest.approx(float(optax.tree.norm(gradient)), rel=1e-3)
    optimizer = optax.adam(CONFIG.learning_rate, eps=1e-5)
    change, _ = optimizer.update(gradient, optimizer.init(learner.net))
    expected = optax.apply_updates(learner.net, change)
    for one, other in zip(jax.tree.leaves(found.net), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_nonsense_in_fake_rows_teaches_nothing():
    agent, learner, rollout = one_rollout(Clock(), CONFIG)
    fake = jnp.zeros_like(rollout.mask).at[3::4].set(True)
    rollout = rollout._replace(
        mask=~fake,
        truncated=(rollout.truncated | jnp.roll(fake, -1, 0)) & ~fake,
        terminated=rollout.terminated & ~fake & ~jnp.roll(fake, -1, 0),
    )

    def poison(leaf):
        spread = fake.reshape(*fake.shape, *(1,) * (leaf.ndim - 2))
        return jnp.where(spread, jnp.nan, leaf)

    aux = rollout.aux
    poisoned = rollout._replace(
        obs=poison(rollout.obs),
        reward=poison(rollout.reward),
        aux=Aux(
            aux.raw_action,
            poison(aux.log_prob),
            poison(aux.value),
            jax.tree.map(poison, aux.memory),
        ),
    )
    clean, poisoned = (updated(agent, learner, each) for each in (rollout, poisoned))
    for one, other in zip(jax.tree.leaves(clean), jax.tree.leaves(poisoned), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_greedy_actions_carry_the_memory_on():
    agent, learner, _ = one_rollout(Cue())
    first = agent.exploit(learner, View(jnp.ones((ENVS, 1)), memory=agent.memory(ENVS)))
    other = agent.exploit(learner, View(-jnp.ones((ENVS, 1)), memory=agent.memory(ENVS)))
    assert not np.array_equal(first.memory.output, other.memory.output)
    assert agent.policy(learner).net.critic is None
