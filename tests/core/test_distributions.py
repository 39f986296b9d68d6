"""Distributions against SciPy and numerical integration; masks keep their promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from proxima.core.distributions import Normal, TanhNormal, categorical


def test_categorical_log_prob_and_entropy():
    logits = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    distribution = categorical(jnp.asarray(logits))
    for action in range(4):
        found = distribution.log_prob(jnp.full(5, action))
        np.testing.assert_allclose(found, np.log(probabilities[:, action]), rtol=1e-5)
    np.testing.assert_allclose(distribution.entropy(), stats.entropy(probabilities.T), rtol=1e-5)
    np.testing.assert_array_equal(distribution.mode(), probabilities.argmax(-1))


def test_categorical_samples_have_the_right_frequencies():
    distribution = categorical(jnp.log(jnp.asarray([0.1, 0.2, 0.7])))
    noise = jax.random.gumbel(jax.random.key(0), (100_000, 3))
    sample = jax.vmap(distribution.sample)(noise)
    np.testing.assert_allclose(np.bincount(sample) / 100_000, [0.1, 0.2, 0.7], atol=0.01)


def test_masked_actions_are_never_drawn_in_a_million():
    key_logits, key_mask, key_noise = jax.random.split(jax.random.key(0), 3)
    logits = 5 * jax.random.normal(key_logits, (1_000, 6))
    mask = jax.random.bernoulli(key_mask, 0.4, (1_000, 6)).at[:, 0].set(True)
    distribution = categorical(logits, mask)
    noise = jax.random.gumbel(key_noise, (1_000, 1_000, 6))
    drawn = jax.jit(jax.vmap(distribution.sample))(noise)
    assert jnp.take_along_axis(mask, drawn.T, axis=1).all()
    assert jnp.take_along_axis(mask, distribution.mode()[:, None], axis=1).all()


def test_masked_logits_get_no_gradient_and_no_entropy():
    mask = jnp.asarray([True, False, True, False])

    def loss(logits):
        distribution = categorical(logits, mask)
        return distribution.log_prob(jnp.asarray(2)) + distribution.entropy()

    logits = jnp.asarray([0.3, 9.0, -1.0, -80.0])
    slope = jax.grad(loss)(logits)
    assert jnp.isfinite(slope).all()
    assert (slope[~mask] == 0).all() and (slope[mask] != 0).all()
    alone = categorical(jnp.asarray([0.3, -1.0]))
    assert categorical(logits, mask).entropy() == pytest.approx(float(alone.entropy()), rel=1e-6)
    assert categorical(logits, mask).log_prob(jnp.asarray(1)) == -jnp.inf


def test_a_single_valid_action_is_certain():
    distribution = categorical(jnp.asarray([5.0, -3.0, 2.0]), jnp.asarray([False, True, False]))
    assert distribution.mode() == 1
    assert distribution.log_prob(jnp.asarray(1)) == 0.0
    assert distribution.entropy() == 0.0
    slope = jax.grad(lambda x: categorical(x, jnp.asarray([False, True, False])).entropy())(
        jnp.ones(3)
    )
    assert (slope == 0).all()


def test_normal_is_scipys():
    mean, log_std = jnp.asarray([[0.5, -1.0]]), jnp.asarray([[0.2, -0.7]])
    distribution, action = Normal(mean, log_std), jnp.asarray([[0.1, 0.3]])
    frozen = stats.norm(np.asarray(mean[0]), np.exp(np.asarray(log_std[0])))
    assert distribution.log_prob(action)[0] == pytest.approx(
        frozen.logpdf(action[0]).sum(), rel=1e-5
    )
    assert distribution.entropy()[0] == pytest.approx(frozen.entropy().sum(), rel=1e-5)
    noise = jax.random.normal(jax.random.key(0), (50_000, 1, 2))
    sample = np.asarray(jax.vmap(distribution.sample)(noise))
    np.testing.assert_allclose(sample.std(0)[0], np.exp(log_std[0]), rtol=0.02)


def test_tanh_normal_integrates_to_one_and_stays_inside():
    low, high = jnp.asarray([-2.0]), jnp.asarray([3.0])
    distribution = TanhNormal(jnp.asarray([0.4]), jnp.asarray([-0.5]), low, high)

    def density(action):
        return float(jnp.exp(distribution.log_prob(jnp.asarray([action]))))

    area, _ = integrate.quad(density, -2 + 1e-4, 3 - 1e-4, limit=100, epsabs=1e-3, epsrel=1e-3)
    assert area == pytest.approx(1.0, abs=5e-3)
    sample = jax.vmap(distribution.sample)(jax.random.normal(jax.random.key(0), (10_000, 1)))
    assert (sample >= -2.0).all() and (sample <= 3.0).all()
    assert jnp.isfinite(jax.vmap(distribution.log_prob)(sample)).all()
    slope = jax.grad(lambda mean: TanhNormal(mean, jnp.zeros(1), low, high).log_prob(high))(
        jnp.ones(1)
    )
    assert jnp.isfinite(slope).all()
