"""SAC: probe environments, every formula against a slow loop, masks, noise, warm-up, no recompiling."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import (
    ACTION,
    BOTH,
    CONSTANT,
    DELAYED,
    FROM_OBS,
    TRUNCATED,
    MaskedProbe,
    continuous,
)
from problems import problem_of

from proxima.algorithms.sac import ALGORITHM, METRICS, SACConfig, sac
from proxima.core.errors import ProximaError
from proxima.core.off_policy import Sample
from proxima.core.seeds import first_keys
from proxima.core.spaces import Discrete, MultiDiscrete, box, fields, mask_space
from proxima.core.types import TrainState, View
from proxima.nets.actor_critic import MLPConfig
from proxima.train import checkpoint
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import run_updates

ENVS = 4
NETWORK = MLPConfig(hidden=(32,), activation="relu")  # one layer: most of the time is compiling
DEEP = MLPConfig(hidden=(8, 8), activation="relu")
CONFIG = SACConfig(
    name="sac",
    actor_learning_rate=1e-3,
    gamma=0.9,
    tau=0.05,
    temperature=0.01,  # so small that values are those without entropy
    learn_temperature=False,
    batch_size=32,
    buffer_size=1_000,
    warmup_steps=64,
)
LEARNT = replace(CONFIG, temperature=0.2, learn_temperature=True)


def make(env, config=CONFIG):
    spaces = env.observation_space, env.action_space
    agent = sac(config, problem_of(spaces, ENVS, NETWORK))
    return agent, Collector(env, ENVS, config.steps_per_update)


# Each compiled once for all tests whose agents and environments have the same shape.
run = jax.jit(run_updates)
gradient_step = jax.jit(lambda agent, *arguments: agent._gradient_step(*arguments))
init = jax.jit(lambda agent, key: agent.init(key))
reset = jax.jit(lambda collector, keys: collector.init(keys))


def start(agent, collector, seed=0):
    keys = first_keys(jnp.uint32(seed), ENVS)
    return TrainState(init(agent, keys.weights), reset(collector, keys.resets), keys.streams)


def learn(env, config=CONFIG, updates=300):
    agent, collector = make(env, config)
    state, sums = run(agent, collector, start(agent, collector), updates)
    return agent, state, sums


def same(one, other):
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def q_at(learner, obs, units=0.0):
    values = learner.nets.critics.net(jnp.asarray([obs]), jnp.asarray([units]))
    return [float(value) for value in values]


def greedy_at(agent, learner, *obs):
    return np.asarray(agent.exploit(learner, View(jnp.asarray(obs)[:, None])).action)


def test_probe_1_constant_reward():
    _, state, _ = learn(continuous(CONSTANT))
    assert q_at(state.learner, 0.0) == pytest.approx([1.0] * 2, abs=0.05)


def test_probe_2_reward_from_the_observation():
    _, state, _ = learn(continuous(FROM_OBS))
    assert q_at(state.learner, 1.0) == pytest.approx([1.0] * 2, abs=0.1)
    assert q_at(state.learner, -1.0) == pytest.approx([-1.0] * 2, abs=0.1)


def test_probe_3_delayed_reward_is_discounted():
    _, state, _ = learn(continuous(DELAYED))
    assert q_at(state.learner, 0.0) == pytest.approx([0.9] * 2, abs=0.05)
    assert q_at(state.learner, 1.0) == pytest.approx([1.0] * 2, abs=0.05)


def test_probe_4_action_choice():
    agent, state, _ = learn(continuous(ACTION), updates=500)
    assert greedy_at(agent, state.learner, 0.0)[:, 0] == pytest.approx([0.5], abs=0.15)


def test_probe_5_action_by_observation():
    agent, state, _ = learn(continuous(BOTH), LEARNT, updates=800)
    actions = greedy_at(agent, state.learner, 1.0, -1.0)[:, 0]
    assert actions == pytest.approx([0.5, -0.5], abs=0.15)


def test_truncation_does_not_end_the_value():
    _, state, _ = learn(continuous(TRUNCATED), replace(CONFIG, tau=0.2), updates=600)
    assert q_at(state.learner, 0.0)[0] == pytest.approx(10.0, abs=0.5)  # 1 / (1 − 0.9), not 1


def test_choices_by_observation_and_their_entropy():
    """A choice earns 1 or −1, and the temperature settles where the entropy is half of log 2."""
    config = replace(LEARNT, temperature_learning_rate=3e-3)
    agent, state, _ = learn(BOTH, config, updates=800)
    assert greedy_at(agent, state.learner, 1.0, -1.0).tolist() == [1, 0]
    first = state.learner.nets.critics.net(jnp.asarray([[1.0], [-1.0]]))[0]
    np.testing.assert_allclose(first, [[-1.0, 1.0], [1.0, -1.0]], atol=0.15)
    entropy = agent.policy(state.learner).net(jnp.asarray([[1.0]])).entropy()
    assert float(entropy[0]) == pytest.approx(0.5 * np.log(2), abs=0.12)


def test_masked_choices_are_learnt_and_an_invalid_one_is_never_made():
    agent, state, sums = learn(MaskedProbe(), replace(CONFIG, actor_learning_rate=3e-3), 400)
    rewards = np.asarray(state.learner.replay.rows[: int(state.learner.replay.size)])
    assert (rewards[:, reward_column()] >= 0).all(), "an invalid choice would cost 10"
    masks = jnp.asarray([[True, True, False], [True, False, True], [True, False, False]])
    obs = masked_obs(masks)
    assert agent.exploit(state.learner, View(obs)).action.tolist() == [1, 2, 0]
    assert all(np.isfinite(value) for value in sums.values())


def masked_obs(masks):
    count = len(masks)
    return {
        "board": jnp.full((count, 2, 3), 0.5),
        "time": jnp.zeros(count, jnp.int32),
        "flag": jnp.tile(jnp.asarray([True, False]), (count, 1)),
        "action_mask": masks,
    }


def reward_column():
    """After the observation's flattened fields and the action."""
    return 3 + 6 + 2 + 1 + 1


# One gradient step, written out.

WIDE = box([-2.0, 0.0], [6.0, 1.0], (2,))  # units are not the environment's own measures
OBS = box(-1.0, 1.0, (3,))
SEEN = fields({"seen": OBS, "action_mask": mask_space(Discrete(3))})
GAMMA, COUNT = 0.9, 6


def wide_agent(config=LEARNT):
    return sac(config, problem_of((OBS, WIDE), ENVS, DEEP))


def choosing_agent(config=LEARNT):
    return sac(config, problem_of((SEEN, Discrete(3)), ENVS, DEEP))


def random_batch(choices=False):
    draw = np.random.default_rng(0)
    obs, next_obs = draw.normal(size=(2, COUNT, 3)).astype(np.float32)
    action = np.stack([draw.uniform(-2, 6, COUNT), draw.uniform(0, 1, COUNT)], 1).astype("f4")
    batch = Sample(obs, action, draw.normal(size=COUNT).astype("f4"), next_obs, None)
    batch = batch._replace(terminated=np.arange(COUNT) % 3 == 0)
    if not choices:
        return batch
    # Choice 1 is never valid; of the last observation's choices a single one is, of the first next none.
    masks = np.tile([True, False, True], (2, COUNT, 1))
    masks[0, -1], masks[1, 0], masks[1, 3] = [True, False, False], False, [True] * 3
    masks[1, 3, 1] = False
    return batch._replace(
        obs={"seen": obs, "action_mask": masks[0]},
        next_obs={"seen": next_obs, "action_mask": masks[1]},
        action=np.asarray([0, 2, 2, 0, 2, 0], np.int32),
    )


def aged(learner, seed=7):
    """The learner with targets that have fallen behind, an opinionated actor, and a temperature of 0.3."""
    draw = iter(jax.random.split(jax.random.key(seed), 100))

    def disturb(leaf):
        return leaf + 0.2 * jax.random.normal(next(draw), leaf.shape)

    nets = learner.nets
    actor = nets.actor._replace(net=jax.tree.map(disturb, nets.actor.net))
    temperature = nets.log_temperature._replace(net=jnp.log(jnp.float32(0.3)))
    target = jax.tree.map(disturb, nets.target)
    return learner._replace(
        nets=nets._replace(actor=actor, target=target, log_temperature=temperature)
    )


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


def slow_value(actor, critics, obs, noise):
    """E[min Q] and the entropy at one observation: by one action of numbers, by all valid choices."""
    if isinstance(obs, dict):
        x, mask = obs["seen"], obs["action_mask"]
        logits = slow_mlp(actor.net, x)
        total = sum(np.exp(logits[a]) for a in range(3) if mask[a])
        values = [slow_mlp(net, x) for net in critics.nets]
        q = entropy = 0.0
        for a in range(3):
            if mask[a]:
                share = np.exp(logits[a]) / total
                q += share * min(value[a] for value in values)
                entropy -= share * np.log(share)
        return q, entropy
    out = slow_mlp(actor.net, obs)
    units, log_prob = [], 0.0
    for mean, log_std, normal in zip(out[:2], out[2:], noise, strict=True):
        log_std = min(max(log_std, -20.0), 2.0)
        raw = mean + np.exp(log_std) * normal
        units.append(np.tanh(raw))
        log_prob += -0.5 * normal**2 - log_std - 0.5 * np.log(2 * np.pi)
        log_prob -= np.log(1.0 - np.tanh(raw) ** 2)  # the change of measure under tanh
    return min(slow_mlp(net, [*obs, *units])[0] for net in critics.nets), -log_prob


def slow_values(actor, critics, obs, noise):
    rows = [jax.tree.map(lambda leaf, k=k: leaf[k], obs) for k in range(COUNT)]
    pairs = [slow_value(actor, critics, row, noise[k]) for k, row in enumerate(rows)]
    return np.asarray(pairs).T


def slow_target(nets, batch, noise, alpha):
    q, entropy = slow_values(nets.actor.net, nets.target, batch.next_obs, noise)
    return batch.reward + GAMMA * np.where(batch.terminated, 0.0, q + alpha * entropy)


kinds = pytest.mark.parametrize("choices", [False, True], ids=["numbers", "choices"])


@pytest.fixture(scope="module")
def written():
    """By kind of actions: an agent, an aged learner of it, a batch, and noise for both halves of a step."""
    made = {}
    for choices, agent in ((False, wide_agent()), (True, choosing_agent())):
        learner = aged(init(agent, jax.random.key(0)))
        noise = agent.actions.noise(jax.random.key(5), (2, COUNT))
        made[choices] = agent, learner, random_batch(choices), noise
    return made


@kinds
def test_targets_are_those_of_a_slow_loop(choices, written):
    agent, learner, batch, noise = written[choices]
    found = agent._target(learner.nets, learner.hyper, batch, noise[0])
    expected = slow_target(learner.nets, batch, np.asarray(noise[0]), 0.3)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)
    assert np.array_equal(np.asarray(found)[batch.terminated], batch.reward[batch.terminated])
    plain = slow_target(learner.nets, batch, np.asarray(noise[0]), 0.0)
    assert not np.allclose(found, plain, rtol=1e-2), "the entropy is part of it"


SLOW_LOSSES = {
    "l2": lambda error: error**2,
    "l1": abs,
    "smooth_l1": lambda error: 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5,
}


@kinds
@pytest.mark.parametrize("kind", SLOW_LOSSES)
def test_critic_losses_are_those_of_a_slow_loop(choices, kind, written):
    _, learner, batch, _ = written[choices]
    config = replace(LEARNT, critic_loss=kind)
    agent = choosing_agent(config) if choices else wide_agent(config)
    critics, target = learner.nets.critics.net, np.linspace(-3.0, 3.0, COUNT).astype("f4")
    loss, (q, error) = agent._critic_loss(critics, batch, target)
    expected, errors = 0.0, []
    for net in critics.nets:
        for k in range(COUNT):
            if choices:
                value = slow_mlp(net, batch.obs["seen"][k])[batch.action[k]]
            else:
                units = [(batch.action[k, 0] - 2.0) / 4.0, (batch.action[k, 1] - 0.5) / 0.5]
                value = slow_mlp(net, [*batch.obs[k], *units])[0]
            errors.append(value - target[k])
            expected += SLOW_LOSSES[kind](errors[-1]) / COUNT
    assert min(map(abs, errors)) < 1 < max(map(abs, errors))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(q - target, errors[:COUNT], rtol=1e-4, atol=1e-5)
    assert float(error) == pytest.approx(np.mean(np.abs(errors[:COUNT])), rel=1e-5)


def slow_actor_loss(actor, critics, batch, noise, alpha):
    q, entropy = slow_values(actor, critics, batch.obs, noise)
    return -np.mean(q + alpha * entropy)


@kinds
def test_the_actors_loss_and_gradient_are_those_of_a_slow_loop(choices, written):
    agent, learner, batch, noise = written[choices]
    actor, critics, normal = learner.nets.actor.net, learner.nets.critics.net, noise[1]
    differentiate = jax.value_and_grad(agent._actor_loss, has_aux=True)
    (loss, entropy), gradient = differentiate(actor, critics, jnp.float32(0.3), batch, normal)
    normal = np.asarray(normal)
    assert float(loss) == pytest.approx(
        slow_actor_loss(actor, critics, batch, normal, 0.3), rel=1e-5
    )
    np.testing.assert_allclose(
        entropy, slow_values(actor, critics, batch.obs, normal)[1], rtol=1e-4, atol=1e-5
    )
    # Finite differences: the gradient goes through the action, and through its probability.
    leaves, structure = jax.tree.flatten(actor)
    doubles = [np.asarray(leaf, np.float64) for leaf in leaves]
    for index, where in ((0, (1, 4)), (2, (3, 5)), (4, (7, 0)), (5, (0,)), (5, (2,))):
        losses = []
        for sign in (1.0, -1.0):
            moved = [leaf.copy() for leaf in doubles]
            moved[index][where] += sign * 1e-5
            changed = jax.tree.unflatten(structure, moved)
            losses.append(slow_actor_loss(changed, critics, batch, normal, 0.3))
        slope = (losses[0] - losses[1]) / 2e-5
        found = np.asarray(jax.tree.leaves(gradient)[index])[where]
        assert float(found) == pytest.approx(slope, rel=2e-3, abs=1e-5)


def test_masked_choices_have_no_probability_no_gradient_and_no_part_in_the_target(written):
    agent, learner, batch, noise = written[True]
    nets = learner.nets
    probabilities = np.exp(np.asarray(nets.actor.net(batch.obs).logits))
    assert (probabilities[:, 1] == 0).all() and (probabilities[-1] == [1, 0, 0]).all()
    spoilt = jax.tree.map(lambda leaf: leaf, nets.target)
    spoilt = raise_choice(spoilt, 1, 1e6)
    targets = [
        np.asarray(agent._target(each, learner.hyper, batch, noise[0]))
        for each in (nets, nets._replace(target=spoilt))
    ]
    np.testing.assert_array_equal(*targets)
    assert np.isfinite(targets[0]).all(), "also after the last step, where no choice is valid"

    alpha = jnp.float32(0.3)
    of_actor = jax.grad(agent._actor_loss, has_aux=True)(
        nets.actor.net, nets.critics.net, alpha, batch, noise[1]
    )[0]
    of_critics = jax.grad(agent._critic_loss, has_aux=True)(
        nets.critics.net, batch, jnp.zeros(COUNT)
    )[0]
    for net in (of_actor.net, *of_critics.nets):
        last = net.layers[-1]
        assert (np.asarray(last.bias)[1] == 0) and (np.asarray(last.weight)[:, 1] == 0).all()
        assert np.asarray(last.bias)[0] != 0 and np.isfinite(np.asarray(last.weight)).all()


def raise_choice(critics, choice, amount):
    """The critics with another opinion of one choice."""
    nets = [replace_bias(net, net.layers[-1].bias.at[choice].add(amount)) for net in critics.nets]
    return replace(critics, nets=tuple(nets))


def replace_bias(net, bias):
    return replace(net, layers=(*net.layers[:-1], replace(net.layers[-1], bias=bias)))


def slow_adam(value, slope, rate):
    """The first step of Adam (arXiv 1412.6980)."""
    mean, square = 0.1 * slope / (1 - 0.9), 0.001 * slope**2 / (1 - 0.999)
    return value - rate * mean / (np.sqrt(square) + 1e-8)


@kinds
def test_a_gradient_step_is_the_textbook_one(choices, written):
    """Critics on their written-out loss, the actor through the new critics, the temperature, the targets."""
    agent, learner, batch, noise = written[choices]
    before = learner.nets
    after, means = gradient_step(agent, before, learner.hyper, batch, noise)
    means = dict(zip(METRICS, np.asarray(means), strict=True))

    def moved(net, gradient, rate):
        return jax.tree.map(
            lambda w, g: slow_adam(np.float64(w), np.float64(g), rate), net, gradient
        )

    target = slow_target(before, batch, np.asarray(noise[0]), 0.3).astype(np.float32)
    slopes = jax.grad(agent._critic_loss, has_aux=True)(before.critics.net, batch, target)[0]
    assert_close(after.critics.net, moved(before.critics.net, slopes, 1e-3))

    found = jax.grad(agent._actor_loss, has_aux=True)(
        before.actor.net, after.critics.net, jnp.float32(0.3), batch, noise[1]
    )[0]
    assert_close(after.actor.net, moved(before.actor.net, found, 1e-3))

    entropy = slow_values(before.actor.net, after.critics.net, batch.obs, np.asarray(noise[1]))[1]
    aims = [0.5 * np.log(n) for n in (2, 2, 2, 2, 2, 1)] if choices else [-2.0] * COUNT
    surplus = np.mean([h - aim for h, aim in zip(entropy, aims, strict=True)])
    assert means["loss/temperature"] == pytest.approx(0.3 * surplus, rel=1e-4)
    assert means["train/entropy"] == pytest.approx(np.mean(entropy), rel=1e-4)
    assert means["train/temperature"] == pytest.approx(0.3, rel=1e-5)
    expected = slow_adam(np.log(0.3), 0.3 * surplus, 1e-3)
    assert float(after.log_temperature.net) == pytest.approx(expected, abs=1e-6)

    followed = jax.tree.map(
        lambda old, new: 0.95 * np.float64(old) + 0.05 * np.float64(new),
        before.target,
        after.critics.net,
    )
    assert_close(after.target, followed, 1e-6)
    assert after.gradient_steps == 1


def assert_close(found, expected, tolerance=2e-5):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


def test_a_delayed_policy_moves_every_second_time_and_its_figures_are_right(written):
    agent, learner, batch, noise = written[False]
    hyper = learner.hyper._replace(policy_delay=jnp.int32(2))
    first, idle = gradient_step(agent, learner.nets, hyper, batch, noise)
    assert same(first.actor, learner.nets.actor) and not same(first.critics, learner.nets.critics)
    assert same(first.log_temperature, learner.nets.log_temperature)
    assert not same(first.target, learner.nets.target), "targets follow at every step"
    second, busy = gradient_step(agent, first, hyper, batch, noise)
    assert not same(second.actor, first.actor)
    idle, busy = (dict(zip(METRICS, np.asarray(rows), strict=True)) for rows in (idle, busy))
    _, entropy = slow_values(first.actor.net, second.critics.net, batch.obs, np.asarray(noise[1]))
    assert idle["train/entropy"] == 0
    assert (idle["train/entropy"] + busy["train/entropy"]) / 2 == pytest.approx(
        np.mean(entropy), rel=1e-4
    )


def test_the_entropy_aimed_at():
    batch = random_batch(choices=True)

    def aim(agent):
        return np.asarray(agent._target_entropy(agent.hyper, batch)).tolist()

    assert aim(wide_agent()) == [-2.0] * COUNT  # minus the numbers of an action
    assert aim(wide_agent(replace(LEARNT, target_entropy=-0.5))) == [-0.5] * COUNT
    half = 0.5 * np.log([2, 2, 2, 2, 2, 1])
    np.testing.assert_allclose(aim(choosing_agent()), half, rtol=1e-6)
    assert aim(choosing_agent(replace(LEARNT, target_entropy=0.25))) == [0.25] * COUNT
    unmasked = sac(LEARNT, problem_of((OBS, Discrete(4)), ENVS, DEEP))
    plain = unmasked._target_entropy(unmasked.hyper, random_batch())
    np.testing.assert_allclose(plain, 0.5 * np.log(4), rtol=1e-6)


def test_a_fixed_temperature_is_a_number_that_stays():
    agent = wide_agent(replace(CONFIG, temperature=0.7))
    learner, batch = init(agent, jax.random.key(0)), random_batch()
    noise = agent.actions.noise(jax.random.key(5), (2, COUNT))
    after, means = gradient_step(agent, learner.nets, learner.hyper, batch, noise)
    assert same(after.log_temperature, learner.nets.log_temperature)
    hyper = learner.hyper._replace(temperature=jnp.float32(0.1))
    _, other = gradient_step(agent, learner.nets, hyper, batch, noise)
    place = METRICS.index("train/temperature")
    assert [float(means[place]), float(other[place])] == pytest.approx([0.7, 0.1])


def test_deviations_are_kept_within_their_bounds(written):
    _, learner, batch, _ = written[False]
    actor = learner.nets.actor.net
    for bias, expected in ((-1e3, -20.0), (1e3, 2.0)):
        biased = replace(actor, net=replace_bias(actor.net, jnp.asarray([0.0, 0.0, bias, bias])))
        np.testing.assert_array_equal(biased(batch.obs).log_std, np.full((COUNT, 2), expected))


# Noise and warm-up.


def test_noise_lasts_as_told_and_single_actions_keep_their_distribution():
    agent = wide_agent(replace(CONFIG, noise_correlation=0.8, warmup_steps=0))
    learner = init(agent, jax.random.key(0))
    noise = agent.noise(learner, jax.random.key(1), (4_000, ENVS))
    assert not noise.warmup.any()
    path = np.concatenate([np.asarray(learner.noise_path.value)[None], noise.amount])
    assert np.std(path) == pytest.approx(1.0, abs=0.05)
    assert np.mean(path[1:] * path[:-1]) == pytest.approx(0.8, abs=0.05)
    kicks = np.asarray(jax.random.normal(jax.random.key(1), (4_000, ENVS, 2)))
    np.testing.assert_allclose(path[1], 0.8 * path[0] + 0.6 * kicks[0], rtol=1e-4, atol=1e-6)

    plain = wide_agent(replace(CONFIG, warmup_steps=0))
    free = plain.noise(init(plain, jax.random.key(0)), jax.random.key(1), (10, ENVS))
    np.testing.assert_allclose(free.amount, kicks_of(10), rtol=1e-6)


def kicks_of(steps):
    return np.asarray(jax.random.normal(jax.random.key(1), (steps, ENVS, 2)))


def test_the_warm_up_is_uniform_over_the_range_and_over_valid_choices():
    agent = wide_agent(replace(CONFIG, warmup_steps=4_000))
    learner = init(agent, jax.random.key(0))
    noise = agent.noise(learner, jax.random.key(1), (1_200, ENVS))
    assert noise.warmup[:1_000].all() and not noise.warmup[1_000:].any()
    views = View(jnp.zeros((1_200, ENVS, 3)))
    action, aux, _ = agent.explore(learner, views, noise)
    np.testing.assert_array_equal(aux, noise.amount)
    share = (np.asarray(action[:1_000]) - WIDE.low) / (np.asarray(WIDE.high) - WIDE.low)
    deciles = np.histogram(share.reshape(-1), bins=10, range=(0.0, 1.0))[0] / share.size
    np.testing.assert_allclose(deciles, 0.1, atol=0.015)
    drawn = agent.actions.sample(agent.policy(learner).net, views.obs, noise.amount)
    np.testing.assert_array_equal(action[1_000:], drawn[1_000:])

    chooser = choosing_agent(replace(CONFIG, warmup_steps=10**6))
    learner = init(chooser, jax.random.key(0))
    noise = chooser.noise(learner, jax.random.key(1), (1_000, ENVS))
    mask = jnp.broadcast_to(jnp.asarray([True, False, True]), (1_000, ENVS, 3))
    obs = {"seen": jnp.zeros((1_000, ENVS, 3)), "action_mask": mask}
    action, aux, _ = chooser.explore(learner, View(obs), noise)
    assert aux is None
    shares = np.bincount(np.asarray(action).reshape(-1), minlength=3) / action.size
    np.testing.assert_allclose(shares, [0.5, 0.0, 0.5], atol=0.03)


def test_noise_for_an_evaluation_is_a_draw_of_single_actions():
    agent = wide_agent()
    learner = init(agent, jax.random.key(0))
    keys = jax.random.split(jax.random.key(0), 3)
    noise = jax.vmap(lambda key: agent.noise(None, key, ()))(keys)
    action, *_ = agent.explore(agent.policy(learner), View(jnp.zeros((3, 3))), noise)
    assert action.shape == (3, 2) and len(np.unique(action[:, 0])) == 3


# What the rest of the program relies on. One shape of program for all: BOTH with every switch on.

FULL = replace(LEARNT, normalize_observations=True, buffer_size=90, noise_correlation=0.5)


@pytest.fixture(scope="module")
def full():
    agent, collector = make(continuous(BOTH), FULL)
    fresh = start(agent, collector)
    return agent, collector, fresh, run(agent, collector, fresh, 40)[0]


def test_nothing_is_learnt_in_the_warm_up(full):
    agent, collector, fresh, _ = full
    waiting, sums = run(agent, collector, fresh, 15)
    assert same(waiting.learner.nets, fresh.learner.nets) and sums["loss/critic"] == 0
    assert waiting.learner.replay.size == 60
    learning, sums = run(agent, collector, waiting, 1)
    assert learning.learner.nets.gradient_steps == ENVS and sums["loss/critic"] > 0


def test_numbers_are_leaves_so_that_changing_one_compiles_nothing(full):
    agent, collector, _, whole = full
    before = run._cache_size()
    changed = replace(
        FULL, actor_learning_rate=1e-4, critic_learning_rate=3e-4, temperature_learning_rate=1e-2,
        gamma=0.5, tau=0.5, temperature=0.5, target_entropy=-0.3, target_entropy_ratio=0.1,
        warmup_steps=40, noise_correlation=0.1, policy_delay=3, max_grad_norm=0.1, reward_scale=2.0,
    )  # fmt: skip
    other, collector = make(continuous(BOTH), changed)
    assert jax.tree.structure(other) == jax.tree.structure(agent)
    state, _ = run(other, collector, start(other, collector), 40)
    assert run._cache_size() == before
    assert not same(state.learner.nets, whole.learner.nets)


def test_a_state_saved_with_its_buffer_goes_on_as_if_it_had_not_been(full, tmp_path: Path):
    agent, collector, fresh, whole = full
    half, _ = run(agent, collector, fresh, 25)
    checkpoint.save(tmp_path, 100, half, {"scenario": {}, "loop": {}}, keep=2, best=False)
    restored, _ = checkpoint.load(tmp_path, start(agent, collector))
    resumed, _ = run(agent, collector, restored, 15)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
    assert whole.learner.replay.size == 90 and whole.learner.replay.position == 160 % 90


def test_trials_side_by_side_are_those_alone(full):
    agent, collector, fresh, whole = full
    late = fresh.learner.hyper._replace(warmup_steps=jnp.int32(10_000))
    idle = fresh._replace(learner=fresh.learner._replace(hyper=late))
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), fresh, idle)
    found, _ = jax.jit(jax.vmap(lambda state: run_updates(agent, collector, state, 40)))(batch)
    nets = found.learner.nets
    for one, other in zip(jax.tree.leaves(whole.learner.nets), jax.tree.leaves(nets), strict=True):
        np.testing.assert_allclose(one, other[0], atol=2e-4)
    steps = 160 - FULL.warmup_steps + ENVS  # the update that ends the warm-up learns too
    np.testing.assert_array_equal(nets.gradient_steps, [steps, 0])


def test_statistics_belong_to_the_policy_and_the_buffer_stays_raw(full):
    agent, _, _, whole = full
    learner = whole.learner
    assert set(np.unique(learner.replay.rows[:, 0])) == {-1.0, 1.0}
    assert learner.obs_moments.number == 160
    policy, view = agent.policy(learner), View(jnp.asarray([[1.0], [0.5]]))
    greedy = agent.exploit(policy, view).action
    np.testing.assert_array_equal(greedy, agent.exploit(learner, view).action)
    plain = policy._replace(obs_moments=None)
    assert not np.array_equal(agent.exploit(plain, view).action, greedy)
    assert same(agent.policy(policy), policy)


def test_gradient_steps_follow_the_steps_collected_unless_told():
    problem = problem_of((OBS, WIDE), 5)
    assert sac(replace(CONFIG, steps_per_update=3), problem).gradient_steps == 15
    assert sac(replace(CONFIG, gradient_steps=2), problem).gradient_steps == 2
    assert ALGORITHM.learning_begins(CONFIG) == 64 + 32


def test_actions_that_sac_cannot_choose_are_refused_in_words():
    with pytest.raises(ProximaError, match=r"algorithm\.name: sac .*several choices.*use ppo"):
        sac(CONFIG, problem_of((OBS, MultiDiscrete(2, 3)), ENVS))
    with pytest.raises(ProximaError, match=r"algorithm\.name: sac needs bounded .*ppo"):
        sac(CONFIG, problem_of((OBS, box(-np.inf, 1.0, (1,))), ENVS))
    with pytest.raises(ProximaError, match=r"algorithm\.noise_correlation: .*set it to 0"):
        sac(replace(CONFIG, noise_correlation=0.5), problem_of((OBS, Discrete(2)), ENVS))
