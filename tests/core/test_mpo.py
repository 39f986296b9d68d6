"""Losses and duals of MPO: each against a slow loop, and what gradient descent on the duals comes to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core import mpo
from proxima.core.distributions import MultiCategorical, Normal, TanhNormal, categorical

DRAW = np.random.default_rng(0)


def test_the_temperature_loss_is_that_of_a_slow_loop():
    advantage = DRAW.normal(size=(4, 6)).astype("f4")
    expected = [
        0.7 * (0.5 + np.log(sum(np.exp(a / 0.7) for a in row.astype("f8"))) - np.log(6))
        for row in advantage
    ]
    found = mpo.temperature_loss(jnp.asarray(advantage), jnp.float32(0.7), jnp.float32(0.5))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_temperature_loss_and_its_gradient_stay_finite():
    loss = jax.value_and_grad(
        lambda log_dual, advantage: jnp.mean(
            mpo.temperature_loss(advantage, mpo.dual(log_dual), jnp.float32(0.5))
        )
    )
    for size in (0.0, 1e-30, 1.0, 1e10, 1e30):
        advantage = jnp.asarray([[size, 0.0, -size]], jnp.float32)
        for log_dual in (mpo.LOWEST_LOG_DUAL, -100.0, 0.0, 50.0):
            value, gradient = loss(jnp.float32(log_dual), advantage)
            assert np.isfinite(value) and np.isfinite(gradient)


def test_at_the_best_temperature_the_weights_are_epsilon_away_from_the_prior():
    advantage = jnp.asarray(DRAW.normal(size=(1, 64)) * 5.0, jnp.float32)
    step = jax.jit(
        jax.grad(lambda x: mpo.temperature_loss(advantage, mpo.dual(x), jnp.float32(0.5))[0])
    )
    log_dual = jnp.float32(3.0)
    for _ in range(400):
        log_dual = log_dual - 1.0 * step(log_dual)
    weight = np.asarray(jax.nn.softmax(advantage[0] / mpo.dual(log_dual)), np.float64)
    assert np.sum(weight * np.log(weight * 64)) == pytest.approx(0.5, abs=0.01)


def test_alpha_rises_while_the_policy_is_too_far_and_falls_while_it_is_near():
    slope = jax.grad(lambda x, kl: mpo.alpha_loss(kl, mpo.dual(x), jnp.float32(1e-3)))
    assert slope(jnp.float32(3.0), jnp.float32(2e-3)) < 0.0  # descent raises it
    assert slope(jnp.float32(3.0), jnp.float32(5e-4)) > 0.0
    assert jax.grad(lambda kl: mpo.alpha_loss(kl, jnp.float32(2.0), jnp.float32(1e-3)))(0.5) == 0.0


def test_duals_are_positive_at_their_lowest():
    assert 0.0 < mpo.dual(jnp.float32(-1e9)) == mpo.dual(jnp.float32(mpo.LOWEST_LOG_DUAL))
    np.testing.assert_allclose(mpo.dual(jnp.float32(3.0)), np.log1p(np.exp(3.0)), rtol=1e-6)


def test_the_cross_entropy_is_that_of_a_slow_loop():
    log_prob = jnp.asarray(DRAW.normal(size=(3, 5)), jnp.float32)
    weight = jax.nn.softmax(jnp.asarray(DRAW.normal(size=(3, 5)), jnp.float32))
    expected = [
        -sum(w * p for w, p in zip(*rows, strict=True))
        for rows in zip(weight, log_prob, strict=True)
    ]
    np.testing.assert_allclose(mpo.weighted_cross_entropy(log_prob, weight), expected, rtol=1e-5)
    impossible = mpo.weighted_cross_entropy(jnp.asarray([-jnp.inf, -1.0]), jnp.asarray([0.0, 1.0]))
    assert impossible == 1.0


def test_the_divergence_of_masked_choices_is_over_valid_ones():
    old, new = DRAW.normal(size=(2, 7, 5)).astype("f4")
    mask = np.array(DRAW.uniform(size=(7, 5)) < 0.6)
    mask[:, 2], mask[0] = True, np.eye(5, dtype=bool)[2]  # in the first row one action is left
    first, second = (categorical(jnp.asarray(logits), jnp.asarray(mask)) for logits in (old, new))
    expected = []
    for k in range(7):
        p, q = (np.exp(logits[k][mask[k]].astype("f8")) for logits in (old, new))
        p, q = p / p.sum(), q / q.sum()
        expected.append(sum(p * np.log(p / q)))
    found = mpo.kl(first, second)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert found[0] == 0.0
    parts = mpo.kl(MultiCategorical(first.logits), MultiCategorical(second.logits))
    np.testing.assert_allclose(parts, np.sum(expected), rtol=1e-4)


def test_masked_logits_have_no_gradient():
    raw = jnp.asarray(DRAW.normal(size=(6, 5)), jnp.float32)
    mask = jnp.asarray(DRAW.uniform(size=(6, 5)) < 0.5).at[:, 1].set(True)
    old = categorical(jnp.asarray(DRAW.normal(size=(6, 5)), jnp.float32), mask)

    def loss(raw):
        new = categorical(raw, mask)
        log_prob = new.log_prob(jnp.ones(6, jnp.int32))
        return jnp.sum(
            mpo.kl(old, new) + mpo.weighted_cross_entropy(log_prob[:, None], jnp.ones((6, 1)))
        )

    gradient = np.asarray(jax.grad(loss)(raw))
    assert np.all(gradient[~np.asarray(mask)] == 0.0)
    assert np.all(np.isfinite(gradient)) and np.any(gradient[np.asarray(mask)] != 0.0)


def test_the_divergence_of_normals_is_the_mean_log_ratio_of_samples():
    parameters = jnp.asarray(DRAW.normal(size=(4, 2)) * 0.5, jnp.float32)
    noise = jax.random.normal(jax.random.key(0), (200_000, 2))
    low, high = -jnp.ones(2), 3.0 * jnp.ones(2)
    kinds = (
        lambda mean, log_std: Normal(mean, log_std),
        lambda mean, log_std: TanhNormal(mean, log_std, low, high),
    )
    for kind in kinds:
        old, new = kind(*parameters[:2]), kind(*parameters[2:])
        spread = [
            type(each)(*(jnp.broadcast_to(leaf, noise.shape) for leaf in each))
            for each in (old, new)
        ]
        sample = spread[0].sample(noise)
        ratio = float(jnp.mean(spread[0].log_prob(sample) - spread[1].log_prob(sample)))
        assert mpo.kl(old, new) == pytest.approx(ratio, rel=0.03)
        assert mpo.kl(old, old) == pytest.approx(0.0, abs=1e-6)
