"""Frame stacking, for compiled and host environments alike: an observation is the last few, oldest first.

    after a reset              the first observation, repeated
    after a step               the oldest leaves, the newest comes last
    where an episode ends      next_obs goes on with the old episode's stack, obs begins the new one's

Pictures are laid along their channels, whether these come first or last; a picture without such an axis gets
one, the last. Other arrays are laid along their last axis. The action mask is only ever the newest.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.pictures import picture_of
from proxima.core.spaces import ACTION_MASK, Box, Fields, ObservationSpace, Space, fields
from proxima.core.types import Env, HostEnv, HostStep, PyTree, Step
from proxima.domains.interface import Interface, described_observation
from proxima.train.program import Recording


class Lay(NamedTuple):
    """How arrays of a space are laid one after the other."""

    axis: int  # from the end
    width: int  # of one frame along it
    is_new: bool  # the axis is the stack's own


def lay(space: Box) -> Lay:
    """The axis along which arrays of this space are laid."""
    picture = picture_of(space.shape, space.dtype)
    if not space.shape or (picture is not None and picture.channel_axis is None):
        return Lay(-1, 1, True)
    axis = -3 if picture is not None and picture.channel_axis == 0 else -1
    return Lay(axis, space.shape[axis], False)


def stacked_space(space: ObservationSpace, frames: int) -> ObservationSpace:
    """The space of stacks of observations; of one frame each, as it was."""
    if frames == 1:
        return space
    if isinstance(space, Fields):
        return fields(
            {
                name: part if name == ACTION_MASK else _stacked_box(part, frames)
                for name, part in space.items()
            }
        )
    return _stacked_box(space, frames)


def first_stack(space: ObservationSpace, frames: int, obs: PyTree, numpy: Any) -> PyTree:
    """The first observation, repeated; with NumPy or JAX, over any leading axes."""

    def repeat(part: Box, one: Any) -> Any:
        frame = _frame(part, one, numpy)
        return numpy.concatenate([frame] * frames, axis=lay(part).axis)

    return _by_part(space, repeat, obs)


def next_stack(space: ObservationSpace, stack: PyTree, obs: PyTree, numpy: Any) -> PyTree:
    """The stack without its oldest observation and with this one; in new memory."""

    def push(part: Box, one: Any, old: Any) -> Any:
        axis, width, _ = lay(part)
        kept = [slice(None)] * old.ndim
        kept[axis] = slice(width, None)
        # Not by moving the rest within one array: such updates have come out wrong on CPUs.
        return numpy.concatenate([old[tuple(kept)], _frame(part, one, numpy)], axis=axis)

    return _by_part(space, push, obs, stack)


def newest(space: ObservationSpace, stack: PyTree, numpy: Any = np) -> PyTree:
    """The observation that came last into a stack."""

    def last(part: Box, old: Any) -> Any:
        axis, width, is_new = lay(part)
        index: list[Any] = [slice(None)] * old.ndim
        index[axis] = -1 if is_new else slice(-width, None)
        return old[tuple(index)]

    return _by_part(space, last, stack)


class Stacked(eqx.Module):
    """A compiled environment whose observations are stacks; its state has the stack beside its own."""

    env: Any
    frames: int = eqx.field(static=True)
    observation_space: ObservationSpace = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def reset(self, key: Array) -> tuple[PyTree, PyTree]:
        state, obs = self.env.reset(key)
        stack = first_stack(self.env.observation_space, self.frames, obs, jnp)
        return (state, stack), stack

    def step(self, state: PyTree, action: PyTree, key: Array) -> tuple[PyTree, Step]:
        inner, stack = state
        inner, step = self.env.step(inner, action, key)
        stack = next_stack(self.env.observation_space, stack, step.obs, jnp)
        return (inner, stack), step._replace(obs=stack)


@final
class StackedPool:
    """A pool of host environments, whichever, whose observations are stacks."""

    def __init__(self, pool: HostEnv, frames: int):
        self._pool = pool
        self._frames = frames
        self._space = pool.observation_space
        self._stack: PyTree = None
        self.observation_space = stacked_space(pool.observation_space, frames)
        self.action_space = pool.action_space
        self.num_envs = pool.num_envs

    def reset(self, seeds: Sequence[int]) -> PyTree:
        """First observations of fresh episodes, environment i seeded with seeds[i]."""
        self._stack = first_stack(self._space, self._frames, self._pool.reset(seeds), np)
        return self._stack

    def send(self, actions: np.ndarray) -> None:
        """Starts a step of every environment."""
        self._pool.send(actions)

    def receive(self) -> HostStep:
        """The step that was started last."""
        step = self._pool.receive()
        stack = next_stack(self._space, self._stack, step.next_obs, np)
        # A fake row's observation begins an episode too: of a pool that resets a step later, or after a loss.
        fresh = step.terminated | step.truncated | ~step.mask
        self._stack = stack
        if fresh.any():
            begun = first_stack(self._space, self._frames, step.obs, np)
            self._stack = _chosen(fresh, begun, stack)
        return step._replace(obs=self._stack, next_obs=stack)

    def step(self, actions: np.ndarray) -> HostStep:
        """One step of every environment."""
        self.send(actions)
        return self.receive()

    def render(self) -> np.ndarray | None:
        """A picture of the first environment, where it draws any."""
        return self._pool.render()

    def close(self) -> None:
        """Frees the environments."""
        self._pool.close()


def stacked_env(env: Env, frames: int) -> Env:
    """The compiled environment, its observations stacked where there is more than one frame."""
    if frames == 1:
        return env
    space = stacked_space(env.observation_space, frames)
    return Stacked(env, frames, space, env.action_space)


def stacked_pool(pool: HostEnv, frames: int) -> HostEnv:
    """The pool, its observations stacked where there is more than one frame."""
    return pool if frames == 1 else StackedPool(pool, frames)


def stacked_interface(interface: Interface, space: ObservationSpace, frames: int) -> Interface:
    """What an exported policy takes: where there is more than one frame, stacks of what agents see."""
    if frames == 1:
        return interface
    observation = described_observation(stacked_space(space, frames))
    return interface._replace(observation=observation, encode=lambda obs, numpy: obs)


def unstacked_recording(
    space: ObservationSpace, record: Callable[[PyTree], Recording]
) -> Callable[[PyTree], Recording]:
    """Recordings in which an observation is what the environment showed last: pictures are drawn of these."""

    def recorded(learner: PyTree) -> Recording:
        recording = record(learner)
        return recording._replace(obs=newest(space, recording.obs))

    return recorded


def _by_part(space: ObservationSpace, function: Callable[..., Any], *obs: PyTree) -> PyTree:
    """The function of each part's space and arrays; the mask is passed through as it came first."""
    if not isinstance(space, Fields):
        return function(space, *obs)
    return {
        name: obs[0][name] if name == ACTION_MASK else function(part, *(one[name] for one in obs))
        for name, part in space.items()
    }


def _frame(space: Box, obs: Any, numpy: Any) -> Any:
    array = numpy.asarray(obs)
    return array[..., None] if lay(space).is_new else array


def _stacked_box(space: Box, frames: int) -> Box:
    low, high = (
        _frame(space, np.reshape(bound, space.shape), np) for bound in (space.low, space.high)
    )
    low, high = (np.concatenate([bound] * frames, axis=lay(space).axis) for bound in (low, high))
    return Box(low.shape, tuple(low.ravel().tolist()), tuple(high.ravel().tolist()), space.dtype)


def _chosen(rows: np.ndarray, yes: PyTree, no: PyTree) -> PyTree:
    """`yes` in these rows, else `no`."""
    if isinstance(no, dict):
        return {name: _chosen(rows, yes[name], no[name]) for name in no}
    return np.where(rows.reshape(-1, *(1,) * (no.ndim - 1)), yes, no)
