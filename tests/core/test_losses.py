"""Losses against slow loops; each is one number per element."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.losses import (
    approximate_kl,
    clip_surrogate,
    clipped_value_error,
    explained_variance,
    value_error,
)


def test_clip_surrogate_is_the_papers_minimum():
    random = np.random.default_rng(0)
    log_prob, old, advantage = random.normal(size=(3, 200)).astype(np.float32)
    found = clip_surrogate(jnp.asarray(log_prob), jnp.asarray(old), jnp.asarray(advantage), 0.2)
    for each, new, before, gain in zip(found, log_prob, old, advantage, strict=True):
        ratio = np.exp(new - before)
        expected = -min(ratio * gain, min(max(ratio, 0.8), 1.2) * gain)
        assert each == pytest.approx(expected, rel=1e-4)
    assert found.shape == (200,)


@pytest.mark.parametrize(
    "ratio, advantage, moves",
    [(1.5, 1.0, False), (0.5, -1.0, False), (1.5, -1.0, True), (0.5, 1.0, True), (1.1, 1.0, True)],
)
def test_the_gradient_is_cut_only_where_moving_on_would_overshoot(ratio, advantage, moves):
    slope = jax.grad(lambda new: clip_surrogate(new, 0.0, advantage, 0.2))(jnp.log(ratio))
    assert (slope != 0) == moves


def test_value_errors():
    value, old, target = jnp.asarray([1.0, 1.0]), jnp.asarray([0.0, 0.9]), jnp.asarray([1.0, 3.0])
    np.testing.assert_allclose(value_error(value, target), [0.0, 4.0])
    # the first moved 1 from its old value: held at 0.2 it is 0.8 off, and the larger error counts
    np.testing.assert_allclose(clipped_value_error(value, old, target, 0.2), [0.64, 4.0], rtol=1e-6)


def test_approximate_kl_estimates_the_kl_and_is_never_negative():
    old, new = np.array([0.2, 0.3, 0.5]), np.array([0.25, 0.35, 0.4])
    exact = np.sum(old * np.log(old / new))
    sample = np.random.default_rng(0).choice(3, 100_000, p=old)
    found = approximate_kl(jnp.log(new)[sample], jnp.log(old)[sample])
    assert (found >= 0).all()
    assert float(found.mean()) == pytest.approx(exact, rel=0.05)


def test_explained_variance():
    target = jnp.asarray([1.0, 2.0, 3.0, 100.0])
    mask = jnp.asarray([True, True, True, False])
    assert explained_variance(target, target, mask) == pytest.approx(1.0)
    assert explained_variance(jnp.full(4, 2.0), target, mask) == pytest.approx(0.0)
    assert explained_variance(-target, target, mask) < 0


def test_explained_variance_counts_real_rows_alone():
    mask, target = jnp.asarray([True, True, False]), jnp.asarray([1.0, 3.0, jnp.nan])
    assert explained_variance(jnp.asarray([1.0, 3.0, jnp.inf]), target, mask) == 1.0
    assert explained_variance(target, target, jnp.zeros(3, bool)) == 0.0
