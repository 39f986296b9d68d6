"""The net for packing: what is masked changes nothing, the order of tokens does not matter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.core.spaces import ACTION_MASK, Discrete, box, fields, mask_space
from proxima.domains.packing.attention import (
    NETWORK,
    AttentionConfig,
    PackingActorCritic,
    attend,
    packing_actor_critic,
)

ITEMS, SPACES, BATCH = 5, 7, 6
ACTIONS = Discrete(SPACES * ITEMS)
SPACE = fields(
    {
        ACTION_MASK: mask_space(ACTIONS),
        "ems": box(0, 1, (SPACES, 6)),
        "ems_mask": box(0, 1, (SPACES,), "bool"),
        "items": box(0, 1, (ITEMS, 3)),
        "items_mask": box(0, 1, (ITEMS,), "bool"),
        "items_placed": box(0, 1, (ITEMS,), "bool"),
    }
)


@pytest.fixture(scope="module")
def net() -> PackingActorCritic:
    return packing_actor_critic(jax.random.key(0), AttentionConfig(width=16), SPACE, ACTIONS)


@pytest.fixture(scope="module")
def obs() -> dict:
    rng = np.random.default_rng(0)
    ems_mask = rng.random((BATCH, SPACES)) < 0.6
    items_mask = rng.random((BATCH, ITEMS)) < 0.8
    placed = items_mask & (rng.random((BATCH, ITEMS)) < 0.3)
    mask = ems_mask[:, :, None] & (items_mask & ~placed)[:, None, :]
    mask &= rng.random(mask.shape) < 0.7
    mask[0] = False  # the end of an episode: nothing fits
    ems_mask[1] = False  # and no space is left
    mask[1] = False
    mask[2] = False
    mask[2, 3, 1] = True  # a single action is left
    return {
        ACTION_MASK: mask.reshape(BATCH, -1),
        "ems": rng.random((BATCH, SPACES, 6), np.float32),
        "ems_mask": ems_mask,
        "items": rng.random((BATCH, ITEMS, 3), np.float32),
        "items_mask": items_mask,
        "items_placed": placed,
    }


def test_outputs_are_finite_and_masked(net, obs):
    distribution, value = net(obs)
    assert value.shape == (BATCH,)
    assert jnp.isfinite(value).all()
    np.testing.assert_array_equal(jnp.isfinite(distribution.logits), obs[ACTION_MASK])
    assert distribution.mode()[2] == 3 * ITEMS + 1
    assert distribution.entropy()[2] == 0
    np.testing.assert_allclose(net.policy(obs).logits, distribution.logits)
    np.testing.assert_allclose(net.value(obs), value)


def test_what_is_masked_changes_nothing(net, obs):
    distribution, value = net(obs)
    gone = ~obs["items_mask"] | obs["items_placed"]
    other = obs | {
        "ems": np.where(obs["ems_mask"][..., None], obs["ems"], 0.123),
        "items": np.where(gone[..., None], 0.987, obs["items"]),
    }
    changed, changed_value = net(other)
    np.testing.assert_allclose(changed.logits, distribution.logits, atol=1e-6)
    np.testing.assert_allclose(changed_value, value, atol=1e-6)


def test_the_order_of_items_and_spaces_does_not_matter(net, obs):
    rng = np.random.default_rng(1)
    items, spaces = rng.permutation(ITEMS), rng.permutation(SPACES)
    pairs = obs[ACTION_MASK].reshape(BATCH, SPACES, ITEMS)
    shuffled = {
        name: each[:, spaces if name.startswith("ems") else items]
        for name, each in obs.items()
        if name != ACTION_MASK
    }
    shuffled[ACTION_MASK] = pairs[:, spaces][:, :, items].reshape(BATCH, -1)
    distribution, value = net(obs)
    moved, moved_value = net(shuffled)
    logits = distribution.logits.reshape(BATCH, SPACES, ITEMS)[:, spaces][:, :, items]
    np.testing.assert_allclose(moved.logits, logits.reshape(BATCH, -1), atol=1e-5)
    np.testing.assert_allclose(moved_value, value, atol=1e-5)


def test_gradients_are_finite_and_none_flows_from_masked_actions(net, obs):
    def loss(net):
        distribution, value = net(obs)
        chosen = distribution.log_prob(distribution.mode())
        valid = obs[ACTION_MASK].any(axis=1)
        return jnp.sum(jnp.where(valid, chosen + distribution.entropy(), 0.0)) + jnp.sum(value)

    gradients = jax.tree.leaves(jax.jit(jax.grad(loss))(net))
    assert all(jnp.isfinite(each).all() for each in gradients)
    assert any(jnp.abs(each).max() > 0 for each in gradients)

    def single(net):  # one action: whatever its logit, its probability is 1
        return net.policy(jax.tree.map(lambda leaf: leaf[2:3], obs)).log_prob(
            jnp.array([3 * ITEMS + 1])
        )[0]

    assert all(jnp.all(each == 0) for each in jax.tree.leaves(jax.jit(jax.grad(single))(net)))


def test_any_leading_axes(net, obs):
    stacked = jax.tree.map(lambda leaf: np.stack([leaf, leaf[::-1]]), obs)
    np.testing.assert_allclose(net.value(stacked)[0], net.value(obs), atol=1e-5)
    assert net.policy(stacked).logits.shape == (2, BATCH, ACTIONS.n)


def test_attention_equals_a_slow_loop():
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((n, 4)) for n in (3, 5, 5))
    mask = rng.random((3, 5)) < 0.5
    mask[1] = False
    expected = np.zeros((3, 4))
    for i in range(3):
        weights = np.array([np.exp(query[i] @ key[j] / 2) * mask[i, j] for j in range(5)])
        if weights.sum():
            expected[i] = weights @ value / weights.sum()
    ours = attend(*(jnp.asarray(each, jnp.float32) for each in (query, key, value)), mask)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_the_net_fits_the_fields_of_a_packing_and_no_others():
    config = AttentionConfig()
    NETWORK.check_spaces(config, SPACE, ACTIONS, "BinPack-v2")
    fewer = fields({name: space for name, space in SPACE.items() if name != "ems"})
    with pytest.raises(ProximaError, match=r"network.kind: attention needs .* it has action_mask"):
        NETWORK.check_spaces(config, fewer, ACTIONS, "Other-v0")
    with pytest.raises(ProximaError, match=r"it is one array; use mlp"):
        NETWORK.check_spaces(config, box(0, 1, (3,)), ACTIONS, "CartPole-v1")
