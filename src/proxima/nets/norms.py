"""LayerNorm and RMSNorm, computed in float32 whatever they are given; gradients that a CPU takes fast."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class Norm(eqx.Module):
    """A layer's scale and shift; no shift for RMSNorm."""

    scale: Array
    shift: Array | None


def normed(norm: Norm, x: Array, eps: float) -> Array:
    """x with size 1 along its last axis, for LayerNorm mean 0 too, then scaled and shifted."""
    exact = x.astype(jnp.float32)
    if norm.shift is not None:
        exact = exact - jnp.mean(exact, axis=-1, keepdims=True)
    scaled = _scaled(_to_size_one(exact, eps).astype(x.dtype), norm.scale)
    return scaled if norm.shift is None else scaled + _spread(norm.shift, x)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _to_size_one(x: Array, eps: float) -> Array:
    """x over the root of its mean square; its gradient written out takes a CPU half the time."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)


def _size_forward(x: Array, eps: float) -> tuple[Array, tuple[Array, Array]]:
    factor = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)
    return x * factor, (x, factor)


def _size_backward(eps: float, residuals: tuple[Array, Array], slope: Array) -> tuple[Array]:
    x, factor = residuals
    unit = x * factor
    return (factor * (slope - unit * jnp.mean(slope * unit, axis=-1, keepdims=True)),)


_to_size_one.defvjp(_size_forward, _size_backward)


@jax.custom_vjp
def _scaled(x: Array, scale: Array) -> Array:
    """x times a vector; the vector's gradient is a product with ones, which a CPU adds up faster."""
    return x * _spread(scale, x)


def _scaled_forward(x: Array, scale: Array) -> tuple[Array, tuple[Array, Array]]:
    return _scaled(x, scale), (x, scale)


def _scaled_backward(residuals: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, scale = residuals
    products = (slope * x).reshape(-1, x.shape[-1])
    ones = jnp.ones((1, len(products)), products.dtype)
    return slope * _spread(scale, slope), (ones @ products)[0]


_scaled.defvjp(_scaled_forward, _scaled_backward)


def _spread(vector: Array, like: Array) -> Array:
    return jnp.broadcast_to(vector, like.shape)
