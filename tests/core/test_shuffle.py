"""The affine shuffle is a permutation that keeps no neighbours together."""

import jax
import numpy as np
import pytest

from proxima.core.shuffle import multipliers, permutations


def permutation(key, count):
    return permutations(key, 3, count)[1]


@pytest.mark.parametrize("count", [1, 2, 6, 64, 100, 512, 1000, 8192, 30_030, 131_072])
def test_every_index_once(count):
    for seed in range(5):
        found = np.asarray(permutation(jax.random.key(seed), count))
        assert np.array_equal(np.sort(found), np.arange(count))


@pytest.mark.parametrize("count", [512, 8192, 30_030])
def test_the_multipliers_are_coprime_and_the_products_fit(count):
    choices = multipliers(count)
    assert len(choices) > 50
    assert all(np.gcd(choice, count) == 1 and choice * (count - 1) < 2**32 for choice in choices)


def test_neighbours_are_torn_apart_and_positions_are_uniform():
    count, quarter = 512, 128
    places = np.stack([np.asarray(permutation(jax.random.key(seed), count)) for seed in range(300)])
    assert (np.abs(np.diff(places, axis=1)) == 1).mean() < 0.02
    # how often index 0 lands in each quarter: the minibatch it would belong to
    landed = np.argmax(places == 0, axis=1) // quarter
    np.testing.assert_allclose(np.bincount(landed, minlength=4) / 300, 0.25, atol=0.1)


def test_the_key_decides_and_epochs_differ():
    first, same, other = (permutations(jax.random.key(seed), 2, 512) for seed in (0, 0, 1))
    assert (first == same).all() and (first != other).any()
    assert (first[0] != first[1]).any()
