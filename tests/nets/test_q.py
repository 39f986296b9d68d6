"""Q of every action: layers, norms and heads neuron by neuron, and masks in every choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import problem_of, spec

from proxima.core.errors import ProximaError
from proxima.core.network import NetworkSpec
from proxima.core.spaces import Discrete, MultiDiscrete, box, fields, mask_space
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.network import CustomConfig, network_of
from proxima.nets.q import (
    check_q,
    epsilon_greedy,
    greedy,
    largest,
    of_action,
    q_net,
    random_valid,
)

OBS, ACTIONS = box(-1.0, 1.0, (3,)), Discrete(4)
CONFIG = MLPConfig(hidden=(5, 6), activation="relu")


def slow_q(net, x):
    """Q of one observation, neuron by neuron."""
    x = np.asarray(x, np.float64)
    for depth, layer in enumerate(net.layers):
        x = x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)
        if net.norms is not None:
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-6)
            x = x * np.asarray(net.norms[depth].scale) + np.asarray(net.norms[depth].shift)
        x = np.maximum(x, 0.0)
    q = x @ np.asarray(net.head.advantage.weight) + np.asarray(net.head.advantage.bias)
    if net.head.value is not None:
        value = x @ np.asarray(net.head.value.weight) + np.asarray(net.head.value.bias)
        q = value + q - q.mean()
    return q


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_q_is_that_of_a_slow_loop(dueling, layer_norm):
    key = jax.random.key(0)
    net = q_net(key, CONFIG, (OBS, ACTIONS), dueling=dueling, layer_norm=layer_norm)
    keys = iter(jax.random.split(jax.random.key(1), 20))
    net = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(next(keys), leaf.shape), net)
    obs = jax.random.normal(jax.random.key(2), (2, 7, 3))
    found = net(obs)
    assert found.shape == (2, 7, 4)
    expected = [[slow_q(net, row) for row in part] for part in np.asarray(obs)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


Q = jnp.asarray([[1.0, 5.0, 3.0], [9.0, -2.0, -3.0], [0.0, 0.0, 0.0], [4.0, 4.0, 1.0]])
MASK = jnp.asarray([[1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 1]], bool)
MASKED = {"action_mask": MASK}


def test_masked_actions_are_neither_chosen_nor_counted():
    np.testing.assert_array_equal(greedy(Q, Q), [1, 0, 0, 0])
    np.testing.assert_array_equal(greedy(Q, MASKED)[jnp.asarray([0, 1, 3])], [2, 1, 0])
    np.testing.assert_array_equal(largest(Q, Q), [5, 9, 0, 4])
    np.testing.assert_array_equal(largest(Q, MASKED), [3, -2, 0, 4])  # 0 where none is valid
    np.testing.assert_array_equal(of_action(Q, jnp.asarray([2, 0, 1, 2])), [3, 9, 0, 1])


def test_random_actions_are_valid_and_equally_likely():
    uniform = jnp.linspace(0.0, 1.0, 6_000, endpoint=False)
    spread = {"action_mask": jnp.broadcast_to(MASK[1], (6_000, 3))}
    found = np.bincount(random_valid(uniform, 3, spread), minlength=3)
    np.testing.assert_allclose(found, [0, 3_000, 3_000], atol=1)
    free = np.bincount(random_valid(uniform, 3, jnp.zeros((6_000, 1))), minlength=3)
    np.testing.assert_allclose(free, 2_000, atol=1)
    almost = jnp.full(1, np.nextafter(np.float32(1), np.float32(0)))
    assert random_valid(almost, 3, {"action_mask": MASK[:1]}) == 2


def test_epsilon_is_the_share_of_random_actions():
    uniforms = jax.random.uniform(jax.random.key(0), (20_000, 2))
    q = jnp.broadcast_to(Q[1], (20_000, 3))
    obs = {"action_mask": jnp.broadcast_to(MASK[1], q.shape)}
    found = np.bincount(epsilon_greedy(uniforms, jnp.float32(0.3), q, obs), minlength=3) / 20_000
    np.testing.assert_allclose(found, [0.0, 0.85, 0.15], atol=0.01)
    never = epsilon_greedy(uniforms, jnp.float32(0.0), q, obs)
    always = np.bincount(epsilon_greedy(uniforms, jnp.float32(1.0), q, obs), minlength=3) / 20_000
    assert np.all(never == 1)
    np.testing.assert_allclose(always, [0.0, 0.5, 0.5], atol=0.01)


def test_what_has_no_q_of_every_action_is_refused_in_words():
    assert check_q(problem_of((OBS, ACTIONS), 1, CONFIG), "dqn", False) == (ACTIONS, CONFIG)
    with pytest.raises(ProximaError, match=r"algorithm\.name: dqn needs one choice .*continuous"):
        check_q(problem_of((OBS, OBS), 1), "dqn", False)
    with pytest.raises(ProximaError, match=r"algorithm\.name: pqn .*several choices at once; use"):
        check_q(problem_of((OBS, MultiDiscrete(3, 2)), 1), "pqn", False)
    shared = MLPConfig(shared_trunk=True)
    with pytest.raises(ProximaError, match=r"network\.shared_trunk: dqn .*set it to false"):
        check_q(problem_of((OBS, ACTIONS), 1, shared), "dqn", False)
    with pytest.raises(ProximaError, match=r"network\.distribution: .*leave it at auto"):
        check_q(problem_of((OBS, ACTIONS), 1, MLPConfig(distribution="categorical")), "dqn", False)
    other = NetworkSpec(network_of(lambda key, *spaces: None), CustomConfig(kind="mine:net"))
    with pytest.raises(ProximaError, match=r"network\.kind: .*not a mine:net net; set it to mlp"):
        check_q(problem_of((OBS, ACTIONS), 1, other), "dqn", False)
    blind = fields({"action_mask": mask_space(ACTIONS)})
    with pytest.raises(ProximaError, match="nothing but an action mask"):
        check_q(problem_of((blind, ACTIONS), 1, spec(CONFIG)), "dqn", False)
