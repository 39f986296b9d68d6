"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): W + (α/r) A B, with W frozen and B first zero.

Adapters are a tree of their own beside the base's weights, (layers, ...) like them, so that policy, value
and reward can share one base; the reference is the base without any.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt
from jax import Array

TARGETS = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """The size of the adapters and where they sit."""

    rank: Annotated[int, Ge(1)] = 16
    """Rank of the change to each matrix."""
    alpha: Annotated[float, Gt(0)] = 32.0
    """The change is scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q", "k", "v", "o")
    """Matrices that get an adapter: q, k, v, o of attention; gate, up, down of the MLP."""


class LowRank(eqx.Module):
    """The change to one matrix; in a decoder each leaf has a leading axis of layers."""

    a: Array  # (inputs, rank)
    b: Array  # (rank, outputs)
    scale: float = eqx.field(static=True)  # alpha / rank; no leaf, so that no optimizer moves it


class Adapters(NamedTuple):
    """The changes to a decoder's matrices; None where there is none."""

    q: LowRank | None = None
    k: LowRank | None = None
    v: LowRank | None = None
    o: LowRank | None = None
    gate: LowRank | None = None
    up: LowRank | None = None
    down: LowRank | None = None


def fresh_adapters(key: Array, config: LoraConfig, matrices: dict[str, Array]) -> Adapters:
    """Adapters that change nothing yet, for stacked matrices (layers, inputs, outputs) by target."""
    changes = {}
    for target, target_key in zip(TARGETS, jax.random.split(key, len(TARGETS)), strict=True):
        if target in config.targets and target in matrices:
            layers, inputs, outputs = matrices[target].shape
            bound = (1.0 / inputs) ** 0.5
            shape = (layers, inputs, config.rank)
            a = jax.random.uniform(target_key, shape, minval=-bound, maxval=bound)
            b = jnp.zeros((layers, config.rank, outputs))
            changes[target] = LowRank(a, b, config.alpha / config.rank)
    return Adapters(**changes)
