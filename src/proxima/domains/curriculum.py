"""A scenario's curriculum over an environment: its numbers found by name, its levels as arrays, its rule.

Every number of a compiled environment is a leaf of it, so any of them can have levels, whichever domain the
environment is of: Gymnax's EnvParams, fields of one's own, the side of a maze.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.curriculum import ByProgress, BySteps, BySuccess, Course, Rule
from proxima.core.errors import ProximaError
from proxima.core.types import Env, PyTree
from proxima.domains.environments import suggestion
from proxima.train.compiled.levels import SEPARATOR, Leveled, only, path_name
from proxima.train.curriculum import (
    SECTION,
    CurriculumConfig,
    first_updates,
    named_levels,
    progress_rates,
)

PARAMETERS = f"{SECTION}.parameters"
WINDOW, UNIFORM = 100, 0.2  # what null means


class Number(NamedTuple):
    """A number of an environment that can change while it trains."""

    path: str
    leaf: Array


def leveled(config: CurriculumConfig, env: Env, owner: str) -> Leveled:
    """The environment with the curriculum's levels, those beyond and, of which its episodes are, its own."""
    numbers = [_number(name, env, owner) for name in config.parameters]
    rows = [row for row, _ in named_levels(config)]
    values = tuple(
        _with_own(name, [row[name] for row in rows], number.leaf)
        for name, number in zip(config.parameters, numbers, strict=True)
    )
    paths = tuple(number.path for number in numbers)
    chances = jnp.zeros(len(rows) + 1)
    made = Leveled(env, values, chances, paths, env.observation_space, env.action_space)
    return only(made, len(rows))


def course(config: CurriculumConfig, max_steps: int | None, steps_per_update: int) -> Course:
    """The curriculum's rule with its numbers as leaves."""
    success = math.nan if config.success is None else config.success
    return Course(_rule(config, max_steps, steps_per_update), jnp.float32(success), config.levels)


def _rule(config: CurriculumConfig, max_steps: int | None, steps_per_update: int) -> Rule:
    if config.by == "steps":
        return BySteps(jnp.array(first_updates(config, max_steps, steps_per_update), jnp.int32))
    if config.by == "success":
        window = WINDOW if config.window is None else config.window
        return BySuccess(jnp.float32(config.threshold), jnp.float32(window), config.levels)
    uniform = UNIFORM if config.uniform is None else config.uniform
    fast, slow = progress_rates(config)
    return ByProgress(jnp.float32(fast), jnp.float32(slow), jnp.float32(uniform), config.levels)


def _with_own(name: str, values: Sequence[float], leaf: Array) -> Array:
    """The values by level in the number's own type, and last its own."""
    is_whole = jnp.issubdtype(leaf.dtype, jnp.integer)
    odd = [value for value in values if is_whole and value != round(value)]
    if odd:
        raise ProximaError(f"{PARAMETERS}.{name}: expected whole numbers, got {odd[0]:g}")
    return jnp.concatenate([jnp.asarray(np.asarray(values), leaf.dtype), leaf[None]])


def _number(name: str, env: Env, owner: str) -> Number:
    """The environment's number of that name, or whose path ends in it; an error in words otherwise."""
    numbers = _numbers(env)
    matches = [
        number for number in numbers if f"{SEPARATOR}{number.path}".endswith(f"{SEPARATOR}{name}")
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        paths = " or ".join(number.path for number in matches)
        raise ProximaError(f"{PARAMETERS}.{name}: {owner} has several; write {paths}")
    names = [number.path.rpartition(SEPARATOR)[2] for number in numbers]
    if name in _fixed(env):
        raise ProximaError(
            f"{PARAMETERS}.{name}: shapes {owner}'s program, and a curriculum changes numbers while that "
            f"runs; {suggestion('', names) if names else 'it has none'}"
        )
    if not names:
        raise ProximaError(
            f"{PARAMETERS}.{name}: {owner} has no numbers that could change while it trains; declare them "
            "as fields of an equinox.Module"
        )
    raise ProximaError(
        f"{PARAMETERS}.{name}: {owner} has no such number; {suggestion(name, names)}"
    )


def _numbers(env: PyTree) -> list[Number]:
    """The scalar numbers among the environment's leaves."""
    return [
        Number(path_name(path), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(env)
        if leaf.shape == () and leaf.dtype != jnp.bool_
    ]


def _fixed(env: PyTree) -> set[str]:
    """Names of the environment's parts that are fixed in its program, and of theirs."""
    names: set[str] = set()
    for field in dataclasses.fields(env) if isinstance(env, eqx.Module) else ():
        value: Any = getattr(env, field.name)
        if isinstance(value, eqx.Module):
            names |= _fixed(value)
        elif field.metadata.get("static", False):
            names |= {field.name, *getattr(value, "__dict__", {})}
    return names
