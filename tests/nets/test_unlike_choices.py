"""Actions whose parts choose among unlike numbers: what a part lacks is never chosen or learnt."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import AnswerProbe
from problems import problem_of

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.distributions import MultiCategorical, categorical
from proxima.core.errors import ProximaError
from proxima.core.spaces import MultiDiscrete, box, mask_space, multi_discrete, valid_choices
from proxima.domains.control.compiled import ready
from proxima.domains.control.config import EnvConfig
from proxima.nets.actor_critic import MLPConfig, actor_critic
from proxima.nets.network import custom_net
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.episodes import random_action
from proxima.train.compiled.program import compiled_program
from proxima.train.devices import Layout

SIZES = (2, 5, 1, 3)
SPACE = multi_discrete(SIZES)
SEEN = box(-1.0, 1.0, (3,))


@pytest.fixture(scope="module")
def net():
    return actor_critic(jax.random.key(0), MLPConfig(hidden=(8,)), SEEN, SPACE)


def obs(count):
    return jax.random.normal(jax.random.key(1), (count, 3))


def test_a_space_is_the_same_however_its_counts_are_said():
    assert multi_discrete([3, 3]) == MultiDiscrete(3, 2) and MultiDiscrete(3, 2).sizes == (3, 3)
    assert MultiDiscrete(5, 4, SIZES) == SPACE and hash(SPACE) == hash(multi_discrete(SIZES))
    assert mask_space(SPACE).shape == (4, 5)
    mask = np.ones((4, 5), bool)
    assert valid_choices(MultiDiscrete(5, 4), mask, 0) is mask
    assert valid_choices(SPACE, mask, 0).sum(axis=1).tolist() == list(SIZES)


def test_probabilities_and_entropy_are_those_of_a_slow_loop(net):
    seen = obs(6)
    raw = np.asarray(net.actor(seen), np.float64).reshape(6, 4, 5)
    distribution = net.policy(seen)
    actions = np.random.default_rng(0).integers(0, SIZES, (6, 4))
    for row in range(6):
        log_prob, entropy = 0.0, 0.0
        for part, size in enumerate(SIZES):
            logits = raw[row, part, :size]  # what else there is has no say
            share = np.exp(logits) / np.exp(logits).sum()
            log_prob += np.log(share[actions[row, part]])
            entropy -= np.sum(share * np.log(share))
        assert distribution.log_prob(jnp.asarray(actions))[row] == pytest.approx(log_prob, abs=1e-5)
        assert distribution.entropy()[row] == pytest.approx(entropy, abs=1e-5)


def test_what_a_part_lacks_is_never_drawn_and_has_no_gradient(net):
    loud = jax.tree.map(lambda leaf: 50.0 * leaf, net)  # also where it would like to most of all
    gumbel = jax.random.gumbel(jax.random.key(2), (4000, 4, 5))
    drawn = np.asarray(net.policy(obs(4000)).sample(gumbel))
    assert (drawn < SIZES).all() and (drawn.max(axis=0) == np.asarray(SIZES) - 1).all()
    assert (np.asarray(loud.policy(obs(4000)).mode()) < SIZES).all()

    def loss(net):
        distribution = net.policy(obs(32))
        return jnp.mean(distribution.log_prob(distribution.mode()) + distribution.entropy())

    slope = np.asarray(jax.grad(loss)(net).actor.layers[-1].bias).reshape(4, 5)
    lacks = ~valid_choices(SPACE, None, 0)
    assert (slope[lacks] == 0).all() and np.isfinite(slope).all()
    assert (slope[[0, 1, 3]] != 0).any(axis=1).all()


def test_random_actions_are_uniform_over_what_each_part_has():
    keys = jax.random.split(jax.random.key(0), 6_000)
    drawn = np.asarray(jax.vmap(lambda key: random_action(SPACE, key))(keys))
    for part, size in enumerate(SIZES):
        shares = np.bincount(drawn[:, part], minlength=5) / 6_000
        np.testing.assert_allclose(shares, [1 / size] * size + [0] * (5 - size), atol=0.03)
    mask = jnp.ones((4, 5), bool).at[1, :4].set(False)  # says yes to what there is not, too
    masked = np.asarray(jax.vmap(lambda key: random_action(SPACE, key, mask))(keys[:500]))
    assert (masked < SIZES).all() and (masked[:, 1] == 4).all()


class Own(eqx.Module):
    """A net as a user writes one, which does not know that some parts have fewer choices."""

    bias: jax.Array
    critic: None = None

    def policy(self, seen):
        return MultiCategorical(*categorical(self.bias + seen[0]))

    def value(self, seen):
        return seen[0]


def test_a_net_of_the_users_own_is_kept_to_what_there_is():
    wants_more = jnp.tile(jnp.arange(5.0), (4, 1))
    net = custom_net(Own(wants_more), SEEN, SPACE)
    assert net.policy(obs(3)).mode().tolist() == [[1, 4, 0, 2]] * 3
    assert jnp.exp(net.policy(obs(3)).logits).sum(axis=-1) == pytest.approx(1.0)
    with pytest.raises(ProximaError, match=r"choose among \(2, 5, 1, 3\).*logits \(4, 5\)"):
        custom_net(Own(wants_more[:, :3]), SEEN, SPACE)


@pytest.mark.parametrize("space", [MultiDiscrete(2, 3), multi_discrete((2, 4, 3))], ids=str)
def test_ppo_learns_to_say_what_is_shown(space):
    """Flags, and unlike choices; what is shown are choices of a compiled environment, seen as flags."""
    env = ready(AnswerProbe(space), EnvConfig(backend="probes:AnswerProbe"))
    assert env.observation_space == box(0, 1, (sum(space.sizes),), "bool")
    config = PPOConfig(learning_rate=1e-2, batch_size=256, minibatch_size=64, epochs_per_update=4)
    spaces = env.observation_space, env.action_space
    agent = ppo(config, problem_of(spaces, 32, MLPConfig(hidden=(32,)), total_updates=60))
    program = compiled_program(agent, Collector(env, 32, 8), Layout(1, 1), 0)
    states, sums = program.chunk(program.init([0]), np.ones(1, bool), 60)
    assert all(np.isfinite(values).all() for values in sums.values())
    assert program.evaluate(states.learner, "greedy", 64).returns.mean() > 0.95
    for policy in ("sampled", "random") if space.counts else ():
        assert program.evaluate(states.learner, policy, 64).returns.min() >= 0, policy
