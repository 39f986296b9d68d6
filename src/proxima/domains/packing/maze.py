"""Jumanji's Maze with its side as a number: a square maze in a corner of the grid, walls everywhere else.

The grid's shape is part of the compiled program; how much of it the maze fills is not, so a curriculum can
begin with small mazes. A maze that fills a square grid is Jumanji's own to the bit: the same recursive
division, begun with a chamber of that side (jumanji/environments/commons/maze_utils/maze_generation.py).
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.spaces import Discrete, Fields, MultiDiscrete
from proxima.core.types import PyTree

NAME = "Maze-v0"
SIDE = "side"  # among env.params
SMALLEST = 2  # side with two free cells: one to begin in, one to go to


class Maze(eqx.Module):
    """The problem: mazes of a side, stepped by Jumanji."""

    side: Array  # int32
    grid: Any  # Jumanji's, of jumanji.py

    @property
    def observation_space(self) -> Fields:
        space: Fields = self.grid.observation_space
        return space

    @property
    def action_space(self) -> Discrete | MultiDiscrete:
        space: Discrete | MultiDiscrete = self.grid.action_space
        return space

    @property
    def parts(self) -> tuple[int, ...]:
        parts: tuple[int, ...] = self.grid.parts
        return parts

    def generate(self, key: Array) -> tuple[PyTree, PyTree]:
        """A new maze and its first observation."""
        inner = copy.copy(self.grid.inner)  # which is no pytree, and cannot have the side as a leaf
        inner.generator = Corner(inner.num_rows, inner.num_cols, self.side)
        seen: tuple[PyTree, PyTree] = self.grid.seen(*inner.reset(key))
        return seen

    def step(self, state: PyTree, action: Array, key: Array) -> tuple[PyTree, PyTree, Array, Array]:
        """As in a maze of any size."""
        stepped: tuple[PyTree, PyTree, Array, Array] = self.grid.step(state, action, key)
        return stepped


class Corner(NamedTuple):
    """A generator as Jumanji takes them: mazes of a side in the first rows and columns."""

    num_rows: int
    num_cols: int
    side: Array

    def __call__(self, key: Array) -> Any:
        from jumanji.environments.routing.maze.types import Position, State

        key, maze_key, cells_key = jax.random.split(key, 3)
        walls = corner_walls(self.num_rows, self.num_cols, self.side, maze_key)
        cells = jnp.arange(self.num_rows * self.num_cols)
        ends = jax.random.choice(cells_key, cells, (2,), replace=False, p=~walls.flatten())
        rows, columns = jnp.divmod(ends, self.num_cols)
        return State(
            agent_position=Position(row=rows[0], col=columns[0]),
            target_position=Position(row=rows[1], col=columns[1]),
            walls=walls,
            action_mask=None,
            key=key,
            step_count=jnp.array(0, jnp.int32),
        )


def corner_walls(rows: int, columns: int, side: Array, key: Array) -> Array:
    """Where walls are, (rows, columns): a random maze in a corner, and nothing but walls around it."""
    from jumanji.environments.commons.maze_utils import maze_generation as division
    from jumanji.environments.commons.maze_utils.stack import create_stack, stack_push

    chambers = create_stack(rows * columns, 4)
    chambers = stack_push(chambers, jnp.stack([0, 0, side, side]))
    empty = division.create_empty_maze(columns, rows)
    start = division.MazeGenerationState(empty, chambers, key)
    divided = jax.lax.while_loop(
        division.chambers_remaining, division.split_next_chamber, start
    ).maze
    row, column = jnp.indices((rows, columns), sparse=True)
    return divided.astype(bool) | (row >= side) | (column >= side)


def largest_side(grid: Any) -> int:
    """That of the largest square maze in the grid."""
    return min(grid.inner.num_rows, grid.inner.num_cols)


def check_sides(path: str, sides: Sequence[Any], grid: Any) -> None:
    """An error in words where mazes of these sides do not fit the grid."""
    largest = largest_side(grid)
    for side in sides:
        is_number = not isinstance(side, bool | str)
        if not (is_number and side == round(side) and SMALLEST <= side <= largest):
            raise ProximaError(
                f"{path}: {side} is not allowed: a whole number from {SMALLEST} to {largest}, what "
                "env.params' num_rows and num_cols leave room for"
            )
