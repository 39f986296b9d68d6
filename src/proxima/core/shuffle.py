"""Shuffling without a sort: a random affine map i → (a·i + b) mod n is a permutation when gcd(a, n) = 1.

A full sort costs a quarter of a PPO update on a CPU; this costs a multiplication per index. The
multipliers on offer are spread over the range, so that neighbours in the batch (the same instant, the
same episode) land in different minibatches. docs/algorithms/ppo.md shows that learning is not worse.
"""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

CHOICES = 256
LARGEST = 2**32


@cache
def multipliers(count: int) -> tuple[int, ...]:
    """Numbers coprime to `count` whose products with an index fit 32 bits, spread over the range."""
    top = min(count, LARGEST // count)
    usable = [a for a in range(1, top + 1) if math.gcd(a, count) == 1]
    # Tiny steps, and steps that nearly wrap, would keep neighbours together.
    spread = [a for a in usable if min(a, count - a) > math.isqrt(count)] or usable
    picks = np.linspace(0, len(spread) - 1, min(CHOICES, len(spread))).round().astype(int)
    return tuple(spread[i] for i in picks)


def permutations(key: Array, epochs: int, count: int) -> Array:
    """Random permutations of 0 .. count-1, (epochs, count), each one of 256·count affine ones."""
    choices = jnp.asarray(multipliers(count), jnp.uint32)
    bits = jax.random.bits(key, (2, epochs, 1), jnp.uint32)
    multiplier, shift = choices[bits[0] % len(choices)], bits[1] % count
    index = jnp.arange(count, dtype=jnp.uint32)[None]
    return ((index * multiplier % count + shift) % count).astype(jnp.int32)
