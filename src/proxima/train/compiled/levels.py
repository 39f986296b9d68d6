"""Environments whose parameters have levels: a curriculum chooses among them, an evaluation fixes one.

The level is drawn when an episode begins and is part of its state: an episode ends as it began whatever the
curriculum does meanwhile, environments side by side may be of different levels, and a search over copies of
a state looks ahead in that state's own level.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.curriculum import Tally
from proxima.core.spaces import ObservationSpace, Space
from proxima.core.types import Env, PyTree, Step

LEVEL = 0x1E7E1  # folded into a reset's key: the level shares no stream with the environment
TALLY = "curriculum/tally"  # of a rollout's sums: the only one by level
SEPARATOR = "."


class Attempt(NamedTuple):
    """An episode under way, and its level."""

    inner: PyTree
    level: Array  # int32


class Leveled(eqx.Module):
    """An environment some of whose numbers depend on the level of the episode."""

    env: Env
    values: tuple[Array, ...]  # of every number by level, (levels,)
    chances: Array  # of each level at a reset, (levels,)
    paths: tuple[str, ...] = eqx.field(static=True)  # where in the environment the numbers are
    observation_space: ObservationSpace = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[Attempt, PyTree]:
        total = jnp.cumsum(self.chances)
        drawn = jax.random.uniform(jax.random.fold_in(key, LEVEL)) * total[-1]
        level = jnp.argmax(total > drawn).astype(jnp.int32)
        inner, obs = self.at(level).reset(key)  # its own key: the episode is as without levels
        return Attempt(inner, level), obs

    def step(self, state: Attempt, action: PyTree, key: Array) -> tuple[Attempt, Step]:
        inner, step = self.at(state.level).step(state.inner, action, key)
        return Attempt(inner, state.level), step

    def at(self, level: Array) -> Env:
        """The environment with a level's numbers."""
        values = dict(zip(self.paths, self.values, strict=True))

        def numbers(path: Any, leaf: Array) -> Array:
            name = path_name(path)
            return values[name][level] if name in values else leaf

        env: Env = jax.tree_util.tree_map_with_path(numbers, self.env)
        return env


def path_name(path: Any) -> str:
    """Where a leaf is, as a text: params.length."""
    return jax.tree_util.keystr(path, simple=True, separator=SEPARATOR)


def only(env: Leveled, level: int) -> Leveled:
    """The environment with episodes of one level."""
    chances = jnp.zeros_like(env.chances).at[level].set(1.0)
    fixed: Leveled = eqx.tree_at(lambda env: env.chances, env, chances)
    return fixed


def at_standing(collector: Any, standing: PyTree) -> Any:
    """The collector with the levels that a trial's curriculum gives it; as it is where there is none."""
    if standing is None:
        return collector
    chances = collector.course.rule.chances(standing)
    # Levels after those of the curriculum are for evaluation.
    padded = jnp.zeros_like(collector.env.chances).at[: len(chances)].set(chances)
    return eqx.tree_at(lambda collector: collector.env.chances, collector, padded)


def followed(
    collector: Any, standing: PyTree, sums: dict[str, Any]
) -> tuple[PyTree, dict[str, Array]]:
    """Where a trial stands after a rollout with these sums; the sums with the level in place of the tally."""
    if standing is None:
        return None, sums
    rule = collector.course.rule
    chances = rule.chances(standing)
    counted: Tally = sums[TALLY]
    others = {name: value for name, value in sums.items() if name != TALLY}
    level = jnp.sum(chances * jnp.arange(1, len(chances) + 1))
    return rule.follow(standing, counted), others | {"curriculum/level": level}
