"""Nets of a user's own: as a Network, a function or a module; over any leading axes; refused in words."""

import sys
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import ACTION, continuous
from problems import problem_of

from proxima.algorithms.ppo import PPOConfig, ppo
from proxima.core.distributions import Normal, categorical
from proxima.core.errors import ProximaError
from proxima.core.network import NetworkSpec
from proxima.core.seeds import first_keys
from proxima.core.spaces import Box, Discrete, box, fields
from proxima.core.types import TrainState, View
from proxima.nets.actor_critic import NETWORK, MLPConfig
from proxima.nets.network import CustomConfig, check_network, network_at, network_of
from proxima.train.compiled.collect import Collector
from proxima.train.compiled.program import run_updates

ENVS = 8
CONFIG = PPOConfig(
    learning_rate=5e-3, batch_size=128, minibatch_size=32, epochs_per_update=4, gamma=0.9
)
CUSTOM = CustomConfig(kind="mine:net")


class Own(eqx.Module):
    """Equinox's own layers, which take one sample and hold functions beside their arrays."""

    actor: eqx.nn.MLP
    critic: eqx.nn.MLP
    continuous: bool

    def policy(self, obs):
        raw = self.actor(obs)
        return Normal(raw, jnp.zeros_like(raw)) if self.continuous else categorical(raw)

    def value(self, obs):
        return self.critic(obs)[0]


def make_own(key, observation_space, action_space):
    actor_key, critic_key = jax.random.split(key)
    inputs = observation_space.shape[0]
    is_box = isinstance(action_space, Box)
    outputs = action_space.shape[0] if is_box else action_space.n
    return Own(
        eqx.nn.MLP(inputs, outputs, 16, 2, jax.nn.tanh, key=actor_key),
        eqx.nn.MLP(inputs, 1, 16, 2, jax.nn.tanh, key=critic_key),
        is_box,
    )


def spaces_of(env):
    return env.observation_space, env.action_space


def learn(env, network, updates=100):
    agent = ppo(CONFIG, problem_of(spaces_of(env), ENVS, network, total_updates=100))
    collector = Collector(env, ENVS, CONFIG.batch_size // ENVS)
    keys = first_keys(jnp.uint32(0), ENVS)
    state = TrainState(agent.init(keys.weights), collector.init(keys.resets), keys.streams)
    state, _ = jax.jit(run_updates)(agent, collector, state, updates)
    return agent, state.learner


def test_a_factory_of_equinox_layers_learns():
    agent, learner = learn(ACTION, NetworkSpec(network_of(make_own), CUSTOM))
    policy = agent.policy(learner)
    assert policy.net.critic is None or not jax.tree.leaves(policy.net.critic)
    assert set(np.asarray(agent.exploit(policy, View(jnp.zeros((3, 1)))).action)) == {1}
    assert float(learner.net.value(jnp.zeros(1))) == pytest.approx(1.0, abs=0.1)


def test_a_module_with_weights_is_where_every_trial_starts_and_it_outlives_them():
    env = continuous(ACTION)
    module = make_own(jax.random.key(3), *spaces_of(env))
    spec = NetworkSpec(network_of(module), CUSTOM)
    obs = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3, 1)
    for seed in (0, 1):
        net = spec.make(jax.random.key(seed), *spaces_of(env))
        one = module.policy(obs[1, 2]).mean
        np.testing.assert_allclose(net.policy(obs).mean[1, 2], one, rtol=1e-5)
        jax.jit(lambda net: jax.tree.map(jnp.sin, net), donate_argnums=0)(net)
    assert np.isfinite(module.value(jnp.ones(1)))


def test_any_leading_axes_of_named_observations():
    class Summing(eqx.Module):
        weight: jax.Array
        critic: None = None

        def policy(self, obs):
            return categorical(self.weight * jnp.sum(obs["board"]) + obs["speed"] * jnp.arange(3.0))

        def value(self, obs):
            return jnp.sum(obs["board"]) - obs["speed"]

    space = fields({"board": box(0, 1, (2, 2)), "speed": box(0, 1, ())})
    spec = NetworkSpec(network_of(Summing(jnp.ones(3))), CUSTOM)
    net = spec.make(jax.random.key(0), space, Discrete(3))
    rng = np.random.default_rng(0)
    obs = {"board": rng.random((4, 5, 2, 2)), "speed": rng.random((4, 5))}
    obs = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), obs)
    distribution, value = net(obs)
    assert distribution.logits.shape == (4, 5, 3)
    np.testing.assert_allclose(value, obs["board"].sum((2, 3)) - obs["speed"], rtol=1e-5)
    one = jax.tree.map(lambda leaf: leaf[1, 2], obs)
    np.testing.assert_allclose(net.policy(one).logits, distribution.logits[1, 2], rtol=1e-5)
    np.testing.assert_allclose(net.value(one), value[1, 2], rtol=1e-5)


def test_equal_nets_are_equal_values():
    """A static part of a program that is equal compiles nothing anew."""
    same = [
        (
            NetworkSpec(NETWORK, MLPConfig(hidden=(8,))),
            NetworkSpec(NETWORK, MLPConfig(hidden=(8,))),
        ),
        (network_of(make_own), network_of(make_own)),
    ]
    module = make_own(jax.random.key(0), box(0, 1, (1,)), Discrete(2))
    same.append((network_of(module), network_of(module)))
    for one, other in same:
        assert one == other and hash(one) == hash(other)
    again = make_own(jax.random.key(0), box(0, 1, (1,)), Discrete(2))
    assert network_of(module) != network_of(again)
    assert same[0][0] != NetworkSpec(NETWORK, MLPConfig(hidden=(9,)))


def test_a_path_names_a_net(tmp_path, monkeypatch):
    (tmp_path / "own_nets.py").write_text(
        "from proxima.nets.actor_critic import NETWORK\ndef make(key, *spaces): ...\nNUMBER = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert network_at("own_nets:NETWORK") is NETWORK
    assert network_at("own_nets:make").make == network_of(sys.modules["own_nets"].make).make
    for path, words in {
        "own_nets:NUMBER": "network: 3 is no net; give a Network",
        "own_nets:nothing": "network.kind: own_nets has no object nothing",
        "no_such_nets:NETWORK": "network.kind: cannot import no_such_nets",
        "alone": "network.kind: 'alone' is not a dotted path",
    }.items():
        with pytest.raises(ProximaError, match=words):
            network_at(path)


class Wrong(NamedTuple):
    module: object
    words: str


class Half(eqx.Module):
    def policy(self, obs):
        return categorical(obs)


class Flat(eqx.Module):
    critic: None = None

    def policy(self, obs):
        return categorical(jnp.stack([obs, obs, obs]))

    def value(self, obs):
        return obs


class Several(Flat):
    def value(self, obs):
        return obs[0]


WRONG = {
    "no module": Wrong(3, "int is a class without policy and value and critic; a net is an eqx"),
    "half a net": Wrong(Half(), "Half is a class without value and critic"),
    "a value of one entry": Wrong(Flat(), r"one number, and Flat's has the shape \(2,\)"),
    "several actions": Wrong(
        Several(), r"the shape \(\), and those of Several's policy have \(3,\)"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_net_is_refused_in_words(name):
    spec = NetworkSpec(network_of(lambda key, *spaces: WRONG[name].module), CUSTOM)
    with pytest.raises(ProximaError, match=WRONG[name].words):
        spec.make(jax.random.key(0), box(0, 1, (2,)), Discrete(3))


def test_observations_that_a_net_takes_as_they_are_are_not_normalised():
    raw = NETWORK._replace(raw_observations=True)
    problem = problem_of(spaces_of(ACTION), ENVS, NetworkSpec(raw, MLPConfig()))
    check_network(problem, normalize_observations=False)
    with pytest.raises(ProximaError, match=r"algorithm.normalize_observations: the mlp net"):
        check_network(problem, normalize_observations=True)
