"""Distributions against SciPy and numerical integration; masks keep their promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from proxima.core.distributions import MultiCategorical, Normal, TanhNormal, categorical


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


BOUNDS = jnp.asarray([-2.0]), jnp.asarray([3.0])


def tanh_normal(mean, log_std):
    return TanhNormal(jnp.reshape(mean, 1), jnp.reshape(log_std, 1), *BOUNDS)


def squashed_density(action, mean, deviation):
    """log p(action) of the tanh-normal on BOUNDS, by SciPy in float64."""
    unit = 2.0 * (action + 2.0) / 5.0 - 1.0
    volume = np.log1p(-(unit**2)) + np.log(2.5)
    return stats.norm.logpdf(np.arctanh(unit), mean, deviation) - volume


@pytest.mark.parametrize("mean, deviation", [(0.4, 0.6), (-1.0, 2.0), (3.0, 0.5)])
def test_tanh_normal_is_the_squashed_density(mean, deviation):
    distribution = tanh_normal(mean, np.log(deviation))
    actions = np.linspace(-1.99, 2.99, 41)
    raw = jnp.arctanh(2.0 * (actions + 2.0) / 5.0 - 1.0).astype(jnp.float32)[:, None]
    found = jax.vmap(distribution.log_prob)(raw)
    np.testing.assert_allclose(found, squashed_density(actions, mean, deviation), rtol=1e-4)
    np.testing.assert_allclose(jax.vmap(distribution.to_action)(raw)[:, 0], actions, atol=1e-5)
    assert distribution.to_action(distribution.mode()) == pytest.approx(
        -2.0 + 2.5 * (np.tanh(mean) + 1.0), rel=1e-5
    )


@pytest.mark.parametrize("raw", [-40.0, -12.0, -9.0, 0.0, 8.0, 15.0, 80.0])
def test_tanh_normal_is_exact_where_the_action_is_rounded_to_its_bound(raw):
    mean, log_std = 7.0, 0.5

    def slow(mean, log_std):
        z = (raw - mean) * np.exp(-log_std)
        cosh = np.logaddexp(raw, -raw) - np.log(2.0)
        return -0.5 * z * z - log_std - 0.5 * np.log(2 * np.pi) - np.log(2.5) + 2.0 * cosh

    def found(mean, log_std):
        return tanh_normal(mean, log_std).log_prob(jnp.asarray([raw]))

    assert found(mean, log_std) == pytest.approx(slow(mean, log_std), rel=2e-6)
    slopes = jax.grad(found, (0, 1))(mean, log_std)
    step = 1e-4
    by_mean = (slow(mean + step, log_std) - slow(mean - step, log_std)) / (2 * step)
    by_log_std = (slow(mean, log_std + step) - slow(mean, log_std - step)) / (2 * step)
    np.testing.assert_allclose(slopes, [by_mean, by_log_std], rtol=1e-4)
    assert np.isfinite(tanh_normal(mean, log_std).to_action(jnp.asarray([raw]))).all()


@pytest.mark.parametrize("mean", [0.0, 9.0])
def test_the_gradient_of_tanh_normals_log_probability_is_0_on_average(mean):
    noise = jax.random.normal(jax.random.key(0), (100_000, 1))
    raw = jax.vmap(tanh_normal(mean, 0.0).sample)(noise)

    def mean_log_prob(mean, log_std):
        return jnp.mean(jax.vmap(tanh_normal(mean, log_std).log_prob)(raw))

    np.testing.assert_allclose(jax.grad(mean_log_prob, (0, 1))(mean, 0.0), 0.0, atol=0.015)


@pytest.mark.parametrize("deviation", [0.02, 0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("mean", [0.0, 0.7, -3.0, 9.0])
def test_tanh_normals_entropy_and_its_slopes_are_those_of_quadrature(mean, deviation):
    z = np.linspace(-12.0, 12.0, 20_001)
    weight = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    raw = mean + deviation * z
    log_cosh = np.logaddexp(raw, -raw) - np.log(2.0)
    normal = 0.5 * np.log(2 * np.pi * np.e) + np.log(deviation)
    entropy = normal + np.log(2.5) - 2.0 * weight @ log_cosh
    by_mean = -2.0 * weight @ np.tanh(raw)
    by_log_std = 1.0 - 2.0 * deviation**2 * weight @ (1.0 - np.tanh(raw) ** 2)

    def found(mean, log_std):
        return tanh_normal(mean, log_std).entropy()

    at = mean, np.log(deviation)
    assert found(*at) == pytest.approx(entropy, rel=1e-6, abs=1e-5)
    np.testing.assert_allclose(jax.grad(found, (0, 1))(*at), [by_mean, by_log_std], atol=1e-5)


def test_tanh_normals_actions_stay_within_bounds_that_rounding_would_leave():
    low, high = np.random.default_rng(0).normal(size=(2, 1_000)).astype(np.float32)
    low, high = np.minimum(low, high), np.maximum(low, high)
    distribution = TanhNormal(
        jnp.zeros(1_000), jnp.zeros(1_000), jnp.asarray(low), jnp.asarray(high)
    )
    for raw in (-50.0, 50.0):
        action = distribution.to_action(jnp.full(1_000, raw))
        assert (action >= low).all() and (action <= high).all()


def test_only_the_squashed_normal_changes_a_sample_on_its_way_to_the_environment():
    for distribution, raw in (
        (categorical(jnp.zeros(3)), jnp.asarray(2)),
        (MultiCategorical(*categorical(jnp.zeros((2, 3)))), jnp.asarray([2, 0])),
        (Normal(jnp.zeros(1), jnp.zeros(1)), jnp.asarray([9.0])),
    ):
        np.testing.assert_array_equal(distribution.to_action(raw), raw)


def test_a_sample_comes_with_its_log_prob_however_small_the_deviation():
    normal = jnp.asarray([[0.7, -1.3], [0.1, 2.0]])
    mean, (log_std, low, high) = jnp.asarray([[0.3, -2.0], [0.0, 1.0]]), (-0.5, -1.0, 3.0)
    policy = TanhNormal(mean, *(jnp.full((2, 2), number) for number in (log_std, low, high)))
    raw, log_prob = policy.sample_and_log_prob(normal)
    np.testing.assert_array_equal(raw, policy.sample(normal))
    np.testing.assert_allclose(log_prob, policy.log_prob(raw), rtol=1e-5)

    def slope(mean, log_std):
        narrow = policy._replace(mean=jnp.full((2, 2), mean), log_std=jnp.full((2, 2), log_std))
        return jnp.sum(narrow.sample_and_log_prob(normal)[1])

    found = jax.grad(slope)(0.4, -15.0)  # where `log_prob` of the rounded sample has lost it
    assert float(found) == pytest.approx(4 * 2 * np.tanh(0.4), rel=1e-5)  # of 2 log cosh
