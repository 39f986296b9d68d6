"""The running normaliser equals NumPy over everything it saw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.normalize import CLIP, add_samples, first_moments, normalize


def test_moments_of_batches_are_the_moments_of_all():
    random = np.random.default_rng(0)
    seen, moments = [], first_moments(jnp.zeros(3))
    for size in (1, 5, 40):
        batch = random.normal(2.0, 3.0, (size, 4, 3)).astype(np.float32)
        mask = random.random((size, 4)) < 0.7
        moments = add_samples(moments, jnp.asarray(batch), jnp.asarray(mask))
        seen.append(batch[mask])
    everything = np.concatenate(seen)
    assert moments.number == len(everything)
    np.testing.assert_allclose(moments.mean, everything.mean(0), rtol=1e-4)
    np.testing.assert_allclose(moments.variance, everything.var(0), rtol=1e-4)


def test_normalising_before_anything_was_seen_changes_nothing():
    sample = jnp.asarray([1.0, -2.0])
    np.testing.assert_allclose(normalize(first_moments(sample), sample), sample, rtol=1e-6)


def test_an_empty_batch_changes_nothing():
    moments = add_samples(first_moments(jnp.zeros(2)), jnp.ones((3, 2)), jnp.zeros(3, bool))
    np.testing.assert_array_equal(moments.mean, [0.0, 0.0])
    np.testing.assert_array_equal(moments.variance, [1.0, 1.0])


def test_normalised_samples_have_mean_0_deviation_1_and_a_limit():
    samples = jnp.asarray(
        np.random.default_rng(0).normal(5.0, 0.01, (10_000, 2)).astype(np.float32)
    )
    moments = add_samples(first_moments(jnp.zeros(2)), samples, jnp.ones(10_000, bool))
    found = normalize(moments, samples)
    np.testing.assert_allclose(found.mean(0), 0.0, atol=1e-2)
    np.testing.assert_allclose(found.std(0), 1.0, atol=2e-2)
    assert normalize(moments, jnp.full(2, 1e9)).max() == CLIP


def test_structured_samples():
    sample = {"a": jnp.zeros(2), "b": jnp.zeros(())}
    batch = {"a": jnp.arange(8.0).reshape(4, 2), "b": jnp.arange(4.0)}
    moments = add_samples(first_moments(sample), batch, jnp.ones(4, bool))
    np.testing.assert_allclose(moments.mean["a"], [3.0, 4.0])
    np.testing.assert_allclose(moments.variance["b"], 1.25)


@pytest.mark.parametrize("offset, deviation", [(1e5, 1.0), (-3e6, 1.0), (2e4, 1e-2), (0.0, 1.0)])
def test_far_from_0_the_moments_are_still_those_of_float64(offset, deviation):
    random = np.random.default_rng(0)
    batches = [
        (offset + deviation * random.normal(random.normal(), 1.0, (16, 8, 2))).astype(np.float32)
        for _ in range(40)
    ]
    moments = first_moments(jnp.zeros(2))
    update = jax.jit(add_samples)
    for batch in batches:
        moments = update(moments, jnp.asarray(batch), jnp.ones((16, 8), bool))
    everything = np.concatenate(batches).reshape(-1, 2).astype(np.float64)
    mean = np.asarray(moments.mean, np.float64) + np.asarray(moments.rest, np.float64)
    spread = everything.std(0)
    np.testing.assert_allclose((mean - everything.mean(0)) / spread, 0.0, atol=1e-5)
    np.testing.assert_allclose(moments.variance, spread**2, rtol=1e-4)
    found = normalize(moments, jnp.asarray(batches[-1]))
    expected = (batches[-1].astype(np.float64) - everything.mean(0)) / spread
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_constant_far_from_0_is_normalised_to_0():
    moments, samples = first_moments(jnp.zeros(1)), jnp.full((1_000, 1), 1e9 / 3)
    for _ in range(3):
        moments = add_samples(moments, samples, jnp.ones(1_000, bool))
    assert moments.variance >= 0
    np.testing.assert_allclose(normalize(moments, samples), 0.0, atol=1e-3)


def test_what_is_masked_out_may_be_no_number():
    samples = jnp.asarray([[1.0], [jnp.nan], [3.0], [jnp.inf]])
    mask = jnp.asarray([True, False, True, False])
    moments = add_samples(first_moments(jnp.zeros(1)), samples, mask)
    assert moments.number == 2 and moments.mean == 2.0 and moments.variance == 1.0
