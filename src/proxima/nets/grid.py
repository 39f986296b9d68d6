"""The net for boards: a value-iteration network (Tamar et al. 2016, arXiv 1602.02867), policy and value.

    planes:   the boards, and each position as a board that is 1 there
    sweeps:   v ← source + gate · (largest v of the four cells beside), source and gate made of the planes
    outputs:  a perceptron of what lies at each position and beside it

A value iteration network (Tamar et al. 2016, arXiv 1602.02867) whose convolution and maximum over actions
are one maximum over neighbours: with source 1 at the target and gate 0 at walls, v becomes gamma to the
power of the distance. Weights are shared by all cells and sweeps, so what is learnt on some boards holds
on all. The sweeps have no matrix products and are many times cheaper than convolutions on a CPU.

Single numbers in the observation, such as a step count, are not read.
"""

from dataclasses import dataclass
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from annotated_types import Ge
from jax import Array

from proxima.core.distributions import Categorical, categorical
from proxima.core.spaces import Discrete, Fields, ObservationSpace, action_mask
from proxima.core.types import PyTree
from proxima.nets.mlp import MLP, Linear, linear, mlp

# Where a position is looked at: the cell itself and the four beside it.
AROUND = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))
FIRST_GATE = 2.0  # before the sigmoid: values reach far from the start
FIRST_SOURCE = -3.0  # before the softplus: what is at few cells stands out from the start


@dataclass(frozen=True, kw_only=True)
class GridConfig:
    """The size of the net that sweeps over boards."""

    channels: Annotated[int, Ge(1)] = 4
    """Values per cell."""
    sweeps: Annotated[int, Ge(1)] = 40
    """Rounds of spreading: how many cells away something can be to be seen."""


class Layout(eqx.Module):
    """Which fields are boards and which are positions on them."""

    boards: tuple[str, ...] = eqx.field(static=True)
    positions: tuple[str, ...] = eqx.field(static=True)
    shape: tuple[int, int] = eqx.field(static=True)


class GridActorCritic(eqx.Module):
    """A policy and a value of boards."""

    source: Linear
    gate: Linear
    actor: MLP
    critic: MLP | None  # None in an exported policy
    layout: Layout
    sweeps: int = eqx.field(static=True)

    def policy(self, obs: PyTree) -> Categorical:
        """The action distribution at each observation."""
        return categorical(self.actor(self._features(obs)), action_mask(obs))

    def value(self, obs: PyTree) -> Array:
        """V of each observation."""
        return self._value(self._features(obs))

    def __call__(self, obs: PyTree) -> tuple[Categorical, Array]:
        """Both, the sweeps done once."""
        features = self._features(obs)
        return categorical(self.actor(features), action_mask(obs)), self._value(features)

    def _value(self, features: Array) -> Array:
        assert self.critic is not None
        return self.critic(features)[..., 0]

    def _features(self, obs: PyTree) -> Array:
        leading = obs[self.layout.boards[0]].shape[:-2]
        planes, places = self._planes(obs)
        swept = sweep(jax.nn.softplus(self.source(planes)), self.gate(planes), self.sweeps)
        looks = [look(swept, place) for place in places]
        return jnp.concatenate(looks, axis=-1).reshape(*leading, -1)

    def _planes(self, obs: PyTree) -> tuple[Array, list[Array]]:
        """All planes (B, rows, columns, planes), and the last ones alone: where each position is."""
        rows, columns = self.layout.shape
        boards = [obs[name].reshape(-1, rows, columns) for name in self.layout.boards]
        row, column = jnp.arange(rows)[None, :, None], jnp.arange(columns)[None, None, :]
        places = []
        for name in self.layout.positions:
            at = obs[name].reshape(-1, 2)[:, :, None, None]
            places.append((row == at[:, 0]) & (column == at[:, 1]))
        planes = jnp.stack([*boards, *places], axis=-1).astype(jnp.float32)
        return planes, [place.astype(jnp.float32) for place in places]


def sweep(source: Array, gate: Array, sweeps: int) -> Array:
    """Values (B, rows, columns, channels) after so many rounds; beyond the edge there is nothing."""
    passing = jax.nn.sigmoid(gate)

    def spread(value: Array, _: None) -> tuple[Array, None]:
        beside = [shifted(value, move) for move in AROUND[1:]]
        best = jnp.maximum(jnp.maximum(*beside[:2]), jnp.maximum(*beside[2:]))
        return source + passing * best, None

    return jax.lax.scan(spread, source, None, length=sweeps)[0]


def shifted(value: Array, move: tuple[int, int]) -> Array:
    """At each cell the value of the cell one move away, 0 beyond the edge."""
    (down, right), (rows, columns) = move, value.shape[1:3]
    padded = jnp.pad(value, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return padded[:, 1 + down : 1 + down + rows, 1 + right : 1 + right + columns]


def look(value: Array, place: Array) -> Array:
    """The values around a place: each as a share of the largest there, and the logarithm of that one.

    Values fall off with distance; their shares do not.
    """
    around = jnp.stack(
        [jnp.einsum("brcv,brc->bv", shifted(value, move), place) for move in AROUND], axis=1
    )
    largest = jnp.max(around, axis=1, keepdims=True) + 1e-6
    return jnp.concatenate([around / largest, jnp.log(largest)], axis=1).reshape(len(value), -1)


def read_layout(observation_space: ObservationSpace) -> Layout | None:
    """The boards (yes or no in each cell) and the positions on them, None where there are not both."""
    if not isinstance(observation_space, Fields):
        return None
    boards = [n for n, s in observation_space.items() if len(s.shape) == 2 and s.dtype == "bool"]
    positions = [n for n, s in observation_space.items() if s.shape == (2,) and "int" in s.dtype]
    shapes = {s.shape for n, s in observation_space.items() if n in boards}
    others = [s for n, s in observation_space.items() if len(s.shape) > 1 and n not in boards]
    if len(shapes) != 1 or not positions or others:
        return None
    rows, columns = shapes.pop()
    return Layout(tuple(boards), tuple(positions), (rows, columns))


def fits(observation_space: ObservationSpace, action_space: object) -> bool:
    """Whether the observation is made of boards and positions, and an action is one choice."""
    return read_layout(observation_space) is not None and isinstance(action_space, Discrete)


def grid_actor_critic(
    key: Array,
    config: GridConfig,
    hidden: tuple[int, ...],
    activation: str,
    spaces: tuple[Fields, Discrete],
) -> GridActorCritic:
    """A net for the boards; its policy starts near uniform."""
    layout = read_layout(spaces[0])
    assert layout is not None
    source_key, gate_key, actor_key, critic_key = jax.random.split(key, 4)
    planes = len(layout.boards) + len(layout.positions)
    features = len(layout.positions) * (len(AROUND) + 1) * config.channels
    source = linear(source_key, planes, config.channels, 3.0)
    gate = linear(gate_key, planes, config.channels, 1.0)
    return GridActorCritic(
        source=Linear(source.weight, source.bias + FIRST_SOURCE),
        gate=Linear(gate.weight, gate.bias + FIRST_GATE),
        actor=mlp(actor_key, (features, *hidden, spaces[1].n), activation, 0.01),
        critic=mlp(critic_key, (features, *hidden, 1), activation, 1.0),
        layout=layout,
        sweeps=config.sweeps,
    )
