"""The net for packing: items and empty spaces attend to themselves and to each other.

    items, spaces ↦ tokens
    each block:   every token attends to those of its own kind; then an item to the spaces that hold it,
                  a space to the items that fit; then a two-layer perceptron of its own
    policy:       space · item for every pair, over spaces × items, the item counting fastest
    value:        masked means of the tokens

As Jumanji's network for BinPack, with one torso for policy and value and one perceptron per block and
kind. A length goes in as itself and as sines and cosines: a product of two such vectors tells how nearly
two lengths agree, and packing is a matter of lengths that agree exactly.

Items already placed and places without a space are masked: they change nothing. A token that may attend
to nothing gets nothing. No dropout, no positions: the net does not care about the order of its tokens.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from annotated_types import Ge, Interval
from jax import Array

from proxima.core.distributions import Categorical, categorical
from proxima.core.errors import ProximaError
from proxima.core.faults import Fault
from proxima.core.network import WIDEST, Network
from proxima.core.spaces import ACTION_MASK, Fields, ObservationSpace, Space
from proxima.core.types import PyTree
from proxima.nets.mlp import MLP, Linear, linear, mlp

FIELDS = (ACTION_MASK, "ems", "ems_mask", "items", "items_mask", "items_placed")
FREQUENCIES = tuple(math.pi * 2.0**k for k in range(6))  # up to 1/32 of the container's length
EXPANSION = 2  # of the perceptron within a block


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Items and spaces that attend to each other."""

    kind: Literal["attention"] = "attention"
    """The kind of net."""
    blocks: Annotated[int, Interval(ge=1, le=128)] = 2
    """Rounds of attending."""
    heads: Annotated[int, Ge(1)] = 4
    """Attention heads; divides width."""
    width: Annotated[int, Interval(ge=1, le=WIDEST)] = 64
    """Numbers per item and per space."""


class Attention(eqx.Module):
    """What a kind of token brings to one round of attention: query, key and value in one product."""

    project: Linear  # width → 3 width
    merge: Linear


class Tokens(eqx.Module):
    """One kind of token within a block."""

    own: Attention
    other: Attention
    perceptron: MLP


class Masks(NamedTuple):
    """Which tokens count, and which pairs may be."""

    items: Array  # (..., items)
    spaces: Array  # (..., spaces)
    pairs: Array  # (..., spaces, items)


class Block(eqx.Module):
    """Attention within each kind, then across, then a perceptron."""

    items: Tokens
    spaces: Tokens
    heads: int = eqx.field(static=True)

    def __call__(self, items: Array, spaces: Array, masks: Masks) -> tuple[Array, Array]:
        items = items + self._within(self.items.own, items, masks.items)
        spaces = spaces + self._within(self.spaces.own, spaces, masks.spaces)
        of_items = self._heads(self.items.other, items)
        of_spaces = self._heads(self.spaces.other, spaces)
        pairs = masks.pairs[..., None, :, :]
        to_items = attend(of_items[0], *of_spaces[1:], jnp.swapaxes(pairs, -1, -2))
        to_spaces = attend(of_spaces[0], *of_items[1:], pairs)
        items = items + _merged(self.items.other, to_items)
        spaces = spaces + _merged(self.spaces.other, to_spaces)
        items = items + self.items.perceptron(standard(items))
        spaces = spaces + self.spaces.perceptron(standard(spaces))
        return items, spaces

    def _within(self, part: Attention, tokens: Array, mask: Array) -> Array:
        return _merged(part, attend(*self._heads(part, tokens), mask[..., None, None, :]))

    def _heads(self, part: Attention, tokens: Array) -> tuple[Array, Array, Array]:
        """Query, key and value, (..., heads, tokens, width / heads)."""
        flat = part.project(standard(tokens))
        apart = flat.reshape(*flat.shape[:-1], 3, self.heads, -1)
        query, key, value = jnp.moveaxis(apart, (-3, -2), (0, -3))
        return query, key, value


class PackingActorCritic(eqx.Module):
    """A policy over space × item and a value, from one torso."""

    item_layer: Linear
    space_layer: Linear
    blocks: tuple[Block, ...]
    item_key: Linear
    space_query: Linear
    critic: MLP | None  # None in an exported policy

    def policy(self, obs: PyTree) -> Categorical:
        """The distribution over the pairs at each observation."""
        return self._policy(*self._tokens(obs))

    def value(self, obs: PyTree) -> Array:
        """V of each observation."""
        return self(obs)[1]

    def __call__(self, obs: PyTree) -> tuple[Categorical, Array]:
        """Both, the torso evaluated once."""
        assert self.critic is not None
        items, spaces, masks = self._tokens(obs)
        pooled = [*pool(items, masks.items), *pool(spaces, masks.spaces)]
        value = self.critic(jnp.concatenate(pooled, axis=-1))[..., 0]
        return self._policy(items, spaces, masks), value

    def _tokens(self, obs: PyTree) -> tuple[Array, Array, Masks]:
        items, spaces = obs["items"], obs["ems"]
        room = spaces[..., 1::2] - spaces[..., 0::2]
        pairs = obs[ACTION_MASK].astype(bool)
        masks = Masks(
            obs["items_mask"].astype(bool) & ~obs["items_placed"].astype(bool),
            obs["ems_mask"].astype(bool),
            pairs.reshape(*pairs.shape[:-1], spaces.shape[-2], items.shape[-2]),
        )
        items = self.item_layer(lengths_features(items))
        spaces = self.space_layer(jnp.concatenate([spaces, lengths_features(room)], axis=-1))
        for block in self.blocks:
            items, spaces = block(items, spaces, masks)
        return standard(items), standard(spaces), masks

    def _policy(self, items: Array, spaces: Array, masks: Masks) -> Categorical:
        query, key = self.space_query(spaces), self.item_key(items)
        logits = jnp.einsum("...sd,...id->...si", query, key) * key.shape[-1] ** -0.5
        flat = (*logits.shape[:-2], -1)
        return categorical(logits.reshape(flat), masks.pairs.reshape(flat))


def attend(query: Array, key: Array, value: Array, mask: Array) -> Array:
    """Values (..., queries, d) weighted by softmax of query · key; 0 where the mask leaves nothing."""
    scores = jnp.einsum("...qd,...kd->...qk", query, key) * query.shape[-1] ** -0.5
    mask = jnp.broadcast_to(mask, scores.shape)
    scores = jnp.where(mask, scores, -1e9)
    weights = jnp.exp(scores - jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    weights = jnp.where(mask, weights, 0.0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    mixed = jnp.einsum("...qk,...kd->...qd", weights, value)
    return mixed / jnp.maximum(total, 1e-9)


def standard(x: Array) -> Array:
    """Tokens with mean 0 and deviation 1; scale and shift are left to the layer that follows."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-5)


def pool(tokens: Array, mask: Array) -> tuple[Array, Array]:
    """The mean of the tokens that count, and their sum over the number of all."""
    total = jnp.sum(jnp.where(mask[..., None], tokens, 0.0), axis=-2)
    count = jnp.sum(mask, axis=-1, dtype=jnp.float32)[..., None]
    return total / jnp.maximum(count, 1.0), total / mask.shape[-1]


def lengths_features(lengths: Array) -> Array:
    """The lengths, their product, and sines and cosines of each."""
    angles = lengths[..., None] * jnp.asarray(FREQUENCIES).reshape((1,) * lengths.ndim + (-1,))
    angles = angles.reshape(*lengths.shape[:-1], -1)
    product = jnp.prod(lengths, axis=-1, keepdims=True)
    return jnp.concatenate([lengths, product, jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _merged(part: Attention, heads: Array) -> Array:
    mixed = jnp.swapaxes(heads, -3, -2)
    return part.merge(mixed.reshape(*mixed.shape[:-2], -1))


def packing_actor_critic(
    key: Array, config: AttentionConfig, observation_space: ObservationSpace, action_space: Space
) -> PackingActorCritic:
    """A net for the observation; its policy starts near uniform."""
    width = config.width
    keys = iter(jax.random.split(key, 5 + 10 * config.blocks))

    def attention() -> Attention:
        return Attention(
            linear(next(keys), width, 3 * width, 1.0), linear(next(keys), width, width, 0.5)
        )

    def tokens() -> Tokens:
        sizes = (width, EXPANSION * width, width)
        return Tokens(attention(), attention(), mlp(next(keys), sizes, "relu", 0.5))

    per_length = 2 * len(FREQUENCIES)
    return PackingActorCritic(
        item_layer=linear(next(keys), 4 + 3 * per_length, width, 1.0),
        space_layer=linear(next(keys), 10 + 3 * per_length, width, 1.0),
        blocks=tuple(Block(tokens(), tokens(), config.heads) for _ in range(config.blocks)),
        item_key=linear(next(keys), width, width, 0.3),
        space_query=linear(next(keys), width, width, 0.3),
        critic=mlp(next(keys), (4 * width, width, 1), "relu", 1.0),
    )


def check_spaces(
    config: AttentionConfig, observation_space: ObservationSpace, action_space: Space, env_name: str
) -> None:
    """An error in words where the observation has not the fields this net takes."""
    names = observation_space.names if isinstance(observation_space, Fields) else ()
    if set(FIELDS) <= set(names):
        return
    has = f"it has {', '.join(names)}" if names else "it is one array"
    raise ProximaError(
        f"network.kind: attention needs an observation with the fields {', '.join(FIELDS)}; {has}; "
        "use mlp"
    )


def checks(scenario: Any) -> Iterator[Fault]:
    """Heads that do not divide the width."""
    width, heads = scenario.network.width, scenario.network.heads
    if width % heads:
        nearest = heads * max(1, round(width / heads))
        yield Fault(
            (("network", "width"), ("network", "heads")),
            f"{width} is not a multiple of network.heads ({heads}); take {nearest}, say",
        )


NETWORK = Network(
    config=AttentionConfig,
    make=packing_actor_critic,
    check_spaces=check_spaces,
    shares_torso=lambda config, space: True,
    raw_observations=True,
    checks=checks,
)
