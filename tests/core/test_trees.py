"""Packing into one array loses nothing."""

import jax
import jax.numpy as jnp
import numpy as np

from proxima.core.trees import blank, fingerprint, pack_flags, pack_rows, select


def test_packing_round_trip_keeps_shapes_types_and_values():
    tree = {
        "image": jnp.arange(24.0).reshape(2, 3, 2, 2),
        "action": jnp.asarray([[0, 1, 2**24 - 1], [3, 4, 5]], jnp.int32),
        "flag": jnp.asarray([[True, False, True], [False, True, False]]),
    }
    packed, unpack = pack_rows(tree, 2)
    assert packed.shape == (2, 3, 6)
    for restored, rows in ((unpack(packed), slice(None)), (unpack(packed[0]), 0)):
        for name, leaf in tree.items():
            np.testing.assert_array_equal(restored[name], leaf[rows])
            assert restored[name].dtype == leaf.dtype


def test_bytes_stay_bytes_beside_the_numbers():
    tree = {
        "picture": jnp.arange(48, dtype=jnp.uint8).reshape(2, 3, 2, 2, 2) * 5,
        "reward": jnp.arange(6.0).reshape(2, 3),
        "light": jnp.asarray([[0, 255, 7], [8, 9, 10]], jnp.uint8),
    }
    packed, unpack = pack_rows(tree, 2)
    assert [(part.shape, str(part.dtype)) for part in packed] == [
        ((2, 3, 1), "float32"),
        ((2, 3, 9), "uint8"),
    ]
    chosen = unpack(tuple(part[1, :2] for part in packed))
    for name, leaf in tree.items():
        np.testing.assert_array_equal(chosen[name], leaf[1, :2])
        assert chosen[name].dtype == leaf.dtype


def test_nothing_but_bytes_is_a_pair_too():
    picture = jnp.arange(24, dtype=jnp.uint8).reshape(2, 3, 4)
    (numbers, rest), unpack = pack_rows(picture, 1)
    assert numbers.shape == (2, 0) and rest.shape == (2, 12)
    np.testing.assert_array_equal(unpack((numbers, rest)), picture)


def test_another_byte_is_another_fingerprint():
    draw = np.random.default_rng(0)
    picture = draw.integers(0, 256, (3, 4, 4), np.uint8)
    picture[1] = picture[0]
    picture[2] = picture[0]
    picture[2, 1, 2] ^= 1
    for tree in (picture, {"picture": picture, "number": np.ones(3, np.float32)}):
        first, same, other = np.asarray(fingerprint(jax.tree.map(jnp.asarray, tree)))
        assert first == same != other


def test_select_spreads_the_condition():
    yes, no = {"a": jnp.ones((2, 3)), "b": jnp.ones(2)}, {"a": jnp.zeros((2, 3)), "b": jnp.zeros(2)}
    chosen = select(jnp.asarray([True, False]), yes, no)
    np.testing.assert_array_equal(chosen["a"], [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(chosen["b"], [1, 0])


def test_flags_come_back_and_take_a_24th_of_the_room():
    draw = np.random.default_rng(0)
    tree = {
        "mask": jnp.asarray(draw.uniform(size=(3, 2, 5, 10)) < 0.5),
        "flag": jnp.asarray(draw.uniform(size=(3, 2)) < 0.5),
        "all": jnp.ones((3, 2, 48), bool),
        "number": jnp.asarray(draw.normal(size=(3, 2, 4)), jnp.float32),
    }
    narrow, widen = pack_flags(tree, 2)
    assert {name: leaf.shape[2:] for name, leaf in narrow.items()} == {
        "mask": (3,),
        "flag": (),
        "all": (2,),
        "number": (4,),
    }
    rows, unpack = pack_rows(narrow, 1)
    back = widen(unpack(rows[jnp.asarray([2, 0])]))
    for name, leaf in tree.items():
        assert back[name].dtype == leaf.dtype
        np.testing.assert_array_equal(back[name], leaf[jnp.asarray([2, 0])])


def test_blank_leaves_flags_and_integers_and_no_float_where_nothing_is_real():
    mask = jnp.asarray([True, False])
    tree = {
        "flag": jnp.asarray([[True, True], [True, False]]),
        "number": jnp.asarray([[1.0, 2.0], [jnp.nan, 3.0]]),
        "count": jnp.asarray([4, 5]),
    }
    found = blank(mask, tree)
    np.testing.assert_array_equal(found["flag"], tree["flag"])
    np.testing.assert_array_equal(found["count"], tree["count"])
    np.testing.assert_array_equal(found["number"], [[1.0, 2.0], [0.0, 0.0]])
