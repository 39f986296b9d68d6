"""Masked means against NumPy on what is left; nothing left is 0, and what is left out may be no number."""

import jax
import jax.numpy as jnp
import numpy as np

from proxima.core.parallel import masked_mean, shares, standardize

VALUES = np.asarray([[1.0, np.nan, 4.0], [np.inf, -2.0, 7.0]], np.float32)
MASK = np.isfinite(VALUES)


def test_a_masked_mean_is_that_of_what_is_left():
    assert masked_mean(jnp.asarray(VALUES), jnp.asarray(MASK)) == VALUES[MASK].mean()
    rows = masked_mean(jnp.asarray(VALUES).T, jnp.asarray([True, False, True]))
    np.testing.assert_allclose(rows, VALUES[:, ::2].mean(1))
    assert masked_mean(jnp.asarray(VALUES), jnp.zeros((2, 3), bool)) == 0.0


def test_nothing_flows_back_to_what_is_left_out():
    slope = jax.grad(lambda x: masked_mean(x, jnp.asarray(MASK)))(jnp.asarray(VALUES))
    np.testing.assert_allclose(slope, MASK / MASK.sum())
    empty = jax.grad(lambda x: masked_mean(x, jnp.zeros((2, 3), bool)))(jnp.asarray(VALUES))
    np.testing.assert_array_equal(empty, 0.0)


def test_shares_add_up_to_1_or_are_0():
    found = shares(jnp.asarray([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_array_equal(found, [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]])


def test_standardised_values_have_mean_0_and_deviation_1_where_there_are_any():
    weight = jnp.asarray(MASK, jnp.float32)
    found = np.asarray(standardize(jnp.asarray(VALUES), weight))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0, [0, 2]], [-1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(found[1, 1:], [-1.0, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(standardize(jnp.asarray(VALUES), jnp.zeros((2, 3))), 0.0)
