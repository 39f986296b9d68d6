"""Convolutional torsos: pictures (..., height, width, channels) ↦ feature vectors.

    nature    Mnih et al. 2015 (Nature 518): 32 of 8×8 stride 4, 64 of 4×4 stride 2, 64 of 3×3, then 512
    impala    Espeholt et al. 2018 (arXiv 1802.01561), the deep one: 16, 32, 32 channels, each stage a 3×3
              convolution, a pool 3×3 stride 2 and two residual blocks of two 3×3 convolutions; then 256
    minatar   Young and Tian 2019 (arXiv 1903.03176): 16 of 3×3, then 128

Every layer is followed by relu. Weights are orthogonal, as in all nets here.

A convolution is a product of matrices: the pixels under the kernel lie side by side in a row, and a stride
that divides the kernel first becomes channels. On CPUs XLA's own convolution has a slower gradient, and over
trials, each with weights of its own, a much slower one (docs/performance.md).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.pictures import Picture
from proxima.nets.mlp import Linear, affine, linear, orthogonal

TorsoName = Literal["nature", "impala", "minatar"]
IMPALA_CHANNELS = (16, 32, 32)
IMPALA_WIDTH = 256
NATURE_SIDE = 36  # the smallest picture of which nature's last convolution leaves a pixel
GAIN = 2**0.5  # orthogonal weights before a relu


class Layer(NamedTuple):
    """A convolution in a stack: how many outputs, from which pixels."""

    outputs: int
    kernel: int
    stride: int


STACKS: dict[str, tuple[tuple[Layer, ...], int]] = {
    "nature": ((Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1)), 512),
    "minatar": ((Layer(16, 3, 1),), 128),
}


class Convolution(eqx.Module):
    """Pictures ↦ pictures: at every place a linear function of the pixels under the kernel."""

    weight: Array  # (kernel · kernel · channels, outputs)
    bias: Array
    kernel: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    padding: int = eqx.field(static=True)  # pixels of zeros around the picture

    def __call__(self, x: Array) -> Array:
        pad, outputs = self.padding, self.weight.shape[-1]
        if pad:
            x = jnp.pad(x, [(0, 0)] * (x.ndim - 3) + [(pad, pad), (pad, pad), (0, 0)])
        weight, stride = self.weight, self.stride
        if stride > 1:
            x, weight = _stride_as_channels(x, weight, self.kernel, stride)
        side = self.kernel // stride
        height, width = (size - side + 1 for size in x.shape[-3:-1])
        columns = jnp.concatenate(
            [
                x[..., top : top + height, left : left + width, :]
                for top in range(side)
                for left in range(side)
            ],
            axis=-1,
        )
        return affine(columns, weight.reshape(-1, outputs), self.bias)


def _stride_as_channels(x: Array, weight: Array, kernel: int, stride: int) -> tuple[Array, Array]:
    """The same convolution without a stride: blocks of stride × stride pixels become one pixel's channels."""
    *leading, height, width, channels = x.shape
    rows, columns = (size // stride * stride for size in (height, width))
    blocks = x[..., :rows, :columns, :].reshape(
        *leading, rows // stride, stride, columns // stride, stride, channels
    )
    blocks = jnp.swapaxes(blocks, -4, -3)
    blocks = blocks.reshape(*leading, rows // stride, columns // stride, -1)
    side = kernel // stride
    split = weight.reshape(side, stride, side, stride, channels, -1)
    return blocks, jnp.swapaxes(split, 1, 2).reshape(kernel * kernel * channels, -1)


def convolution(
    key: Array, channels: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0
) -> Convolution:
    """An orthogonal convolution with zero bias; the stride divides the kernel."""
    weight = GAIN * orthogonal(key, kernel * kernel * channels, outputs)
    return Convolution(weight, jnp.zeros(outputs), kernel, stride, padding)


class Stack(eqx.Module):
    """Convolutions one after the other, then a layer over all that they leave: nature and minatar."""

    convolutions: tuple[Convolution, ...]
    last: Linear

    def __call__(self, x: Array) -> Array:
        for layer in self.convolutions:
            x = jax.nn.relu(layer(x))
        return jax.nn.relu(self.last(_flat(x)))


class Residual(eqx.Module):
    """x ↦ x + what two convolutions make of it."""

    first: Convolution
    second: Convolution

    def __call__(self, x: Array) -> Array:
        return x + self.second(jax.nn.relu(self.first(jax.nn.relu(x))))


class Stage(eqx.Module):
    """A part of impala: more channels, half the picture, two residual blocks."""

    widen: Convolution
    blocks: tuple[Residual, ...]

    def __call__(self, x: Array) -> Array:
        x = pooled(self.widen(x))
        for block in self.blocks:
            x = block(x)
        return x


class Impala(eqx.Module):
    """Stages one after the other, then a layer over all that they leave."""

    stages: tuple[Stage, ...]
    last: Linear

    def __call__(self, x: Array) -> Array:
        for stage in self.stages:
            x = stage(x)
        return jax.nn.relu(self.last(jax.nn.relu(_flat(x))))


Torso = Stack | Impala


def pooled(x: Array) -> Array:
    """The largest of each 3 × 3 pixels, at every second place; the picture is padded by one pixel of -∞."""
    rows = _largest_of_three(x, -3)
    return _largest_of_three(rows, -2)


def _largest_of_three(x: Array, axis: int) -> Array:
    """Along one axis; its length is halved, rounded up."""
    size = -(-x.shape[axis] // 2)
    padding = [(0, 0)] * x.ndim
    padding[axis] = (1, 1 + x.shape[axis] % 2)
    wide = jnp.pad(x, padding, constant_values=-jnp.inf)
    parts = [jax.lax.slice_in_dim(wide, start, start + 2 * size - 1, 2, axis) for start in range(3)]
    return jnp.maximum(jnp.maximum(parts[0], parts[1]), parts[2])


def _flat(x: Array) -> Array:
    return x.reshape(*x.shape[:-3], -1)


def torso(key: Array, name: TorsoName, picture: Picture, width: int = 1) -> Torso:
    """A torso of fresh weights for such pictures; `width` times the paper's channels."""
    if name == "impala":
        return _impala(key, picture, [width * channels for channels in IMPALA_CHANNELS])
    layers, outputs = STACKS[name]
    return _stack(
        key, picture, [one._replace(outputs=width * one.outputs) for one in layers], outputs
    )


def features(torso: Torso) -> int:
    """Numbers in a torso's feature vector."""
    return int(torso.last.bias.shape[0])


def _stack(key: Array, picture: Picture, layers: Sequence[Layer], outputs: int) -> Stack:
    keys = jax.random.split(key, len(layers) + 1)
    height, width, channels = picture.shape
    convolutions = []
    for layer_key, layer in zip(keys[:-1], layers, strict=True):
        convolutions.append(convolution(layer_key, channels, *layer))
        height, width = ((size - layer.kernel) // layer.stride + 1 for size in (height, width))
        channels = layer.outputs
    return Stack(tuple(convolutions), linear(keys[-1], height * width * channels, outputs, GAIN))


def _impala(key: Array, picture: Picture, widths: Sequence[int]) -> Impala:
    *stage_keys, last_key = jax.random.split(key, len(widths) + 1)
    height, width, channels = picture.shape
    stages = []
    for stage_key, outputs in zip(stage_keys, widths, strict=True):
        widen, *rest = jax.random.split(stage_key, 5)
        same = [convolution(one, outputs, outputs, 3, padding=1) for one in rest]
        blocks = Residual(same[0], same[1]), Residual(same[2], same[3])
        stages.append(Stage(convolution(widen, channels, outputs, 3, padding=1), blocks))
        height, width, channels = -(-height // 2), -(-width // 2), outputs
    return Impala(tuple(stages), linear(last_key, height * width * channels, IMPALA_WIDTH, GAIN))
