"""The net for boards: a value iteration network (Tamar et al. 2016, arXiv 1602.02867), policy and value.

    planes:   the boards, and each position as a board that is 1 there
    sweeps:   v ← source + gate · (largest v of the four cells beside); source and gate are made of the
              cell's planes
    outputs:  a perceptron of what lies at each position and beside it

The paper's convolution and maximum over actions are one maximum over neighbours: with source 1 at the
target and gate 0 at walls, v becomes gamma to the power of the distance. Weights are shared by all cells
and sweeps, so what is learnt on some boards holds on all. The sweeps have no matrix products and are many
times cheaper than convolutions on a CPU. Single numbers in the observation, such as a step count, are not
read.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from annotated_types import Interval, Len
from jax import Array

from proxima.core.distributions import Categorical, categorical
from proxima.core.errors import ProximaError
from proxima.core.network import WIDEST, Network
from proxima.core.spaces import Discrete, Fields, ObservationSpace, Space, action_mask
from proxima.core.types import PyTree
from proxima.nets.mlp import MLP, Linear, mlp

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # to the four cells beside
# First weights, before the square and the sigmoid: each channel starts from one kind of position, boards
# start as obstacles, and what lies far is seen. Training may change all of it.
FIRST_SOURCE, FIRST_GATE, FIRST_OBSTACLE, FIRST_NOISE = 1.0, 2.0, -4.0, 0.1


@dataclass(frozen=True, kw_only=True)
class GridConfig:
    """Values that spread over boards."""

    kind: Literal["grid"] = "grid"
    """The kind of net."""
    channels: Annotated[int, Interval(ge=1, le=WIDEST)] = 4
    """Values per cell."""
    sweeps: Annotated[int, Interval(ge=1, le=10_000)] = 40
    """Rounds of spreading: how many cells away something can be to be seen."""
    hidden: Annotated[tuple[Annotated[int, Interval(ge=1, le=WIDEST)], ...], Len(1, 64)] = (64, 64)
    """Widths of the hidden layers of its outputs."""
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    """Nonlinearity after each of them."""


class Layout(NamedTuple):
    """Which fields are boards and which are positions on them."""

    boards: tuple[str, ...]
    positions: tuple[str, ...]
    shape: tuple[int, ...]


class GridActorCritic(eqx.Module):
    """A policy and a value of boards."""

    source: Array  # (planes, channels)
    gate: Linear
    actor: MLP
    critic: MLP | None  # None in an exported policy
    layout: Layout = eqx.field(static=True)
    sweeps: int = eqx.field(static=True)

    def policy(self, obs: PyTree) -> Categorical:
        """The action distribution at each observation."""
        return categorical(self.actor(self._features(obs)), action_mask(obs))

    def value(self, obs: PyTree) -> Array:
        """V of each observation."""
        return self(obs)[1]

    def __call__(self, obs: PyTree) -> tuple[Categorical, Array]:
        """Both, the sweeps done once."""
        assert self.critic is not None
        features = self._features(obs)
        policy = categorical(self.actor(features), action_mask(obs))
        return policy, self.critic(features)[..., 0]

    def _features(self, obs: PyTree) -> Array:
        rows, columns = self.layout.shape
        boards = [obs[name].reshape(-1, rows, columns) for name in self.layout.boards]
        row, column = jnp.arange(rows)[None, :, None], jnp.arange(columns)[None, None, :]
        positions = []  # (B, rows, columns), each 1 where it is
        for name in self.layout.positions:
            at = obs[name].reshape(-1, 2)[:, :, None, None]
            positions.append((row == at[:, 0]) & (column == at[:, 1]))
        planes = jnp.stack([*boards, *positions], axis=-1).astype(jnp.float32)
        source, gate = _batch_last(planes @ self.source), _batch_last(self.gate(planes))
        # Squared: where there is nothing there is no source, else the sum of all drowns what is far.
        swept = sweep(jnp.square(source), jax.nn.sigmoid(gate), self.sweeps)
        at_positions = [_batch_last(at.astype(jnp.float32)[..., None]) for at in positions]
        features = jnp.concatenate([values_around(swept, at) for at in at_positions])
        leading = obs[self.layout.boards[0]].shape[:-2]
        return features.T.reshape(*leading, -1)


def _batch_last(x: Array) -> Array:
    """(B, rows, columns, n) → (rows, columns, n, B): so that the inner loops run over the batch."""
    return jnp.moveaxis(x, 0, -1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def sweep(source: Array, gate: Array, sweeps: int) -> Array:
    """Values (rows, columns, channels, B) after so many rounds; beyond the edge there is nothing.

    The gradient takes the values as settled: each cell hands what it is blamed for on to the neighbour
    whose value it took, round by round, as in the sweeps themselves. Differentiating the rounds one by
    one gives the same numbers for settled values, but must keep every round and takes 13 times as long.
    """

    def spread(_: int, value: Array) -> Array:
        return source + gate * _best([shifted(value, move) for move in MOVES])

    return jax.lax.fori_loop(0, sweeps, spread, source)


def _sweep_forward(source: Array, gate: Array, sweeps: int) -> tuple[Array, tuple[Array, Array]]:
    value = sweep(source, gate, sweeps)
    return value, (gate, value)


def _sweep_backward(sweeps: int, kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    gate, value = kept
    beside = [shifted(value, move) for move in MOVES]
    best = _best(beside)
    open_yet = jnp.ones(value.shape, bool)
    handed = []  # the gate towards the neighbour whose value was taken, the first of equal ones
    for neighbour in beside:
        taken = open_yet & (neighbour == best)
        open_yet = open_yet & ~taken
        handed.append(jnp.where(taken, gate, 0.0))

    def spread(_: int, blame: Array) -> Array:
        parts = [
            shifted(share * blame, (-down, -right))
            for share, (down, right) in zip(handed, MOVES, strict=True)
        ]
        return slope + parts[0] + parts[1] + parts[2] + parts[3]

    blame = jax.lax.fori_loop(0, sweeps, spread, slope)
    return blame, blame * best


sweep.defvjp(_sweep_forward, _sweep_backward)


def _best(beside: list[Array]) -> Array:
    return jnp.maximum(jnp.maximum(*beside[:2]), jnp.maximum(*beside[2:]))


def shifted(value: Array, move: tuple[int, int], beyond: float = 0.0) -> Array:
    """At each cell the value of the cell one move away, or beyond the edge; rows and columns first."""
    axis = 0 if move[0] else 1
    edge = jnp.full_like(jax.lax.slice_in_dim(value, 0, 1, axis=axis), beyond)
    if sum(move) > 0:
        return jnp.concatenate([jax.lax.slice_in_dim(value, 1, None, axis=axis), edge], axis)
    return jnp.concatenate([edge, jax.lax.slice_in_dim(value, 0, -1, axis=axis)], axis)


def values_around(value: Array, position: Array) -> Array:
    """The values at a position and beside it as shares of the largest, and the logarithm of that one.

    Values fall off with distance; their shares do not. Returns (features, B).
    """
    moved = [value, *(shifted(value, move) for move in MOVES)]
    around = jnp.stack([jnp.sum(values * position, axis=(0, 1)) for values in moved])
    largest = jnp.max(around, axis=0, keepdims=True) + 1e-6
    return jnp.concatenate([around / largest, jnp.log(largest)]).reshape(-1, value.shape[-1])


def read_layout(observation_space: ObservationSpace) -> Layout | None:
    """The boards (yes or no in each cell) and the positions on them, None where there are not both."""
    if not isinstance(observation_space, Fields):
        return None
    spaces = dict(observation_space.items())
    boards = [name for name, s in spaces.items() if len(s.shape) == 2 and s.dtype == "bool"]
    positions = [name for name, s in spaces.items() if s.shape == (2,) and "int" in s.dtype]
    shapes = {spaces[name].shape for name in boards}
    others = [name for name, s in spaces.items() if len(s.shape) > 1 and name not in boards]
    if len(shapes) != 1 or not positions or others:
        return None
    return Layout(tuple(boards), tuple(positions), shapes.pop())


def grid_actor_critic(
    key: Array, config: GridConfig, observation_space: ObservationSpace, action_space: Space
) -> GridActorCritic:
    """A net for the boards; its policy starts near uniform."""
    layout = read_layout(observation_space)
    assert layout is not None and isinstance(action_space, Discrete)  # as check_spaces has it
    source_key, gate_key, actor_key, critic_key = jax.random.split(key, 4)
    boards, positions, channels = len(layout.boards), len(layout.positions), config.channels
    shape = boards + positions, channels
    of_position = jnp.arange(positions)[:, None] == jnp.arange(channels)[None, :] % positions
    source = jnp.concatenate([jnp.zeros((boards, channels)), FIRST_SOURCE * of_position])
    gate = jnp.zeros(shape).at[:boards].set(FIRST_OBSTACLE)
    gate = gate + FIRST_NOISE * jax.random.normal(gate_key, shape)
    features = positions * (len(MOVES) + 2) * channels
    return GridActorCritic(
        source=source + FIRST_NOISE * jax.random.normal(source_key, shape),
        gate=Linear(gate, jnp.full(channels, FIRST_GATE)),
        actor=mlp(actor_key, (features, *config.hidden, action_space.n), config.activation, 0.01),
        critic=mlp(critic_key, (features, *config.hidden, 1), config.activation, 1.0),
        layout=layout,
        sweeps=config.sweeps,
    )


def check_spaces(
    config: GridConfig, observation_space: ObservationSpace, action_space: Space, env_name: str
) -> None:
    """An error in words unless the observation is boards and positions, and an action is one choice."""
    if not isinstance(action_space, Discrete):
        raise ProximaError(
            f"network.kind: grid needs actions that are one choice, and {env_name}'s are not; use mlp"
        )
    if read_layout(observation_space) is not None:
        return
    names = observation_space.names if isinstance(observation_space, Fields) else ()
    has = f"it has {', '.join(names)}" if names else "it is one array"
    raise ProximaError(
        "network.kind: grid needs an observation with boards of truth values in one shape and "
        f"positions on them; {has}; use mlp"
    )


NETWORK = Network(
    config=GridConfig,
    make=grid_actor_critic,
    check_spaces=check_spaces,
    shares_torso=lambda config, space: True,
    raw_observations=True,
)
