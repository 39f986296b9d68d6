"""Priorities against lists: who is drawn how often, by which weight, after which changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.prioritized import FANOUT, SMALLEST, add_rows, change, draw, no_priorities
from proxima.core.replay import NOWHERE, add, empty, slots

ALPHA, BETA = jnp.float32(0.7), jnp.float32(0.5)
adding, changing, drawing = jax.jit(add_rows), jax.jit(change), jax.jit(draw)


def with_errors(errors, capacity):
    """Priorities of the first rows of a buffer, all other rows being empty."""
    index = jnp.arange(len(errors))
    full = adding(no_priorities(capacity), index, ALPHA)
    return changing(full, index, jnp.asarray(errors, jnp.float32), ALPHA)


def check_sums(priorities):
    for below, above in zip(priorities.levels, priorities.levels[1:], strict=False):
        sums = np.asarray(below, np.float64).reshape(-1, FANOUT).sum(1)
        np.testing.assert_allclose(above[: len(sums)], sums, rtol=1e-6)
        assert not np.any(above[len(sums) :])


@pytest.mark.parametrize("capacity", [7, 16, 300, 5_000])
def test_rows_are_drawn_in_proportion_to_their_priority(capacity):
    """A chi-square of the counts; rows without a priority are never drawn."""
    count = capacity - 2
    errors = np.random.default_rng(capacity).exponential(size=count)
    errors[:2] = 0.0
    priorities = with_errors(errors, capacity)
    expected = (errors + SMALLEST) ** 0.7
    expected /= expected.sum()
    draws, batch = 400, 256
    uniforms = jax.random.uniform(jax.random.key(1), (draws, batch))
    found = jax.vmap(lambda row: drawing(priorities, row, count, BETA).rows)(uniforms)
    counts = np.bincount(np.asarray(found).ravel(), minlength=capacity)
    assert counts.size == capacity and not counts[count:].any()
    often = expected * draws * batch > 5
    chi = np.sum(
        (counts[:count] - expected * draws * batch)[often] ** 2 / (expected * draws * batch)[often]
    )
    freedom = often.sum()
    # Draws of a batch are spread evenly, so that counts vary less than independent ones would.
    assert chi < freedom + 4 * np.sqrt(2 * freedom)
    assert freedom > count / 2


def test_weights_undo_what_priorities_distort():
    errors = np.asarray([0.5, 4.0, 1.0, 0.01, 2.0])
    priorities = with_errors(errors, 20)
    uniforms = jax.random.uniform(jax.random.key(0), (64,))
    found = drawing(priorities, uniforms, 5, BETA)
    probability = (errors + SMALLEST) ** 0.7 / np.sum((errors + SMALLEST) ** 0.7)
    weight = (5 * probability[np.asarray(found.rows)]) ** -0.5
    np.testing.assert_allclose(found.weight, weight / weight.max(), rtol=1e-5)
    even = drawing(priorities, uniforms, 5, jnp.float32(0.0))
    np.testing.assert_array_equal(even.weight, np.ones(64))


def test_changes_are_those_of_a_slow_loop_whatever_comes_twice():
    """A ring that is overwritten, rows that are left out, rows drawn twice: against a list."""
    capacity, generator = 37, np.random.default_rng(0)
    example = jnp.zeros((1, 1))
    replay, priorities = empty(capacity, example), no_priorities(capacity)
    expected, largest, position = np.zeros(capacity), 1.0, 0
    for _ in range(30):
        block = int(generator.choice([1, 3, 50]))
        mask = generator.random(block) < 0.6
        index, _ = slots(replay, jnp.asarray(mask))
        priorities = adding(priorities, index, ALPHA)
        replay = add(replay, jnp.ones((block, 1)), jnp.asarray(mask))
        for _ in range(mask.sum()):
            expected[position % capacity] = largest**0.7
            position += 1
        if position:
            rows = generator.integers(0, min(position, capacity), 12)
            errors = generator.normal(size=12).astype(np.float32) * 3
            priorities = changing(priorities, jnp.asarray(rows), jnp.asarray(errors), ALPHA)
            for row in set(rows):
                size = max(abs(errors[rows == row])) + SMALLEST
                expected[row] = size**0.7
                largest = max(largest, size)
        np.testing.assert_allclose(priorities.levels[0][:capacity], expected, rtol=1e-5)
        assert not np.any(priorities.levels[0][capacity:])
        assert float(priorities.largest) == pytest.approx(largest, rel=1e-6)
        check_sums(priorities)
    assert position > 3 * capacity


def test_the_order_of_duplicates_does_not_matter():
    before = with_errors(np.ones(40), 40)
    rows, errors = jnp.asarray([3, 5, 3, 3, 39]), jnp.asarray([0.1, 2.0, 7.0, 0.2, 0.0])
    one = changing(before, rows, errors, ALPHA)
    other = changing(before, rows[::-1], errors[::-1], ALPHA)
    for first, second in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(first, second)
    assert float(one.levels[0][3]) == pytest.approx((7.0 + SMALLEST) ** 0.7, rel=1e-6)


def test_what_goes_nowhere_changes_nothing():
    before = with_errors([1.0, 2.0], 17)
    after = adding(before, jnp.full(3, NOWHERE), ALPHA)
    for first, second in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(first, second)


def test_numbers_at_both_ends_draw_rows_that_there_are():
    priorities = with_errors([0.0, 3.0, 1e-3, 5.0, 0.0], 1_000)
    for uniforms in (np.zeros(8), np.full(8, np.nextafter(np.float32(1), np.float32(0)))):
        found = drawing(priorities, jnp.asarray(uniforms, jnp.float32), 5, BETA)
        assert np.all(np.asarray(found.rows) < 5)


def test_a_compiled_loop_of_updates_changes_the_tree_in_place():
    priorities = no_priorities(200_000)

    def gradient_step(priorities, key):
        found = draw(priorities, jax.random.uniform(key, (4,)), 9, BETA)
        return change(priorities, found.rows, found.weight, ALPHA), None

    def update(priorities, key):
        priorities = add_rows(priorities, jax.random.randint(key, (1,), 0, 9), ALPHA)
        return jax.lax.scan(gradient_step, priorities, jax.random.split(key, 3))

    def loop(priorities, key):
        return jax.lax.scan(update, priorities, jax.random.split(key, 10))[0]

    program = jax.jit(loop, donate_argnums=0).lower(priorities, jax.random.key(0)).compile()
    assert program.memory_analysis().temp_size_in_bytes < priorities.levels[0].nbytes / 10
