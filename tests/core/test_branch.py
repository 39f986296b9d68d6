"""A branch that is `lax.cond` alone, and per trial in a batch that skips what no trial needs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.branch import steps_when, when


def change(state, given):
    count, values = state
    return count + 1, values * given


def run(condition, count, values, given):
    return when(condition, change, (count, values), given)


@pytest.mark.parametrize("condition", [True, False])
def test_alone(condition):
    count, values = jax.jit(run)(condition, jnp.int32(3), jnp.arange(2.0), jnp.float32(5.0))
    assert count == (4 if condition else 3)
    np.testing.assert_array_equal(values, [0.0, 5.0] if condition else [0.0, 1.0])


@pytest.mark.parametrize("conditions", [(True, False, True), (False,) * 3, (True,) * 3])
def test_trials_change_each_by_its_own_condition(conditions):
    counts, values = jnp.arange(3), jnp.arange(6.0).reshape(3, 2)
    batched = jax.jit(jax.vmap(run, in_axes=(0, 0, 0, None)))
    new_counts, new_values = batched(jnp.asarray(conditions), counts, values, jnp.float32(10.0))
    for k, condition in enumerate(conditions):
        assert new_counts[k] == k + condition
        np.testing.assert_array_equal(new_values[k], values[k] * (10.0 if condition else 1.0))


def test_what_is_not_batched_is_spread_over_the_trials():
    conditions, values = jnp.asarray([True, False]), jnp.arange(2.0)
    batched = jax.vmap(run, in_axes=(0, None, None, 0))
    counts, found = batched(conditions, jnp.int32(0), values, jnp.asarray([2.0, 3.0]))
    np.testing.assert_array_equal(counts, [1, 0])
    np.testing.assert_array_equal(found, [[0.0, 2.0], [0.0, 1.0]])


def test_a_state_may_have_parts_that_are_none():
    def one(condition, state):
        return when(condition, lambda state, _: (state[0] + 1, None), (state, None), jnp.ones(()))

    found, nothing = jax.vmap(one)(jnp.asarray([True, False]), jnp.arange(2.0))
    np.testing.assert_array_equal(found, [1.0, 1.0])
    assert nothing is None


def test_a_batch_in_which_no_trial_changes_computes_nothing():
    """The work would never end; `lax.cond` under vmap would begin it."""

    def endless(state, given):
        return jax.lax.while_loop(lambda x: x == x, lambda x: x + given, state)

    def one(condition, state):
        return when(condition, endless, state, jnp.float32(1.0))

    found = jax.jit(jax.vmap(one))(jnp.zeros(2, bool), jnp.arange(2.0))
    np.testing.assert_array_equal(found, [0.0, 1.0])


@pytest.mark.parametrize("condition", [True, False])
def test_steps_are_taken_one_per_key_and_their_metrics_averaged(condition):
    def step(state, key, amount):
        state = state + amount * key
        return state, jnp.stack([state, key])

    keys = jnp.asarray([1.0, 2.0, 6.0])
    state, means = steps_when(
        jnp.asarray(condition), step, jnp.float32(1.0), keys, jnp.float32(10.0), ("state", "key")
    )
    assert float(state) == (91.0 if condition else 1.0)
    expected = {"state": (11 + 31 + 91) / 3, "key": 3.0} if condition else {"state": 0, "key": 0}
    assert means == pytest.approx(expected)
