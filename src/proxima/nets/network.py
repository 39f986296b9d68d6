"""Nets of a user's own, and what every kind of net must fulfil before an agent is made with it.

    network_of(NETWORK)       a `Network`, as our own files end with
    network_of(make)          a function (key, observation space, action space) → module
    network_of(module)        an `eqx.Module` with weights: training starts from them, in every trial
    network_at("my_package:NETWORK")    any of these, by its path

A user's module has `policy(obs)`, a distribution of `core/distributions.py`; `value(obs)`, one number; and
`critic`, the part that only the value needs, or None. Both functions take ONE observation, as Equinox's
layers do: leading axes are mapped over here. Leaves that are no arrays, such as the activation functions
in Equinox's layers, are kept apart from the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.algorithm import Problem
from proxima.core.distributions import Distribution, MultiCategorical, categorical
from proxima.core.errors import ProximaError
from proxima.core.functions import object_at
from proxima.core.network import Network
from proxima.core.spaces import MultiDiscrete, ObservationSpace, Space, valid_choices, zeros
from proxima.core.types import PyTree
from proxima.nets.encoder import check_normalized

PARTS = ("policy", "value", "critic")  # that a user's module must have


@dataclass(frozen=True, kw_only=True)
class CustomConfig:
    """A net of the user's own, which has no settings here."""

    kind: str = "custom"
    """Where it is: package.module:name."""


class CustomNet(eqx.Module):
    """A user's module over any leading axes, its arrays apart from all else it is made of."""

    arrays: PyTree  # the module with None for what is no array
    others: PyTree = eqx.field(static=True)  # the module with None for its arrays
    observation_space: ObservationSpace = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    @property
    def critic(self) -> PyTree:
        return self.arrays.critic

    def policy(self, obs: PyTree) -> Distribution:
        """The action distribution at each observation."""
        return self._over_leading_axes(lambda module, one: self._valid(module.policy(one)), obs)

    def value(self, obs: PyTree) -> Array:
        """V of each observation."""
        return self._over_leading_axes(lambda module, one: module.value(one), obs)

    def __call__(self, obs: PyTree) -> tuple[Distribution, Array]:
        """Both."""
        return self._over_leading_axes(
            lambda module, one: (self._valid(module.policy(one)), module.value(one)), obs
        )

    def _valid(self, distribution: Distribution) -> Distribution:
        """The distribution over what there is to choose, where a part of the actions has fewer choices."""
        space, valid = self.action_space, valid_choices(self.action_space, None, 0)
        if valid is None or not isinstance(space, MultiDiscrete):
            return distribution
        if (
            not isinstance(distribution, MultiCategorical)
            or distribution.logits.shape != valid.shape
        ):
            raise ProximaError(
                f"network: the parts of an action choose among {space.sizes}, so its policy is a "
                f"MultiCategorical of logits {valid.shape}, those beyond a part's own choices left unused"
            )
        return MultiCategorical(*categorical(distribution.logits, jnp.asarray(valid)))

    def _over_leading_axes(self, function: Callable[[Any, PyTree], PyTree], obs: PyTree) -> PyTree:
        module = eqx.combine(self.arrays, self.others)
        one = jax.tree.leaves(zeros(self.observation_space))[0]
        first = jax.tree.leaves(obs)[0]
        leading = first.shape[: first.ndim - one.ndim]
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(leading) :]), obs)
        results = jax.vmap(lambda row: function(module, row))(rows)
        return jax.tree.map(lambda leaf: leaf.reshape(*leading, *leaf.shape[1:]), results)


@dataclass(frozen=True)
class Maker:
    """Makes nets by a user's function; equal for equal functions."""

    factory: Callable[[Array, ObservationSpace, Space], Any]

    def __call__(
        self, key: Array, config: Any, observation_space: ObservationSpace, action_space: Space
    ) -> CustomNet:
        module = self.factory(key, observation_space, action_space)
        return custom_net(module, observation_space, action_space)


class Copies:
    """A function that copies a user's module; equal to another only if it is of the same object."""

    def __init__(self, module: eqx.Module):
        self.module = module

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Copies) and self.module is other.module

    def __hash__(self) -> int:
        return id(self.module)

    def __call__(self, key: Array, *spaces: ObservationSpace | Space) -> eqx.Module:
        # A learner's arrays are given up at its first update, and the user's must outlive it.
        return jax.tree.map(
            lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, self.module
        )


def network_of(net: Any) -> Network:
    """The `Network` of a user's: itself, of a module, or of a function that makes modules."""
    if isinstance(net, Network):
        return net
    factory = Copies(net) if isinstance(net, eqx.Module) else net
    if callable(factory):  # whether its nets fit the spaces shows when one is made
        return Network(CustomConfig, Maker(factory))
    raise ProximaError(
        f"network: {net!r} is no net; give a Network, an eqx.Module with {', '.join(PARTS)}, or a "
        "function (key, observation_space, action_space) that makes one"
    )


def network_at(path: str) -> Network:
    """The user's net at package.module:name, as `network.kind` says it."""
    return network_of(object_at(path, "network.kind"))


def custom_net(module: Any, observation_space: ObservationSpace, action_space: Space) -> CustomNet:
    """A user's module made ready, or an error in words where a part is missing or of another shape."""
    missing = [part for part in PARTS if not hasattr(module, part)]
    if missing or not isinstance(module, eqx.Module):
        lacks = f" without {' and '.join(missing)}" if missing else ", no eqx.Module"
        raise ProximaError(
            f"network: {type(module).__name__} is a class{lacks}; a net is an eqx.Module with "
            f"{', '.join(PARTS)} (None where the value needs no part of its own)"
        )
    net = CustomNet(*eqx.partition(module, eqx.is_array), observation_space, action_space)
    obs = jax.tree.map(jnp.asarray, zeros(observation_space))
    mode, value = jax.eval_shape(lambda net: (net.policy(obs).mode(), net.value(obs)), net)
    if value.shape != ():
        raise ProximaError(
            f"network: the value of one observation is one number, and {type(module).__name__}'s "
            f"has the shape {value.shape}; return value[0], say"
        )
    if mode.shape != action_space.shape:
        raise ProximaError(
            f"network: an action has the shape {action_space.shape}, and those of "
            f"{type(module).__name__}'s policy have {mode.shape}"
        )
    return net


def check_network(problem: Problem, normalize_observations: bool) -> None:
    """An error in words where the net does not fit the spaces, or what it sees would be normalised."""
    network = problem.network
    spaces = problem.observation_space, problem.action_space
    network.kind.check_spaces(network.config, *spaces, problem.env_name)
    check_normalized(problem.observation_space, problem.env_name, normalize_observations)
    if network.kind.raw_observations and normalize_observations:
        raise ProximaError(
            f"algorithm.normalize_observations: the {network.name} net takes lengths and positions "
            "as they are; set it to false, or network.kind to mlp"
        )
