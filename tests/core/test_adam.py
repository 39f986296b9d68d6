"""A clipped Adam step against the written-out one, for trees and for flat vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from proxima.core.adam import adam_step

ADAM = optax.scale_by_adam(eps=1e-5)
NET = {"weight": jnp.asarray([[1.0, -2.0], [0.5, 0.0]]), "bias": jnp.asarray([3.0, -1.0])}
GRADIENT = {"weight": jnp.asarray([[3.0, 0.0], [0.0, 0.0]]), "bias": jnp.asarray([0.0, -4.0])}


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_the_first_step_is_the_textbook_one(max_norm):
    limit = jnp.float32(max_norm)
    (net, moments), norm = adam_step(ADAM, (NET, ADAM.init(NET)), GRADIENT, jnp.float32(0.1), limit)
    assert float(norm) == 5.0 and moments.count == 1
    for name, gradient in GRADIENT.items():
        clipped = np.asarray(gradient) * min(1.0, max_norm / 5.0)
        # After one step the moments without their bias are the gradient and its square.
        expected = NET[name] - 0.1 * clipped / (np.abs(clipped) + 1e-5)
        np.testing.assert_allclose(net[name], expected, rtol=1e-5)


def test_a_flat_vector_takes_the_step_of_its_tree():
    flat, unravel = ravel_pytree(NET)
    numbers = jnp.float32(0.1), jnp.float32(0.5)
    (tree, _), norm = adam_step(ADAM, (NET, ADAM.init(NET)), GRADIENT, *numbers)
    (vector, _), same = adam_step(
        ADAM, (flat, ADAM.init(flat)), ravel_pytree(GRADIENT)[0], *numbers
    )
    assert float(norm) == pytest.approx(float(same))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), unravel(vector), tree)
