"""Epochs over minibatches, and the sequences that these are made of where a net remembers."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.minibatches import Passes, default_sizes, over_minibatches
from proxima.core.schedule import on_line
from proxima.core.sequences import in_sequences


class Batch(NamedTuple):
    row: Any
    weight: Any
    memory: Any = None


def test_an_epoch_meets_every_sample_once_and_weighs_those_that_are_steps():
    rows = jnp.arange(12)
    samples = Batch(rows, jnp.where(rows % 3 == 0, 0.0, 1.0))

    def step(seen, minibatch):
        total = minibatch.weight.sum()
        return seen.at[minibatch.row].add(1), jnp.stack([total, minibatch.row @ minibatch.weight])

    seen, means = over_minibatches(
        step, jnp.zeros(12, int), samples, jax.random.key(0), Passes(5, 3, None)
    )
    np.testing.assert_array_equal(seen, 5)
    assert means[0] == pytest.approx(1.0)
    assert 0 < means[1] < 11


def test_minibatches_of_no_steps_do_not_count_and_preparing_sees_them_all():
    samples = Batch(jnp.arange(4.0), jnp.asarray([1.0, 0.0, 0.0, 0.0]))

    def prepare(minibatches):
        assert minibatches.row.shape == (4, 1)
        return minibatches._replace(row=minibatches.row + 10.0)

    def step(count, minibatch):
        return count + 1, minibatch.row

    count, means = over_minibatches(
        step, 0, samples, jax.random.key(0), Passes(2, 4, None), prepare
    )
    assert (count, means) == (8, 10.0)


def test_sequences_are_steps_of_one_environment_with_the_memory_at_their_start():
    time, envs = 6, 2
    row = 10 * np.arange(time)[:, None] + np.arange(envs)  # the time, then the environment
    found = in_sequences(Batch(row, np.ones_like(row), row[..., None]), 3)
    np.testing.assert_array_equal(found.row, [[0, 10, 20], [1, 11, 21], [30, 40, 50], [31, 41, 51]])
    np.testing.assert_array_equal(found.memory[:, 0], found.row[:, 0])


def test_sizes_follow_from_the_environments_where_neither_is_given():
    assert default_sizes({}, 8, 32, 4) == {"batch_size": 256, "minibatch_size": 64}
    assert default_sizes({"minibatch_size": 2}, 8, 32, 4) == {}


def test_a_line_ends_at_its_final_value():
    found = [float(on_line(1.0, 0.2, jnp.int32(updates), 4.0)) for updates in (0, 1, 4, 9)]
    assert found == pytest.approx([1.0, 0.8, 0.2, 0.2])
