"""Cells against slow loops, and sequences that begin anew wherever an episode ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.spaces import Discrete, box, fields, mask_space
from proxima.nets.actor_critic import MLPConfig, actor_critic_with_memory, memory
from proxima.nets.recurrent import Memory, cell

SIZE, INPUTS, BATCH, STEPS = 5, 3, 4, 7


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def slow_gru(weights, state, x):
    """One sample, gate by gate, as torch.nn.GRUCell has it."""
    from_input = x @ weights.inputs.weight + weights.inputs.bias
    from_memory = state @ weights.recurrent
    r, z = (
        sigmoid(from_input[i * SIZE : (i + 1) * SIZE] + from_memory[i * SIZE : (i + 1) * SIZE])
        for i in range(2)
    )
    candidate = np.tanh(
        from_input[2 * SIZE :] + r * (from_memory[2 * SIZE :] + weights.candidate_bias)
    )
    return (1 - z) * candidate + z * state


def slow_lstm(weights, output, state, x):
    gates = x @ weights.inputs.weight + weights.inputs.bias + output @ weights.recurrent
    i, f, o, g = np.split(gates, 4)
    state = sigmoid(f + 1.0) * state + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(state), state


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_cell_is_the_slow_loop(kind):
    keys = jax.random.split(jax.random.key(1), 4)
    weights = cell(keys[0], kind, INPUTS, SIZE)
    if kind == "gru":
        bias = jax.random.normal(keys[3], (SIZE,))
        weights = type(weights)(weights.inputs, weights.recurrent, bias)
    x, start = (
        jax.random.normal(keys[1], (BATCH, INPUTS)),
        jax.random.normal(keys[2], (2, BATCH, SIZE)),
    )
    before = Memory(start[0], start[1] if kind == "lstm" else None)
    after = weights(before, weights.project(x))
    numbers = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), weights)
    for row in range(BATCH):
        if kind == "gru":
            expected = (slow_gru(numbers, np.asarray(start[0, row]), np.asarray(x[row])),)
        else:
            expected = slow_lstm(numbers, *np.asarray(start[:, row]), np.asarray(x[row]))
        for found, wanted in zip(jax.tree.leaves(after), expected, strict=True):
            np.testing.assert_allclose(found[row], wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_sequence_is_step_after_step_and_begins_anew_where_an_episode_ended(kind, masked):
    actions = Discrete(3)
    seen = box(-1.0, 1.0, (INPUTS,))
    space = fields({"seen": seen, "action_mask": mask_space(actions)}) if masked else seen
    config = MLPConfig(hidden=(6,), memory=kind, memory_size=SIZE)
    keys = jax.random.split(jax.random.key(2), 4)
    net = actor_critic_with_memory(keys[0], config, space, actions)
    numbers = jax.random.normal(keys[1], (STEPS, BATCH, INPUTS))
    valid = jax.random.bernoulli(keys[2], 0.6, (STEPS, BATCH, 3)).at[..., 0].set(True)
    obs = {"seen": numbers, "action_mask": valid} if masked else numbers
    ended = jax.random.bernoulli(keys[3], 0.3, (STEPS, BATCH))
    assert ended.any(axis=0).sum() > 1
    start = jax.tree.map(lambda leaf: leaf + 0.5, memory(config, BATCH))
    policies, values = net(net.unroll(start, obs, ended))
    for b in range(BATCH):
        remembered = jax.tree.map(lambda leaf: leaf[b], start)  # noqa: B023
        for t in range(STEPS):
            now, remembered = net.remember(remembered, jax.tree.map(lambda leaf: leaf[t, b], obs))  # noqa: B023
            np.testing.assert_allclose(values[t, b], net.value(now), atol=1e-5)
            np.testing.assert_allclose(policies.logits[t, b], net.policy(now).logits, atol=1e-5)
            if ended[t, b]:
                remembered = jax.tree.map(jnp.zeros_like, remembered)
    if masked:
        assert np.isneginf(np.asarray(policies.logits)[~np.asarray(valid)]).all()


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize(("inputs", "size"), [(3, 64), (512, 16)])
def test_gates_vary_as_much_as_what_they_see(kind, inputs, size):
    # Orthonormal rows alone would bring three numbers to 192 gates at an eighth of their size.
    made = cell(jax.random.key(0), kind, inputs, size)
    seen = jax.random.normal(jax.random.key(1), (4096, inputs))
    assert jnp.std(made.project(seen)) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_the_gradient_along_a_sequence_is_that_of_step_after_step(kind):
    keys = jax.random.split(jax.random.key(3), 6)
    weights = cell(keys[0], kind, INPUTS, SIZE)
    x = jax.random.normal(keys[1], (STEPS, BATCH, INPUTS))
    ended = jax.random.bernoulli(keys[2], 0.3, (STEPS, BATCH))
    start = jax.random.normal(keys[3], (2, BATCH, SIZE))
    counts = jax.random.normal(keys[4], (STEPS, BATCH, SIZE))
    start = Memory(start[0], start[1] if kind == "lstm" else None)
    if kind == "gru":
        bias = jax.random.normal(keys[5], (SIZE,))
        weights = type(weights)(weights.inputs, weights.recurrent, bias)

    def at_once(weights, start, x):
        return jnp.sum(counts * weights.unroll(start, weights.project(x), ended))

    def one_by_one(weights, memory, x):
        total = 0.0
        for step in range(STEPS):
            memory = weights(memory, weights.project(x[step]))
            total += jnp.sum(counts[step] * memory.output)
            memory = jax.tree.map(
                lambda leaf, row=ended[step]: jnp.where(row[:, None], 0.0, leaf), memory
            )
        return total

    found, wanted = (jax.grad(each, (0, 1, 2))(weights, start, x) for each in (at_once, one_by_one))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
