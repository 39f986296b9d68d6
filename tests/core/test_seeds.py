"""The seed contract: fixed offsets, and no two streams alike."""

import jax
import jax.numpy as jnp
import numpy as np

from proxima.core import seeds
from proxima.core.seeds import evaluation_keys, first_keys, host_seed, trial_seeds


def data(keys):
    return np.asarray(jax.random.key_data(keys)).reshape(-1, 2)


def test_the_offsets():
    keys = first_keys(jnp.uint32(7), 3)
    seed = jnp.uint32(7)

    def stream(number, role):
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(number), seed), role)

    for env in range(3):
        assert (data(keys.streams.env[env]) == data(stream(7 + env, seeds.POOL_ROLE))).all()
        assert (data(keys.resets[env]) == data(stream(10_007 + env, seeds.RESET_ROLE))).all()
        evaluation = evaluation_keys(seed, 3)[env]
        assert (data(evaluation) == data(stream(7 + 999 + env, seeds.EVALUATION_ROLE))).all()
    assert (data(keys.streams.shuffle) == data(stream(7 ^ 0xA11CE, seeds.SHUFFLE_ROLE))).all()
    assert trial_seeds(7, 3) == [7, 8, 9]


def test_no_two_roles_trials_or_environments_share_a_stream():
    found = [first_keys(jnp.uint32(seed), 1100) for seed in range(4)]
    streams = [leaf for keys in found for leaf in (keys.weights, keys.resets, *keys.streams)]
    everything = np.concatenate(
        [data(keys) for keys in (*streams, evaluation_keys(jnp.uint32(0), 100))]
    )
    assert len(np.unique(everything, axis=0)) == len(everything)


def test_evaluation_episodes_do_not_depend_on_how_many_are_asked_for():
    few, many = evaluation_keys(jnp.uint32(3), 5), evaluation_keys(jnp.uint32(3), 50)
    np.testing.assert_array_equal(data(few), data(many[:5]))


def test_host_seeds_differ_between_trials_environments_and_generations():
    found = {
        host_seed(trial + env, trial, generation)
        for trial in range(5)
        for env in range(5)
        for generation in range(5)
    }
    assert len(found) == 125
    assert all(0 <= seed < 2**31 for seed in found)
    assert host_seed(1, 2, 3) == host_seed(1, 2, 3)
