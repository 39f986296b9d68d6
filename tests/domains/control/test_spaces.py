"""Spaces of every kind, nested at random: seen alike by pools and exported policies, and acted in."""

import itertools
import math

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from proxima.core.errors import ProximaError
from proxima.core.spaces import Box, Discrete, MultiDiscrete, box, fields, multi_discrete, zeros
from proxima.domains.control.gymnasium_spaces import by_field, translate
from proxima.track.served_policy import as_rows, is_single, nested

FEW = spaces.Discrete(2)
SHAPES = ((), (1,), (3,), (2, 2))
KINDS = ("box", "discrete", "multi_binary", "multi_discrete")
SEEDS = range(40)


def leaf(rng, kind):
    """A random space that holds one array."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    start = int(rng.choice([0, 0, -3, 7, 2**40]))
    if kind == "discrete":
        return spaces.Discrete(int(rng.choice([1, 2, 5, 2_000])), start=start)
    if kind == "multi_binary":
        return spaces.MultiBinary(shape or (2,))
    if kind == "multi_discrete":
        counts = rng.choice([1, 2, 3, 600 if rng.random() < 0.2 else 4], shape or (2,))
        return spaces.MultiDiscrete(counts, start=np.full(counts.shape, start))
    dtype = rng.choice(["float32", "float64", "uint8", "int64", "int8"])
    low, high = (0, 200) if dtype == "uint8" else (-5, 5)
    if dtype.startswith("float"):
        low, high = rng.choice([-math.inf, -2.5]), rng.choice([math.inf, 0.5])
    return spaces.Box(low, high, shape, np.dtype(dtype).type)


def tree(rng, kinds, depth=2):
    """A random space: a leaf, or a Dict or a Tuple of some."""
    if depth == 0 or rng.random() < 0.3:
        return leaf(rng, rng.choice(kinds))
    inner = [tree(rng, kinds, depth - 1) for _ in range(rng.integers(1, 4))]
    if rng.random() < 0.5:
        return spaces.Tuple(inner)
    return spaces.Dict(dict(zip("cab", inner, strict=False)))


def batched(space, samples):
    """Samples side by side, as a vector of environments has them."""
    return concatenate(space, samples, create_empty_array(space, len(samples)))


def equal(one, other):
    """The same arrays, or the same ones by name."""
    assert type(one) is type(other)
    by_field(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_seen_is_the_same_in_a_pool_and_in_an_exported_policy(seed):
    rng = np.random.default_rng(seed)
    space = tree(rng, KINDS)
    space.seed(seed)
    found = translate("fuzz", space, FEW)
    samples = [space.sample() for _ in range(3)]
    store = zeros(found.observation_space, (3,))
    for index, sample in enumerate(samples):
        found.put(store, index, sample)
    whole = batched(space, samples)
    equal(found.rows(whole), store)
    assert all(
        np.all(np.asarray(part.low).reshape(part.shape) <= array)
        and np.all(array <= np.asarray(part.high).reshape(part.shape))
        for part, array in parts_of(found.observation_space, store)
    )
    description, encode = found.interface.observation, found.interface.encode
    with jax.enable_x64(True):  # as exported programs do
        given = jax.tree.map(jnp.asarray, as_rows(whole, description))
        equal(jax.tree.map(np.asarray, encode(given, jnp)), store)
    alone = as_rows(samples[0], description)
    assert is_single(samples[0], description)
    equal(encode(alone, np), by_field(lambda array: array[:1], store))


def parts_of(space, store):
    """The space of every array beside it."""
    if isinstance(space, Box):
        return [(space, store)]
    return [(part, store[name]) for name, part in space.items()]


def agent_rows(space, rng, count=60):
    """Actions that an agent may choose: all where there are few; numbers also far beyond the bounds."""
    if isinstance(space, Box):
        return 3.0 * rng.standard_normal((count, math.prod(space.shape))).astype(np.float32)
    sizes = (space.n,) if isinstance(space, Discrete) else space.sizes
    if math.prod(sizes) <= count:
        rows = np.array(list(itertools.product(*map(range, sizes))), np.int32)
    else:
        first, last = np.zeros((1, len(sizes)), int), np.asarray([sizes]) - 1
        rows = np.concatenate([first, last, rng.integers(0, sizes, (count, len(sizes)))])
    return rows.astype(np.int32).reshape(-1, *space.shape)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_chosen_is_an_action_of_the_environment(seed):
    rng = np.random.default_rng(1000 + seed)
    kinds = KINDS[1:] if seed % 2 else ("box",)
    space = tree(rng, kinds)
    while len({has_floats(part) for part in gymnasium_leaves(space)}) > 1:
        space = tree(rng, kinds)
    found = translate("fuzz", spaces.Box(0, 1), space)
    rows = agent_rows(found.action_space, rng)
    one_by_one = [as_arrays(action) for action in found.singles(rows)]
    assert all(space.contains(action) for action in one_by_one)
    if not isinstance(found.action_space, Box):
        assert len({repr(action) for action in one_by_one}) == len(np.unique(rows, axis=0))
    with jax.enable_x64(True):
        outside = jax.tree.map(np.asarray, found.interface.decode(jnp.asarray(rows), jnp))
    described = found.interface.action
    whole = nested(outside, described["layout"]) if "layout" in described else outside
    for index, told in enumerate(one_by_one):
        action = jax.tree.map(lambda array, index=index: array[index], whole)
        jax.tree.map(np.testing.assert_array_equal, action, told)


def as_arrays(action):
    return jax.tree.map(np.asarray, action)


def gymnasium_leaves(space):
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [part for child in inner for part in gymnasium_leaves(child)]
    return [space]


def has_floats(space):
    """Whether it is numbers, and no choices."""
    return isinstance(space, spaces.Box) and space.dtype.kind == "f"


def test_entries_are_named_and_choices_are_flags():
    seen = spaces.Tuple(
        [
            spaces.Box(-1, 1, (2,)),
            spaces.Dict({"b": spaces.MultiDiscrete([[2, 3]], start=[[0, 5]])}),
        ]
    )
    done = spaces.Dict(
        {"go": spaces.MultiBinary(2), "to": spaces.Tuple([spaces.Discrete(5, start=1)])}
    )
    found = translate("named", seen, done)
    assert found.observation_space == fields(
        {"0": box(-1, 1, (2,)), "1.b": box(0, 1, (5,), "bool")}
    )
    assert found.action_space == multi_discrete((2, 2, 5)) == MultiDiscrete(5, 3, (2, 2, 5))
    row = found.rows((np.ones(2), {"b": np.array([[1, 6]])}))
    np.testing.assert_array_equal(row["1.b"], [False, True, False, True, False])
    (action,) = found.singles(np.array([[1, 0, 4]], np.int32))
    assert action["go"].tolist() == [1, 0] and action["to"] == (5,)
    assert found.interface.observation["layout"] == ["0", {"b": "1.b"}]
    assert found.interface.action["layout"] == {"go": "go", "to": ["to.0"]}


def test_masks_over_unlike_choices_come_padded_or_side_by_side():
    padded = np.array(
        [[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]], bool
    )  # beyond 2, 4 and 1: ignored
    flat = np.concatenate([padded[0, :2], padded[1], padded[2, :1]])
    rows = []
    for given in (padded, padded.ravel(), flat.astype(np.int8)):
        seen = spaces.Dict({"x": spaces.Box(0, 1), "action_mask": spaces.Box(0, 1, given.shape)})
        found = translate("masked", seen, spaces.MultiDiscrete([2, 4, 1]))
        rows.append(found.rows({"x": np.zeros(1), "action_mask": given})["action_mask"])
    for row in rows:
        np.testing.assert_array_equal(row, [[1, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0]])


TEXT = spaces.Dict({"said": spaces.Text(3), "x": spaces.Box(0, 1)})
MASKED_TEXT = spaces.Dict({**TEXT.spaces, "action_mask": spaces.MultiBinary(2)})
STEER = spaces.Box(-1, 1)
PAIR = spaces.MultiDiscrete([2, 3])
PARTED_MASK = spaces.Dict({"action_mask": spaces.Tuple([spaces.MultiBinary(2)]), "x": STEER})


@pytest.mark.parametrize(
    ("seen", "done", "words"),
    [
        (TEXT, FEW, r"field 'said' of the .* is Text.*env.wrappers: \[.*:FlattenObservation.*all"),
        (MASKED_TEXT, FEW, r"FilterObservation.*filter_keys: \['action_mask', 'x'\]"),
        (spaces.Sequence(STEER), FEW, r"is Sequence.*ObservationWrapper of your own.*env.wrappers"),
        (spaces.Dict({}), FEW, "there is nothing"),
        (spaces.Dict({0: STEER}), FEW, "the key 0, and names of fields are texts"),
        (PARTED_MASK, PAIR, r"entries of its own \(action_mask.0\).*\(2, 3\) or \(6,\) or \(5,\)"),
        (
            STEER,
            spaces.Box(0, 10**6, (2,), np.int32),
            "at most 1,000.*ActionWrapper of your own",
        ),
        (STEER, spaces.Tuple([FEW, spaces.Text(2)]), "part '1' of its action space is Text"),
        (STEER, spaces.Tuple([FEW, STEER]), r"mixes choices \(0\) with numbers \(1\).*env.wrapp"),
        (STEER, spaces.Tuple([]), "action space is Tuple.*nothing"),
    ],
)
def test_what_cannot_be_translated_says_what_to_wrap(seen, done, words):
    with pytest.raises(ProximaError, match=words):
        translate("refused", seen, done)


def test_a_wrapper_that_a_refusal_names_helps():
    class Talks(gymnasium.Env):
        observation_space, action_space = TEXT, FEW

    flat = gymnasium.wrappers.FlattenObservation(Talks())
    assert isinstance(translate("flat", flat.observation_space, FEW).observation_space, Box)
    less = gymnasium.wrappers.FilterObservation(Talks(), ["x"])
    assert translate("less", less.observation_space, FEW).observation_space.names == ("x",)


def test_a_tuple_is_taken_as_the_environment_gives_it():
    seen = spaces.Tuple([spaces.Box(0, 1, (2,)), spaces.Dict({"n": spaces.Discrete(3)})])
    kind = translate("pair", seen, FEW).interface.observation
    one = (np.zeros(2), {"n": 1})
    many = (np.zeros((2, 2)), {"n": np.array([1, 2])})
    named = {"0": np.zeros((2, 2)), "1": {"n": np.array([1, 2])}}
    assert is_single(one, kind) and not is_single(many, kind) and not is_single(named, kind)
    equal(as_rows(many, kind), as_rows(named, kind))
    equal(as_rows(many, kind), as_rows({"0": many[0], "1.n": many[1]["n"]}, kind))
    for wrong, words in (
        ([one, one], "takes a tuple of 2, as its environment gives it"),
        (np.zeros(2), "takes a tuple of 2"),
        ((np.zeros(2),), "a tuple has 1 entries; this policy takes 2"),
        ((np.zeros(2), (1,)), "lack 1.n"),
    ):
        with pytest.raises(ValueError, match=words):
            as_rows(wrong, kind)
