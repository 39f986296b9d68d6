"""Jumanji's environments, compiled into the training program: packing, mazes, routing, puzzles.

What Jumanji has and an Env has not:
- A state holds a random key. Here the key of each step is the one that was passed in, so that a search
  that steps copies of a state does not look into its future.
- A time limit ends an episode like a failure, with discount 0. Here it truncates: the limit is there to
  end episodes, the problem goes on, and a value must not learn that it stops. The inner environment gets
  no limit, and the episode's steps are counted here. What ends an episode for any other reason ends it as
  in Jumanji, also at the last step.
- Observations are nested. Here they are named arrays; a tuple of arrays of one shape is stacked along a
  new last axis: the six coordinates of BinPack's spaces are one array (spaces, 6).
- Actions have several parts. Where one mask spans all parts (BinPack, Minesweeper, Sudoku, Tetris) they
  are numbered jointly, the last part counting fastest; where each part has a mask of its own (JobShop)
  they stay apart.

Left out: environments with a reward per agent (Connector, LevelBasedForaging, SearchAndRescue) or with
actions that are no choices (MultiCVRP).
"""

import builtins
import dataclasses
import functools
import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.core.spaces import (
    ACTION_MASK,
    Box,
    Discrete,
    Fields,
    MultiDiscrete,
    box,
    fields,
    mask_space,
    multi_discrete,
)
from proxima.core.types import PyTree, Step
from proxima.domains.environments import check_params, strongly_typed, suggestion
from proxima.domains.interface import Interface, described_choices, interface_of
from proxima.domains.packing.binpack import BinPack
from proxima.domains.packing.maze import NAME as MAZE
from proxima.domains.packing.maze import SIDE, Maze, check_sides, largest_side
from proxima.domains.packing.scenario import PackingEnvConfig

NO_LIMIT = 2**30  # steps that no episode takes
BLOCK = 256  # instances made side by side
POOL = 0x900_1  # folded into the seed's key: instances share no stream with anything else
LARGEST_JOINT = 100_000  # actions numbered jointly, at most


class Playing(NamedTuple):
    """An episode under way."""

    inner: PyTree
    steps: Array  # taken so far, int32


class Jumanji(eqx.Module):
    """An environment of Jumanji's as functions of its state, the key left out of it."""

    inner: Any = eqx.field(static=True)
    observation_space: Fields = eqx.field(static=True)
    action_space: Discrete | MultiDiscrete = eqx.field(static=True)
    parts: tuple[int, ...] = eqx.field(static=True)  # of an action; empty for a single number

    def generate(self, key: Array) -> tuple[PyTree, PyTree]:
        """A new instance and its first observation."""
        return self.seen(*self.inner.reset(key))

    def step(self, state: PyTree, action: Array, key: Array) -> tuple[PyTree, PyTree, Array, Array]:
        """State, observation, reward and whether the episode has come to its end."""
        action = _in_parts(self.action_space, self.parts, action)
        state, timestep = self.inner.step(dataclasses.replace(state, key=key), action)
        reward = jnp.asarray(timestep.reward, jnp.float32)
        return *self.seen(state, timestep), reward, timestep.last()

    def seen(self, state: PyTree, timestep: Any) -> tuple[PyTree, dict[str, Array]]:
        """The state without its key, and the observation."""
        obs = named_arrays(timestep.observation)
        if ACTION_MASK in obs:
            obs[ACTION_MASK] = obs[ACTION_MASK].reshape(mask_space(self.action_space).shape)
        return strongly_typed(dataclasses.replace(state, key=None)), obs


class PackingEnv(eqx.Module):
    """A problem as an Env: with a time limit, and instances from a pool or made anew."""

    problem: BinPack | Jumanji | Maze
    limit: Array  # steps of an episode, int32
    pool: tuple[PyTree, PyTree] | None  # states and first observations, (instances, ...)
    sides: Array | None  # of the pool's mazes: as many of each, one side after the other
    observation_space: Fields = eqx.field(static=True)
    action_space: Discrete | MultiDiscrete = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[Playing, PyTree]:
        if self.pool is None:
            inner, obs = self.problem.generate(key)
        else:
            instances = len(jax.tree.leaves(self.pool)[0])
            index = self._of_side(key, instances)
            inner, obs = jax.tree.map(lambda leaf: leaf[index], self.pool)
        return Playing(inner, jnp.int32(0)), obs

    def _of_side(self, key: Array, instances: int) -> Array:
        """A random place in the pool; of mazes, among those that have the side of the moment."""
        if self.sides is None or not isinstance(self.problem, Maze):
            return jax.random.randint(key, (), 0, instances)
        count = instances // len(self.sides)
        block = jnp.argmax(self.sides == self.problem.side)
        return block * count + jax.random.randint(key, (), 0, count)

    def step(self, state: Playing, action: Array, key: Array) -> tuple[Playing, Step]:
        inner, obs, reward, ended = self.problem.step(state.inner, action, key)
        steps = state.steps + 1
        truncated = (steps >= self.limit) & ~ended
        return Playing(inner, steps), Step(obs, reward, ended, truncated, {})


def interface(env: PackingEnv) -> Interface:
    """What Jumanji itself observes and takes, by name: actions in their parts, and masks over these."""
    problem, actions = env.problem, env.action_space
    usual = interface_of(env.observation_space, actions)
    parts = list(problem.parts)
    if not parts or not isinstance(actions, Discrete):
        return usual
    fields = dict(usual.observation["fields"])
    if ACTION_MASK in fields:
        fields[ACTION_MASK] = {**fields[ACTION_MASK], "shape": parts}
    wanted = mask_space(actions).shape

    def encode(obs: dict[str, Any], numpy: Any) -> dict[str, Any]:
        if ACTION_MASK not in obs:
            return obs
        mask = obs[ACTION_MASK]
        return {**obs, ACTION_MASK: mask.reshape(mask.shape[0], *wanted)}

    return Interface(
        {"fields": fields},
        described_choices(parts, [0] * len(parts), (len(parts),), "int32"),
        encode,
        lambda action, numpy: _in_parts(actions, problem.parts, action),
    )


def _in_parts(space: Discrete | MultiDiscrete, parts: tuple[int, ...], action: Array) -> Array:
    """Jumanji's own actions, (..., parts), from joint numbers; as they are where they are no such numbers."""
    if not parts or not isinstance(space, Discrete):
        return action
    return jnp.stack(jnp.unravel_index(action, parts), axis=-1).astype(jnp.int32)


def make(config: PackingEnvConfig, seed: int, trained: Sequence[float] = ()) -> PackingEnv:
    """The named environment; its pool of instances, if there is one, is drawn from the seed.

    trained: the sides of mazes that a curriculum trains on, which must be in the pool besides its own.
    """
    params, sides = dict(config.params), None
    is_sided = config.name == MAZE and bool(SIDE in params or trained)
    own = params.pop(SIDE, None) if is_sided else None
    problem, most = _problem(config.name, tuple(sorted(params.items())))
    made: BinPack | Jumanji | Maze = problem
    if is_sided:
        assert isinstance(problem, Jumanji)
        own = largest_side(problem) if own is None else own
        check_sides(f"env.params.{SIDE}", [own], problem)
        check_sides(f"curriculum.parameters.{SIDE}", trained, problem)
        made = Maze(jnp.int32(own), problem)
        if config.instances:
            sides = jnp.array(sorted({int(side) for side in (own, *trained)}), jnp.int32)
    pool = make_pool(made, config.instances, seed, sides) if config.instances else None
    limit = jnp.int32(config.max_steps_per_episode or most)
    return PackingEnv(made, limit, pool, sides, made.observation_space, made.action_space)


def make_pool(
    problem: BinPack | Jumanji | Maze, instances: int, seed: int, sides: Array | None = None
) -> tuple[PyTree, PyTree]:
    """The instances of a pool, as many of each side where there are sides."""
    if sides is None:
        return _made(problem, instances, seed)
    made = [
        _made(eqx.tree_at(lambda maze: maze.side, problem, side), instances, seed) for side in sides
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *made)


def _made(problem: BinPack | Jumanji | Maze, instances: int, seed: int) -> tuple[PyTree, PyTree]:
    """Instances and their first observations, made block by block: all at once would need more memory."""
    block = min(BLOCK, instances)
    blocks = -(-instances // block)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), POOL), (blocks, block))
    made = jax.lax.map(jax.vmap(problem.generate), keys)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:instances], made)


def named_arrays(observation: Any) -> dict[str, Array]:
    """A nested observation as named arrays; parts of one shape and type are stacked along the last axis."""
    is_dataclass = dataclasses.is_dataclass(observation)
    parts = vars(observation) if is_dataclass else observation._asdict()
    named: dict[str, Array] = {}
    for name, value in parts.items():
        leaves = jax.tree.leaves(value)
        alike = {(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves}
        if len(leaves) == 1:
            named[name] = jnp.asarray(leaves[0])
        elif len(alike) == 1:
            named[name] = jnp.stack(leaves, axis=-1)
        else:
            inner = named_arrays(value)
            named |= {f"{name}_{part}": array for part, array in inner.items()}
    return named


@functools.cache
def _problem(name: str, params: tuple[tuple[str, Any], ...]) -> tuple[BinPack | Jumanji, int]:
    # Once per settings: the inner environment is a static part of programs, found again by identity.
    inner, limit = _construct(name, dict(params))
    if name.startswith("BinPack"):
        container = jnp.array(inner.generator.container_dims, jnp.int32)
        return BinPack(container, inner.generator, inner.obs_num_ems), limit
    _, timestep = jax.eval_shape(inner.reset, jax.random.key(0))
    if timestep.reward.shape != ():
        raise ProximaError(
            f"env.name: {name} gives each agent a reward of its own, and here one policy gets one reward"
        )
    spec = inner.action_spec
    if type(spec).__name__ not in {"DiscreteArray", "MultiDiscreteArray"}:
        raise ProximaError(
            f"env.name: {name}'s actions are no choices among a few ({spec}), and masks need those"
        )
    observed = jax.eval_shape(named_arrays, timestep.observation)
    spaces = {part: _box(array) for part, array in observed.items()}
    mask = spaces.get(ACTION_MASK)
    values = tuple(int(n) for n in np.ravel(spec.num_values))
    actions = _actions(name, values, None if mask is None else mask.shape)
    if mask is not None:
        spaces[ACTION_MASK] = mask_space(actions)
    parts = values if len(values) > 1 else ()
    return Jumanji(inner, fields(spaces), actions, parts), limit


def _actions(
    name: str, values: tuple[int, ...], mask: tuple[int, ...] | None
) -> Discrete | MultiDiscrete:
    """One number for all parts where a mask spans them or there is none; else parts."""
    joint = math.prod(values)
    if (mask is None or mask == values) and joint <= LARGEST_JOINT:
        return Discrete(joint)
    if mask in (None, (len(values), max(values))):
        return multi_discrete(values)
    raise ProximaError(
        f"env.name: {name}'s actions {values} and their mask {mask} fit neither one joint choice nor "
        "one choice per part"
    )


def _box(array: Any) -> Box:
    if array.dtype == jnp.bool_:
        return box(0, 1, array.shape, "bool")
    return box(-math.inf, math.inf, array.shape, str(array.dtype))


@contextmanager
def _no_notebook() -> Iterator[None]:
    """Imports as in a script: in a notebook Jumanji changes how Matplotlib draws, and fails without ipympl.

    tqdm, which comes with it, would warn in red that it has no widgets.
    """
    known = {"__IPYTHON__": vars(builtins).pop("__IPYTHON__", None)}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "IProgress not found")
            yield
    finally:
        vars(builtins).update(known if known["__IPYTHON__"] is not None else {})


def _construct(name: str, params: dict[str, Any]) -> tuple[Any, int]:
    """Jumanji's environment without a time limit, and the limit it would have had."""
    with needs_extra("packing", "env.backend: jumanji"), _no_notebook():
        import jumanji  # takes seconds

    names = sorted(jumanji.registered_environments())
    if name not in names:
        hint = suggestion(name, names, cutoff=0.4)
        raise ProximaError(f"env.name: Jumanji has no {name!r}; {hint}")
    try:
        plain: Any = jumanji.make(name)
    except (OSError, ImportError, RuntimeError) as error:  # Sokoban downloads its levels
        raise ProximaError(f"env.name: {name} could not be made: {error}") from error
    try:
        return _with_params(name, plain, params)
    except (ArithmeticError, AssertionError, AttributeError, TypeError, ValueError) as error:
        raise ProximaError(
            f"env.params: {name} could not be made with {params}: {type(error).__name__}: {error}"
        ) from error


def _with_params(name: str, plain: Any, params: dict[str, Any]) -> tuple[Any, int]:
    """The environment made anew with these settings, without its time limit, and that limit."""
    kind: Any = type(plain)
    own, generator = _divided(name, kind, plain.__dict__.get("generator"), params)
    if generator is not None:
        own["generator"] = generator
    if kind.__name__ == "BinPack":
        own.setdefault("obs_num_ems", (generator or plain.generator).max_num_ems)
    if "time_limit" not in inspect.signature(kind).parameters:
        return kind(**own) if own else plain, NO_LIMIT
    limit = kind(**own).time_limit
    return kind(**own | {"time_limit": NO_LIMIT}), int(limit)


def _divided(
    name: str, kind: type, generator: Any, params: dict[str, Any]
) -> tuple[dict[str, Any], Any]:
    """The settings that are the environment's own, and a generator made with the rest, None if as it is."""
    of_env = _defaults(kind)
    own = {key: value for key, value in params.items() if key in of_env}
    check_params(own, of_env, name)
    rest = {key: value for key, value in params.items() if key not in of_env}
    if not rest:
        return own, None
    if generator is None:
        check_params(rest, of_env, name)
    maker = _generator_class(name, generator, rest.pop("generator", None))
    parameters = inspect.signature(maker).parameters
    # What is not given is as in the environment's own generator.
    present = {key.removeprefix("_"): value for key, value in vars(generator).items()}
    present = {key: present[key] for key in parameters if key in present}
    check_params(rest, of_env | _defaults(maker) | present, name)
    filled = present | rest
    for key, parameter in parameters.items():
        if key not in filled and parameter.default is inspect.Parameter.empty:
            raise ProximaError(f"env.params.{key}: {name}'s generator needs it; set it too")
    return own, maker(**filled)


def _defaults(maker: Callable[..., Any]) -> dict[str, Any]:
    """The parameters that a user can set, with None where they have no default."""
    parameters, empty = inspect.signature(maker).parameters, inspect.Parameter.empty
    return {
        key: None if given.default is empty else given.default
        for key, given in parameters.items()
        if key not in ("generator", "viewer")
    }


def _generator_class(name: str, generator: Any, wanted: str | None) -> type:
    """The class of the environment's own generator, or of the one asked for by name."""
    if wanted is None:
        return type(generator)
    module = importlib.import_module(type(generator).__module__)
    classes = {
        key: kind
        for key, kind in inspect.getmembers(module, inspect.isclass)
        if key.endswith("Generator") and not inspect.isabstract(kind)
    }
    if wanted not in classes:
        names = ", ".join(sorted(classes))
        raise ProximaError(f"env.params.generator: there is no {wanted!r}; {name} has: {names}")
    return classes[wanted]
