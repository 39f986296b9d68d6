"""The replay buffer against a list, its draws, and that a compiled loop writes it in place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.replay import add, empty, pack_samples, pack_sequences, sample

CAPACITY, WIDTH = 7, 3
EXAMPLE = jnp.zeros((1, WIDTH))


def filled(numbers, capacity=CAPACITY, mask=None):
    """A buffer after rows that hold one number each."""
    rows = jnp.broadcast_to(jnp.asarray(numbers, jnp.float32)[:, None], (len(numbers), WIDTH))
    mask = jnp.ones(len(numbers), bool) if mask is None else jnp.asarray(mask)
    return add(empty(capacity, EXAMPLE), rows, mask)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 20])
def test_the_ring_keeps_the_newest_rows_that_were_let_in(block):
    draw = np.random.default_rng(block)
    replay, reference = empty(CAPACITY, EXAMPLE), []
    adding = jax.jit(add)
    for _ in range(15):
        rows = draw.normal(size=(block, WIDTH)).astype(np.float32)
        mask = draw.random(block) < 0.7
        replay = adding(replay, rows, mask)
        reference = (reference + list(rows[mask]))[-CAPACITY:]
        size = int(replay.size)
        assert size == len(reference)
        # from the oldest on, which is where the next row would go once the ring is full
        start = int(replay.position) if size == CAPACITY else 0
        order = [(start + k) % CAPACITY for k in range(size)]
        np.testing.assert_array_equal(
            np.asarray(replay.rows)[order], np.reshape(reference, (-1, 3))
        )


def test_masked_rows_are_nowhere_in_the_buffer():
    replay = filled([1, -1, 2, -1, -1, 3], mask=[True, False, True, False, False, True])
    assert int(replay.size) == int(replay.position) == 3
    assert not np.any(np.asarray(replay.rows) == -1)
    drawn = sample(replay, jax.random.key(0), 200)
    assert set(np.unique(drawn)) == {1.0, 2.0, 3.0}


def test_draws_are_uniform_over_the_filled_rows_and_with_replacement():
    replay = filled([5, 6, 7, 8])
    drawn = np.asarray(sample(replay, jax.random.key(1), 40_000))[:, 0]
    values, counts = np.unique(drawn, return_counts=True)
    np.testing.assert_array_equal(values, [5, 6, 7, 8])
    np.testing.assert_allclose(counts / 40_000, 0.25, atol=0.01)


def test_the_same_key_draws_the_same_rows():
    replay = filled(range(7))
    first, again, other = (sample(replay, jax.random.key(k), 50) for k in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_trials_side_by_side_have_buffers_of_their_own():
    replays = jax.vmap(lambda _: empty(CAPACITY, EXAMPLE))(jnp.arange(2))
    for value in range(5):
        rows = jnp.stack([jnp.full((1, WIDTH), value), jnp.full((1, WIDTH), 10.0 + value)])
        mask = jnp.asarray([[True], [value % 2 == 0]])
        replays = jax.vmap(add)(replays, rows, mask)
    np.testing.assert_array_equal(replays.size, [5, 3])
    np.testing.assert_array_equal(replays.rows[0, :5, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(replays.rows[1, :3, 0], [10, 12, 14])
    drawn = jax.vmap(lambda replay, key: sample(replay, key, 100))(
        replays, jax.random.split(jax.random.key(0), 2)
    )
    assert set(np.unique(drawn[1])) == {10.0, 12.0, 14.0}


@pytest.mark.parametrize("trials", [None, 2])
def test_a_compiled_loop_writes_the_buffer_in_place(trials):
    """The program needs no second buffer, so no step can copy it."""
    capacity = 100_000

    def one(replay, key):
        def step(_, carry):
            replay, key = carry
            key, use = jax.random.split(key)
            rows = sample(replay, use, 4) + 1.0
            return add(replay, rows, jnp.ones(4, bool)), key

        return jax.lax.fori_loop(0, 10, step, (replay, key))

    replay, key, function = empty(capacity, EXAMPLE), jax.random.key(0), one
    if trials is not None:
        replay = jax.tree.map(lambda leaf: jnp.stack([leaf] * trials), replay)
        key, function = jax.random.split(key, trials), jax.vmap(one)
    program = jax.jit(function, donate_argnums=0).lower(replay, key).compile()
    needed = program.memory_analysis().temp_size_in_bytes
    assert needed < replay.rows.nbytes / 10


@pytest.mark.parametrize("count", [1, 4])
def test_a_single_update_of_one_trial_writes_in_place_too(count):
    """As on the host: the trial axis comes off and on again, and the buffer is read once written."""

    def update(replays, rows, key):
        replay = jax.tree.map(lambda leaf: leaf[0], replays)
        replay = add(replay, rows, jnp.ones(count, bool))
        return jax.tree.map(lambda leaf: leaf[None], replay), sample(replay, key, 8)

    replays = jax.tree.map(lambda leaf: leaf[None], empty(100_000, EXAMPLE))
    arguments = (replays, jnp.ones((count, WIDTH)), jax.random.key(0))
    program = jax.jit(update, donate_argnums=0).lower(*arguments).compile()
    assert program.memory_analysis().temp_size_in_bytes < replays.rows.nbytes / 10


def picture_samples(draw, *leading):
    """Samples with bytes, numbers and a mask, as an agent with pictures and masked actions keeps them."""
    return {
        "picture": jnp.asarray(draw.integers(0, 256, (*leading, 4, 4, 2)), jnp.uint8),
        "mask": jnp.asarray(draw.random((*leading, 30)) < 0.5),
        "reward": jnp.asarray(draw.normal(size=leading), jnp.float32),
        "terminated": jnp.asarray(draw.random(leading) < 0.5),
    }


def test_bytes_are_kept_as_bytes_and_flags_as_bits_and_both_come_back():
    draw = np.random.default_rng(0)
    samples = picture_samples(draw, 5)
    rows, unpack = pack_samples(samples)
    replay = add(empty(6, samples), rows, jnp.ones(5, bool))
    numbers, pictures = replay.rows
    assert numbers.shape == (6, 2 + 2) and numbers.dtype == jnp.float32
    assert pictures.shape == (6, 32) and pictures.dtype == jnp.uint8
    index = jax.random.bits(jax.random.key(2), (9,)) % 5
    drawn = unpack(sample(replay, jax.random.key(2), 9))
    for name, leaf in samples.items():
        assert drawn[name].dtype == leaf.dtype
        np.testing.assert_array_equal(drawn[name], leaf[index])


def test_sequences_with_bytes_come_back_from_the_buffer():
    steps = picture_samples(np.random.default_rng(1), 3, 2)
    rows, unpack = pack_sequences(steps)
    replay = add(empty(4, steps, pack_sequences), rows, jnp.asarray([False, True]))
    assert [part.shape for part in replay.rows] == [(4, 3 * 4), (4, 3 * 32)]
    restored = unpack(jax.tree.map(lambda part: part[:1], replay.rows))
    for name, leaf in steps.items():
        np.testing.assert_array_equal(restored[name], leaf[:, 1:])
