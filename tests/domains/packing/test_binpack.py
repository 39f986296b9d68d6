"""Our BinPack against Jumanji's own, step by step over random episodes, full places included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.domains.packing.binpack import BinPack, largest_first


def both(items: int, spaces: int):
    """Jumanji's environment and ours, over the same generator."""
    from jumanji.environments.packing.bin_pack import env as theirs
    from jumanji.environments.packing.bin_pack import generator as generators

    generator = generators.RandomGenerator(items, spaces, split_num_same_items=2)
    container = jnp.array(generator.container_dims, jnp.int32)
    return theirs.BinPack(generator, spaces), BinPack(container, generator, spaces)


def stacked(boxes) -> np.ndarray:
    sides = [boxes.x1, boxes.x2, boxes.y1, boxes.y2, boxes.z1, boxes.z2]
    return np.stack([np.asarray(side) for side in sides], axis=-1)


# Six places for spaces are too few for ten items: pieces then overwrite the first place.
@pytest.mark.filterwarnings("ignore:scatter inputs")  # Jumanji's own
@pytest.mark.parametrize(("items", "spaces", "overflows"), [(8, 16, False), (10, 6, True)])
def test_every_step_is_jumanjis(items, spaces, overflows):
    jumanji, ours = both(items, spaces)
    batch = 32
    keys = jax.random.split(jax.random.key(3), batch)
    with jax.numpy_rank_promotion("allow"):  # Jumanji's own
        their_state, their_step = jax.jit(jax.vmap(jumanji.reset))(keys)
        step_theirs = jax.jit(jax.vmap(jumanji.step))
    state, obs = jax.jit(lambda env: jax.vmap(env.generate)(keys))(ours)
    step_ours = jax.jit(lambda env, *rest: jax.vmap(env.step)(*rest))
    rng = np.random.default_rng(0)
    full, endings = 0, 0
    for _ in range(items + 1):
        seen = their_step.observation
        mask = np.asarray(seen.action_mask).reshape(batch, -1)
        np.testing.assert_array_equal(obs["action_mask"], mask)
        np.testing.assert_array_equal(obs["ems"], stacked(seen.ems))
        np.testing.assert_array_equal(obs["items"], np.stack(seen.items, axis=-1))
        for name in ("ems_mask", "items_mask", "items_placed"):
            np.testing.assert_array_equal(obs[name], seen._asdict()[name])
        np.testing.assert_array_equal(jnp.moveaxis(state.spaces, 1, 2), stacked(their_state.ems))
        np.testing.assert_array_equal(state.spaces_mask, their_state.ems_mask)
        located = jnp.where(state.items_placed[:, None], state.location, 0)
        np.testing.assert_array_equal(
            located,
            np.stack(their_state.items_location, axis=1) * np.asarray(state.items_placed)[:, None],
        )
        full += int(np.asarray(state.spaces_mask).all(axis=1).sum())
        # Now and then an action that may be invalid: it must end the episode in both.
        action = np.array(
            [
                rng.choice(np.flatnonzero(row))
                if row.any() and rng.random() < 0.97
                else rng.integers(row.size)
                for row in mask
            ]
        )
        with jax.numpy_rank_promotion("allow"):
            their_state, their_step = step_theirs(
                their_state, jnp.stack(jnp.divmod(jnp.asarray(action), items), axis=-1)
            )
        state, obs, reward, ended = step_ours(ours, state, jnp.asarray(action), keys)
        np.testing.assert_allclose(reward, their_step.reward, rtol=1e-6)
        np.testing.assert_array_equal(ended, their_step.discount == 0)
        endings += int(ended.sum())
    assert endings > 0
    assert (full > 50) == overflows


def test_the_mask_says_what_fits():
    """Every valid action places its item, every other one changes nothing and ends the episode."""
    _, env = both(5, 8)
    state, obs = env.generate(jax.random.key(0))
    for turn in range(3):
        actions = jnp.arange(env.action_space.n)
        _, _, reward, _ = jax.vmap(env.step, (None, 0, None))(state, actions, jax.random.key(0))
        np.testing.assert_array_equal(reward > 0, obs["action_mask"])
        action = jnp.argmax(obs["action_mask"])
        if not obs["action_mask"].any():
            assert turn > 0
            break
        state, obs, _, _ = env.step(state, action, jax.random.key(0))


def test_a_return_is_the_volume_filled():
    _, env = both(6, 12)
    state, obs = env.generate(jax.random.key(5))
    total = 0.0
    while obs["action_mask"].any():
        state, obs, reward, _ = env.step(state, jnp.argmax(obs["action_mask"]), jax.random.key(0))
        total += float(reward)
    shares = jnp.prod(obs["items"], axis=-1) * obs["items_placed"]
    assert total == pytest.approx(float(shares.sum()), rel=1e-5)
    assert 0 < total <= 1


@pytest.mark.parametrize("values", [[0.0, 3.0, 3.0, 1.0, 7.0, 0.0], [1.0], [2.0, 2.0, 2.0]])
def test_largest_first_is_a_stable_sort(values):
    expected = np.argsort(-np.array(values), kind="stable")
    np.testing.assert_array_equal(largest_first(jnp.array(values)), expected)
