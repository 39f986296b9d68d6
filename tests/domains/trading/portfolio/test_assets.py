"""The net that looks at every asset alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.core.spaces import Discrete, box, fields
from proxima.domains.trading.portfolio.assets import NETWORK, AssetsConfig

ASSETS, KINDS = 5, 3
SPACE = fields({"features": box(-9, 9, (ASSETS, KINDS)), "weights": box(-9, 9, (ASSETS,))})


def net(numbers):
    made = NETWORK.make(jax.random.key(1), AssetsConfig(hidden=(8,)), SPACE, box(-1, 1, (numbers,)))
    # The first weights of the last layer are tiny, so that all scores would be alike.
    return jax.tree.map(lambda leaf: 30.0 * leaf, made)


def observed(leading=()):
    random = np.random.default_rng(0)
    return {
        "features": jnp.asarray(random.normal(size=(*leading, ASSETS, KINDS)), jnp.float32),
        "weights": jnp.asarray(random.uniform(size=(*leading, ASSETS)), jnp.float32),
    }


@pytest.mark.parametrize("cash", [0, 1])
def test_assets_in_another_order_have_the_same_scores(cash):
    order = np.array([3, 1, 4, 0, 2])
    obs, made = observed(), net(ASSETS + cash)
    turned = {name: part[order] for name, part in obs.items()}
    first, second = made.policy(obs).mode(), made.policy(turned).mode()
    np.testing.assert_allclose(first[cash:][order], second[cash:], rtol=1e-5)
    np.testing.assert_allclose(made.value(obs), made.value(turned), rtol=1e-5)
    assert np.ptp(np.asarray(first[cash:])) > 0.01


def test_any_leading_axes():
    made, obs = net(ASSETS + 1), observed((4, 2))
    policy, value = made(obs)
    assert policy.mode().shape == (4, 2, ASSETS + 1) and value.shape == (4, 2)
    one = made.policy({name: part[1, 1] for name, part in obs.items()}).mode()
    np.testing.assert_allclose(policy.mode()[1, 1], one, rtol=1e-5)


def test_it_fits_portfolios_alone():
    with pytest.raises(
        ProximaError, match=r"network\.kind: assets is for portfolios, and X is none"
    ):
        NETWORK.check_spaces(AssetsConfig(), box(-1, 1, (3,)), box(-1, 1, (3,)), "X")
    with pytest.raises(ProximaError, match="is none"):
        NETWORK.check_spaces(AssetsConfig(), SPACE, Discrete(3), "X")
