"""The net for boards: what its sweeps compute, their gradient, and what it reads of an observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.core.spaces import ACTION_MASK, Discrete, MultiDiscrete, box, fields, mask_space
from proxima.domains.packing.grid import (
    NETWORK,
    GridActorCritic,
    GridConfig,
    read_layout,
    sweep,
)

ROWS, COLUMNS, BATCH = 4, 5, 6
ACTIONS = Discrete(4)
SPACE = fields(
    {
        ACTION_MASK: mask_space(ACTIONS),
        "walls": box(0, 1, (ROWS, COLUMNS), "bool"),
        "agent_position": box(0, 9, (2,), "int32"),
        "target_position": box(0, 9, (2,), "int32"),
        "step_count": box(0, 100, (), "int32"),
    }
)


def observations(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    positions = rng.integers([ROWS, COLUMNS], size=(2, BATCH, 2)).astype(np.int32)
    return {
        ACTION_MASK: rng.random((BATCH, 4)) < 0.7,
        "walls": rng.random((BATCH, ROWS, COLUMNS)) < 0.3,
        "agent_position": positions[0],
        "target_position": positions[1],
        "step_count": rng.integers(0, 50, BATCH).astype(np.int32),
    }


def plain_sweep(source: np.ndarray, gate: np.ndarray, sweeps: int) -> np.ndarray:
    value = source.copy()
    for _ in range(sweeps):
        after = np.empty_like(value)
        for row in range(value.shape[0]):
            for column in range(value.shape[1]):
                beside = [
                    value[r, c] if 0 <= r < value.shape[0] and 0 <= c < value.shape[1] else 0.0
                    for r, c in (
                        (row - 1, column),
                        (row, column + 1),
                        (row + 1, column),
                        (row, column - 1),
                    )
                ]
                after[row, column] = source[row, column] + gate[row, column] * max(beside)
        value = after
    return value


def test_a_sweep_equals_a_slow_loop():
    rng = np.random.default_rng(0)
    source, gate = rng.random((2, ROWS, COLUMNS)).astype(np.float32)
    ours = sweep(jnp.asarray(source)[..., None, None], jnp.asarray(gate)[..., None, None], 3)
    np.testing.assert_allclose(ours[..., 0, 0], plain_sweep(source, gate, 3), rtol=1e-5)


def test_values_are_gamma_to_the_power_of_the_distance():
    source = jnp.zeros((1, 6, 1, 1)).at[0, 0].set(1.0)
    gate = jnp.full((1, 6, 1, 1), 0.5)
    value = sweep(source, gate.at[0, 0].set(0.0), 10)[0, :, 0, 0]
    np.testing.assert_allclose(value, 0.5 ** np.arange(6))


def test_the_gradient_is_that_of_settled_sweeps():
    """Against differentiating many rounds one by one."""
    rng = np.random.default_rng(1)
    source, gate = (jnp.asarray(rng.random((ROWS, COLUMNS, 2, 3)), jnp.float32) for _ in range(2))
    gate = 0.7 * gate

    def rounds(source, gate):
        value = source
        for _ in range(60):
            up = jnp.pad(value, ((1, 0), (0, 0), (0, 0), (0, 0)))[:-1]
            down = jnp.pad(value, ((0, 1), (0, 0), (0, 0), (0, 0)))[1:]
            left = jnp.pad(value, ((0, 0), (1, 0), (0, 0), (0, 0)))[:, :-1]
            right = jnp.pad(value, ((0, 0), (0, 1), (0, 0), (0, 0)))[:, 1:]
            value = source + gate * jnp.max(jnp.stack([up, down, left, right]), axis=0)
        return value

    weight = jnp.asarray(rng.standard_normal(source.shape), jnp.float32)
    ours = jax.grad(lambda a: jnp.sum(weight * sweep(*a, 60)))((source, gate))
    theirs = jax.grad(lambda a: jnp.sum(weight * rounds(*a)))((source, gate))
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-4)


def test_the_net_fits_and_masks():
    config = GridConfig(hidden=(8,))
    NETWORK.check_spaces(config, SPACE, ACTIONS, "Maze-v0")
    assert NETWORK.shares_torso(config, SPACE)
    net = NETWORK.make(jax.random.key(0), config, SPACE, ACTIONS)
    assert isinstance(net, GridActorCritic)
    obs = observations()
    distribution, value = net(obs)
    np.testing.assert_array_equal(jnp.isfinite(distribution.logits), obs[ACTION_MASK])
    assert value.shape == (BATCH,)
    np.testing.assert_allclose(net.policy(obs).logits, distribution.logits)
    np.testing.assert_allclose(net.value(obs), value)
    stacked = jax.tree.map(lambda leaf: np.stack([leaf] * 3), obs)
    np.testing.assert_allclose(net.value(stacked)[2], value, rtol=1e-5)
    later = obs | {"step_count": obs["step_count"] + 7}
    np.testing.assert_array_equal(net.value(later), value)
    gradient = jax.grad(lambda net: jnp.sum(net.value(obs)))(net)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_boards_of_numbers_are_not_taken_for_mazes():
    puzzle = fields(
        {"puzzle": box(0, 24, (5, 5), "int32"), "empty_tile_position": box(0, 4, (2,), "int32")}
    )
    assert read_layout(puzzle) is None
    with pytest.raises(
        ProximaError, match=r"network.kind: grid needs .* it has empty_tile_position.* use mlp"
    ):
        NETWORK.check_spaces(GridConfig(), puzzle, ACTIONS, "SlidingTilePuzzle-v0")


def test_several_choices_at_once_are_refused():
    with pytest.raises(ProximaError, match=r"network.kind: grid needs actions that are one choice"):
        NETWORK.check_spaces(GridConfig(), SPACE, MultiDiscrete(2, 3), "Other-v0")
