"""Torsos against slow loops, and which observations go through one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.core.normalize import add_samples, first_moments, normalize
from proxima.core.pictures import Picture, picture_of
from proxima.core.spaces import Box, Discrete, box, fields, mask_space
from proxima.nets.actor_critic import NETWORK, MLPConfig, actor_critic
from proxima.nets.deterministic import deterministic_actor, q_ensemble
from proxima.nets.encoder import Encoder, check_normalized, check_torso, encoder
from proxima.nets.mlp import MLP
from proxima.nets.torsos import convolution, features, pooled, torso

RNG = np.random.default_rng(0)
GREY = box(0, 255, (6, 7), "uint8")
LAST = box(0, 255, (40, 42, 3), "uint8")
FIRST = box(0, 255, (3, 40, 42), "uint8")
BOARD = box(0.0, 1.0, (10, 10, 4))


def slow_convolution(x, weight, bias, kernel, stride, padding):
    """Every output pixel by a loop over the pixels under the kernel; x is (height, width, channels)."""
    x = np.pad(x, ((padding, padding), (padding, padding), (0, 0))).astype(np.float64)
    weight = np.asarray(weight, np.float64).reshape(kernel, kernel, x.shape[2], -1)
    height, width = ((size - kernel) // stride + 1 for size in x.shape[:2])
    result = np.tile(np.asarray(bias, np.float64), (height, width, 1))
    for row in range(height):
        for column in range(width):
            for down in range(kernel):
                for right in range(kernel):
                    pixel = x[row * stride + down, column * stride + right]
                    result[row, column] += pixel @ weight[down, right]
    return result


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [((10, 10), 3, 1, 0), ((9, 7), 3, 1, 1), ((21, 18), 8, 4, 0), ((11, 12), 4, 2, 0)],
)
def test_a_convolution_is_the_slow_loop(size, kernel, stride, padding):
    layer = convolution(jax.random.key(1), 3, 5, kernel, stride, padding)
    layer = type(layer)(layer.weight, jnp.arange(5.0), kernel, stride, padding)
    x = RNG.standard_normal((2, *size, 3)).astype(np.float32)
    expected = [
        slow_convolution(one, layer.weight, layer.bias, kernel, stride, padding) for one in x
    ]
    np.testing.assert_allclose(jax.jit(layer.__call__)(x), expected, atol=1e-4)

    def total(weight, x):
        return jnp.sum(jnp.sin(type(layer)(weight, layer.bias, kernel, stride, padding)(x)))

    def theirs(weight, x):
        weight = weight.reshape(kernel, kernel, 3, 5)
        pads = [(padding, padding)] * 2
        axes = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, weight, (stride, stride), pads, dimension_numbers=axes)
        return jnp.sum(jnp.sin(y + jnp.broadcast_to(layer.bias, y.shape)))

    ours, others = (
        jax.jit(jax.grad(f, (0, 1)))(layer.weight, jnp.asarray(x)) for f in (total, theirs)
    )
    for one, other in zip(ours, others, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("size", [(9, 6), (8, 5)])
def test_pooling_is_the_slow_loop(size):
    x = RNG.standard_normal((*size, 2)).astype(np.float32)
    wide = np.pad(x, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    rows, columns = (-(-side // 2) for side in size)
    expected = [
        [
            wide[2 * row : 2 * row + 3, 2 * column : 2 * column + 3].max((0, 1))
            for column in range(columns)
        ]
        for row in range(rows)
    ]
    np.testing.assert_array_equal(pooled(jnp.asarray(x)), expected)


@pytest.mark.parametrize(
    ("name", "side", "width", "parameters"),
    [
        # 4·8·8·32+32 + 32·4·4·64+64 + 64·3·3·64+64 + 3136·512+512, the sizes of the paper
        ("nature", 84, 512, 1_684_128),
        ("minatar", 10, 128, 4 * 9 * 16 + 16 + 1024 * 128 + 128),
        # stages of 1 + 4 convolutions, then 11·11·32 → 256
        ("impala", 84, 256, 592 + 4 * 2320 + 4640 + 4 * 9248 + 5 * 9248 + 3872 * 256 + 256),
    ],
)
def test_torsos_have_the_sizes_of_their_papers(name, side, width, parameters):
    picture = Picture(side, side, 4, 2)
    made = jax.eval_shape(lambda key: torso(key, name, picture), jax.random.key(0))
    assert features(made) == width
    assert sum(leaf.size for leaf in jax.tree.leaves(made)) == parameters


def test_what_is_a_picture():
    assert picture_of((84, 84, 4), "uint8") == Picture(84, 84, 4, 2)
    assert picture_of((4, 84, 84), "uint8") == Picture(84, 84, 4, 0)
    assert picture_of((10, 10, 10), "bool") == Picture(10, 10, 10, 2)
    assert picture_of((64, 48), "uint8") == Picture(64, 48, 1, None)
    for shape, dtype in [((64, 48), "float32"), ((6, 3, 3), "int8"), ((9,), "uint8"), ((), "bool")]:
        assert picture_of(shape, dtype) is None


def test_channels_first_and_last_give_the_same_features():
    one = encoder(jax.random.key(0), "auto", LAST)
    other = Encoder(one.torsos, FIRST, one.size)
    x = RNG.integers(0, 256, (2, 3, *LAST.shape), np.uint8)
    features, others = one(x), other(np.moveaxis(x, -1, -3))
    np.testing.assert_array_equal(features, others)
    assert features.shape == (2, 3, one.size) == (2, 3, 512)


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_bytes_are_scaled_in_the_net_with_a_torso_or_without(choice):
    numbers = box(0.0, 1.0, LAST.shape)
    x = RNG.integers(0, 256, (2, *LAST.shape), np.uint8)
    seen = encoder(jax.random.key(0), choice, LAST)(x)
    scaled = encoder(jax.random.key(0), choice, numbers)((x / 255).astype(np.float32))
    np.testing.assert_allclose(seen, scaled, atol=1e-5)
    assert seen.dtype == jnp.float32 and float(jnp.max(seen)) <= (1.0 if choice == "none" else 9.0)


def test_fields_without_a_picture_are_laid_beside_its_features():
    space = fields(
        {"speed": box(-1, 1, (2,)), "view": GREY, "action_mask": mask_space(Discrete(3))}
    )
    made = encoder(jax.random.key(0), "auto", space)
    obs = {
        "speed": jnp.asarray([[3.0, 4.0]]),
        "view": jnp.zeros((1, 6, 7), jnp.uint8),
        "action_mask": jnp.ones((1, 3), bool),
    }
    features = made(obs)
    assert features.shape == (1, made.size) == (1, 130) and set(made.torsos) == {"view"}
    np.testing.assert_array_equal(features[0, :2], [3.0, 4.0])


def test_an_encoder_of_vectors_has_no_weights():
    made = encoder(jax.random.key(0), "auto", box(-1, 1, (3, 4)))
    assert not jax.tree.leaves(made) and made.size == 12


def test_each_torso_learns_from_every_layer_and_trials_have_their_own():
    @partial(jax.jit, static_argnums=(0, 1))
    def both(name, space, x):
        made = jax.vmap(lambda key: encoder(key, name, space))(
            jax.random.split(jax.random.key(0), 2)
        )
        slope, seen = jax.vmap(jax.grad(lambda net, x: (jnp.sum(net(x)), net(x)), has_aux=True))(
            made, x
        )
        alone = jax.tree.map(lambda leaf: leaf[1], made)
        return slope, seen, alone(x[1])

    for name in ("minatar", "impala", "nature"):
        # small ones, but for nature: orthogonal weights of a large layer take a while
        space = box(0, 255, (36, 37, 1) if name == "nature" else (8, 9, 1), "uint8")
        x = RNG.integers(0, 256, (2, 1, *space.shape), np.uint8)  # (trials, batch, ...)
        slope, seen, alone = both(name, space, x)
        assert all(bool(np.any(leaf != 0)) for leaf in map(np.asarray, jax.tree.leaves(slope))), (
            name
        )
        np.testing.assert_allclose(seen[1], alone, atol=1e-4)


@pytest.mark.parametrize("shape", [(84, 84, 4), (4, 84, 84), (84, 84), (10, 10, 4), (210, 160, 3)])
def test_no_picture_goes_into_an_mlp_in_silence(shape):
    space = box(0, 255, shape, "uint8")
    check_torso("auto", space, "Game")

    def makes_torso(make):
        net = jax.eval_shape(make, jax.random.key(0))
        layers = jax.tree.leaves(net, is_leaf=lambda part: isinstance(part, MLP))
        inputs = [layer.layers[0].weight.shape[0] for layer in layers if isinstance(layer, MLP)]
        assert inputs
        return max(inputs) < np.prod(shape)

    config, actions = MLPConfig(), box(-1, 1, (2,))
    for make in (
        lambda key: actor_critic(key, config, space, Discrete(3)),
        lambda key: deterministic_actor(key, config, space, actions),
        lambda key: q_ensemble(key, config, space, actions, 2),
    ):
        assert makes_torso(make)
    on_purpose = MLPConfig(torso="none")
    assert not makes_torso(lambda key: actor_critic(key, on_purpose, space, Discrete(3)))
    assert NETWORK.shares_torso(config, space) and not NETWORK.shares_torso(on_purpose, space)


@pytest.mark.parametrize(
    ("choice", "space", "words"),
    [
        (
            "nature",
            box(-1, 1, (3,)),
            "nature is for pictures, and Game observes none.*use auto or none",
        ),
        (
            "nature",
            BOARD,
            "36 × 36 pixels at least, and Game observes.*10 × 10; use minatar or impala",
        ),
        ("auto", box(0, 255, (4, 84, 84, 3), "uint8"), "three axes at most; .*env.frame_stack"),
    ],
)
def test_a_torso_that_does_not_fit_is_refused(choice, space: Box, words):
    with pytest.raises(ProximaError, match=words):
        NETWORK.check_spaces(MLPConfig(torso=choice), space, Discrete(2), "Game")


def test_pictures_of_bytes_are_not_normalised():
    space = fields({"speed": box(-1, 1, (2,)), "view": GREY})
    obs = {
        "speed": jnp.asarray(RNG.standard_normal((50, 2)), jnp.float32),
        "view": jnp.asarray(RNG.integers(0, 256, (50, 6, 7), np.uint8)),
    }
    zeros = {"speed": np.zeros(2, np.float32), "view": np.zeros((6, 7), np.uint8)}
    moments = add_samples(first_moments(zeros), obs, jnp.ones(50, bool))
    seen = normalize(moments, obs)
    assert seen["view"].dtype == jnp.uint8
    np.testing.assert_array_equal(seen["view"], obs["view"])
    assert float(jnp.std(seen["speed"])) == pytest.approx(1.0, abs=1e-2)
    check_normalized(space, "Game", True)
    with pytest.raises(
        ProximaError, match="normalize_observations: Game observes pictures of bytes"
    ):
        check_normalized(GREY, "Game", True)


def test_without_hidden_layers_the_heads_follow_the_torso():
    for shared in (False, True):
        config = MLPConfig(hidden=(), shared_trunk=shared)
        net = actor_critic(jax.random.key(0), config, BOARD, Discrete(3))
        distribution, value = net(jnp.zeros((2, *BOARD.shape)))
        assert distribution.logits.shape == (2, 3) and value.shape == (2,)
        assert net.trunk is None
