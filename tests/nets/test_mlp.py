"""The first weights of a net: orthogonal, and made without a call that can wait for ever."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.nets.mlp import FEW_OUTPUTS, affine, linear, mlp, orthogonal


@pytest.mark.parametrize("shape", [(64, 64), (5, 64), (64, 3), (256, 256), (1, 7), (7, 1)])
def test_orthogonal_rows_or_columns(shape):
    weight = np.asarray(orthogonal(jax.random.key(0), *shape), np.float64)
    short = weight if shape[0] <= shape[1] else weight.T
    np.testing.assert_allclose(short @ short.T, np.eye(min(shape)), atol=2e-6)


def test_orthogonal_matrices_favour_no_direction():
    matrices = jax.vmap(lambda key: orthogonal(key, 3, 3))(
        jax.random.split(jax.random.key(1), 20_000)
    )
    assert jnp.max(jnp.abs(jnp.mean(matrices, axis=0))) < 0.02
    np.testing.assert_allclose(jnp.mean(matrices**2, axis=0), 1 / 3, atol=0.02)


def test_same_key_same_weights_alone_and_in_a_batch():
    keys = jax.random.split(jax.random.key(2), 4)
    batch = jax.vmap(lambda key: linear(key, 8, 16, 2**0.5).weight)(keys)
    alone = jnp.stack([linear(key, 8, 16, 2**0.5).weight for key in keys])
    np.testing.assert_allclose(batch, alone, atol=1e-6)


def test_first_weights_call_no_library_that_waits_for_the_thread_pool():
    # LAPACK's batched decompositions wait for the very pool they run on: a run could hang at its start.
    def init(seeds):
        keys = jax.vmap(jax.random.key)(seeds)
        return jax.vmap(lambda key: mlp(key, (4, 64, 64, 2), "tanh", 0.01))(keys)

    program = jax.jit(init).lower(jnp.arange(8)).as_text()
    assert "lapack" not in program


@pytest.mark.parametrize("outputs", [1, 2, FEW_OUTPUTS, FEW_OUTPUTS + 1])
@pytest.mark.parametrize("leading", [(6,), (3, 4)])
def test_slopes_of_a_layer_are_the_plain_ones(leading, outputs):
    keys = jax.random.split(jax.random.key(3), 4)
    x, slope = (jax.random.normal(keys[i], (*leading, n)) for i, n in enumerate((5, outputs)))
    weight, bias = jax.random.normal(keys[2], (5, outputs)), jax.random.normal(keys[3], (outputs,))

    def plain(x, weight, bias):
        return x @ weight + jnp.broadcast_to(bias, (*leading, outputs))

    found, expected = (jax.vjp(each, x, weight, bias)[1](slope) for each in (affine, plain))
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
