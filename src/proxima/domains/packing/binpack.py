"""Jumanji's BinPack, stepped faster: the same instances, spaces, masks and rewards, bit for bit.

Items go into one container. The room left is a set of empty maximal spaces (EMS): boxes that hold no
item and lie in no other such box. An action names a space and an item, which is put into the space's
corner nearest the origin.

    after an item is placed:
      every space it cuts is replaced by what is left of it below and above the item, on each axis
      a piece is dropped where another piece or an uncut space holds it, equal pieces but for the first
      the pieces take the free places, in order of direction and then of the space they come from

Jumanji compares all pieces of all directions with each other and adds them one after the other. But a
piece of one direction never lies in one of another direction: it would have to lie beyond a face of the
item that its own space crosses. And two pieces of one direction share the coordinate they were cut at. So
one comparison of the spaces with each other, coordinate by coordinate, tells all (tests/domains/packing).

Left out: Jumanji's viewer, its debug mode, and rewards other than the dense one.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.spaces import ACTION_MASK, Discrete, Fields, box, fields, mask_space
from proxima.core.types import PyTree

SIDES = 6  # coordinates of a box: x1 x2 y1 y2 z1 z2; as directions: below and above on each axis
LOW, HIGH = slice(0, None, 2), slice(1, None, 2)


class State(NamedTuple):
    """One packing under way; lengths in the container's own unit."""

    spaces: Array  # (6, spaces) int32, x1 x2 y1 y2 z1 z2
    spaces_mask: Array  # (spaces,)
    items: Array  # (3, items) int32
    items_mask: Array  # (items,)
    items_placed: Array  # (items,)
    location: Array  # (3, items) int32: the corner nearest the origin, of placed items
    order: Array  # (observed spaces,) int32: places of the largest spaces, the largest first


class BinPack(eqx.Module):
    """The problem: instances from Jumanji's generator, steps of our own."""

    container: Array  # (3,) int32
    generator: Any = eqx.field(static=True)
    observed: int = eqx.field(static=True)  # spaces an observation shows

    @property
    def parts(self) -> tuple[int, int]:
        """Jumanji's own action: which space, which item."""
        return self.observed, self.generator.max_num_items

    @property
    def action_space(self) -> Discrete:
        """Space × item, the item counting fastest."""
        return Discrete(math.prod(self.parts))

    @property
    def observation_space(self) -> Fields:
        items = self.generator.max_num_items
        return fields(
            {
                ACTION_MASK: mask_space(self.action_space),
                "ems": box(0, 1, (self.observed, SIDES)),
                "ems_mask": box(0, 1, (self.observed,), "bool"),
                "items": box(0, 1, (items, 3)),
                "items_mask": box(0, 1, (items,), "bool"),
                "items_placed": box(0, 1, (items,), "bool"),
            }
        )

    def generate(self, key: Array) -> tuple[State, PyTree]:
        """A new instance and its first observation."""
        drawn = self.generator(key)
        ems = drawn.ems
        sides = [ems.x1, ems.x2, ems.y1, ems.y2, ems.z1, ems.z2]
        state = State(
            spaces=jnp.stack(sides).astype(jnp.int32),
            spaces_mask=drawn.ems_mask,
            items=jnp.stack(list(drawn.items)).astype(jnp.int32),
            items_mask=drawn.items_mask,
            items_placed=drawn.items_placed,
            location=jnp.stack(list(drawn.items_location)).astype(jnp.int32),
            order=jnp.zeros(self.observed, jnp.int32),
        )
        return self.observe(state)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, PyTree, Array, Array]:
        """State, observation, reward and whether no item can be placed any more.

        An invalid action changes nothing, earns nothing and ends the episode, as in Jumanji.
        """
        shown, item = jnp.divmod(action, state.items_mask.size)
        index = state.order[shown]
        space, size = state.spaces[:, index], state.items[:, item]
        valid = state.spaces_mask[index] & state.items_mask[item] & ~state.items_placed[item]
        valid = valid & jnp.all(size <= space[HIGH] - space[LOW])
        corner = space[LOW]
        placed = jnp.stack([corner, corner + size], axis=1).reshape(SIDES)
        spaces, spaces_mask = cut_spaces(state.spaces, state.spaces_mask, placed)
        chosen = (jnp.arange(state.items_mask.size) == item) & valid
        here = jnp.broadcast_to(chosen, state.location.shape)
        state, obs = self.observe(
            state._replace(
                spaces=jnp.where(valid, spaces, state.spaces),
                spaces_mask=jnp.where(valid, spaces_mask, state.spaces_mask),
                items_placed=state.items_placed | chosen,
                location=jnp.where(here, corner[:, None], state.location),
            )
        )
        reward = jnp.where(valid, volume(size) / volume(self.container), 0.0)
        return state, obs, reward, ~valid | ~jnp.any(obs[ACTION_MASK])

    def observe(self, state: State) -> tuple[State, PyTree]:
        """The state with its order of spaces, and the observation: lengths as shares of the container's."""
        volumes = volume(state.spaces[HIGH] - state.spaces[LOW]) * state.spaces_mask
        order = largest_first(volumes)[: self.observed]
        spaces, spaces_mask = state.spaces[:, order], state.spaces_mask[order]
        room = spaces[HIGH] - spaces[LOW]
        open_items = state.items_mask & ~state.items_placed
        fits = jnp.all(state.items[:, None, :] <= room[:, :, None], axis=0)
        obs = {
            ACTION_MASK: (fits & spaces_mask[:, None] & open_items[None, :]).reshape(-1),
            "ems": (spaces / jnp.repeat(self.container, 2)[:, None]).T,
            "ems_mask": spaces_mask,
            "items": (state.items / self.container[:, None]).T,
            "items_mask": state.items_mask,
            "items_placed": state.items_placed,
        }
        return state._replace(order=order), obs


def volume(lengths: Array) -> Array:
    """The product of the three lengths, the first axis, as float32: integers would overflow."""
    x, y, z = lengths.astype(jnp.float32)
    return x * y * z


def largest_first(values: Array) -> Array:
    """The indices of the values from the largest to the smallest, equal ones in their order.

    By counting how many come before each: a compiled sort takes many times as long at this size.
    """
    index = jnp.arange(values.size, dtype=jnp.int32)
    other, own = values[None, :], values[:, None]
    before = (other > own) | ((other == own) & (index[None, :] < index[:, None]))
    rank = jnp.sum(before, axis=1, dtype=jnp.int32)
    return jnp.sum(jnp.where(rank[None, :] == index[:, None], index[None, :], 0), axis=1)


def cut_spaces(spaces: Array, mask: Array, item: Array) -> tuple[Array, Array]:
    """The spaces (6, N) and which of them are in use, after a box (6,) was placed."""
    count = mask.size
    below, above = item[LOW, None], item[HIGH, None]
    touched = jnp.all(jnp.maximum(spaces[LOW], below) < jnp.minimum(spaces[HIGH], above), axis=0)
    cut, kept = mask & touched, mask & ~touched
    # Direction d keeps what of a space lies before (d even) or behind (d odd) the item's side d: it sets
    # the space's opposite side, d ^ 1, to the item's side d.
    even = (jnp.arange(SIDES) % 2 == 0)[:, None]
    sides, opposite = item[:, None], spaces.reshape(3, 2, count)[:, ::-1].reshape(SIDES, count)
    pieces = cut[None, :] & jnp.where(even, spaces < sides, spaces > sides)
    within_kept = kept[None, :] & jnp.where(even, sides <= opposite, sides >= opposite)

    beyond = _beyond(spaces)
    ignored = jnp.array([1 << (d ^ 1) for d in range(SIDES)], jnp.int32)[:, None, None]
    # (direction, i, j): piece i lies in piece j, or may in j
    inside = (beyond[None] & ~ignored) == 0
    holds = (beyond.T[None] & ~ignored) == 0
    numbers = jnp.arange(count)
    first = jnp.broadcast_to((numbers[None, :] < numbers[:, None])[None], inside.shape)
    drops = (pieces[:, None, :] & (~holds | first)) | within_kept[:, None, :]
    added = pieces & ~jnp.any(inside & drops, axis=2)

    # The r-th added piece goes to the r-th free place.
    count_until = jnp.cumsum(added.reshape(-1), dtype=jnp.int32)
    free_rank = jnp.cumsum(~kept, dtype=jnp.int32)  # from 1
    source = jnp.sum(count_until[None, :] < free_rank[:, None], axis=1)
    filled = ~kept & (free_rank <= count_until[-1])
    direction, parent = jnp.divmod(jnp.minimum(source, SIDES * count - 1), count)
    rows = jnp.arange(SIDES)[:, None]
    new = jnp.where(rows == (direction ^ 1)[None, :], item[direction][None, :], spaces[:, parent])
    after = jnp.where(filled[None, :], new, spaces)
    free = jnp.sum(~kept)
    overflow = count_until[-1] > free
    start = jnp.where(overflow, jnp.sum(count_until < free + 1), SIDES * count)
    after = _overwrite(after, spaces, pieces, item, start)
    return after, kept | filled


def _beyond(spaces: Array) -> Array:
    """Bit r of entry (i, j): space i reaches beyond space j at side r; 0 means that i lies in j."""
    bits = jnp.zeros((spaces.shape[1],) * 2, jnp.int32)
    for side in range(SIDES):
        own, other = spaces[side, :, None], spaces[side, None, :]
        outside = own < other if side % 2 == 0 else own > other
        bits = bits | (outside.astype(jnp.int32) << side)
    return bits


def _overwrite(after: Array, spaces: Array, pieces: Array, item: Array, start: Array) -> Array:
    """Pieces from number `start` on, for which no place is free: each overwrites the first place.

    So does Jumanji, one piece after the other, although it says that they are ignored. It is rare, and
    then the loop runs; else it has no turns.
    """
    count = spaces.shape[1]
    even = jnp.arange(SIDES) % 2 == 0

    def inside(box: Array, boxes: Array) -> Array:
        beyond = jnp.where(even[:, None], box[:, None] < boxes, box[:, None] > boxes)
        return ~jnp.any(beyond, axis=0)

    numbers = jnp.arange(SIDES * count)

    def next_piece(number: Array) -> Array:
        return jnp.min(jnp.where(pieces.reshape(-1) & (numbers >= number), numbers, numbers.size))

    def add(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        number, after = carry
        direction, parent = jnp.divmod(number, count)
        at_side = jnp.arange(SIDES) == (direction ^ 1)
        piece = jnp.where(at_side, item[direction], spaces[:, parent])
        siblings = jnp.where(at_side[:, None], item[direction], spaces)
        larger = inside(piece, siblings) & jnp.any(siblings != piece[:, None], axis=0)
        dropped = jnp.any(larger & pieces[direction]) | jnp.any(inside(piece, after))
        first = jnp.where(dropped, after[:, 0], piece)
        return next_piece(number + 1), after.at[:, 0].set(first)

    carry = (next_piece(start), after)
    _, after = jax.lax.while_loop(lambda carry: carry[0] < numbers.size, add, carry)
    return after
