"""Every type the layers share. Time first, batch second; keys are arguments, never state of an env."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from proxima.core.spaces import ObservationSpace, Space

if TYPE_CHECKING:  # processes that only step environments do not wait for JAX
    import numpy as np
    from jax import Array

# Arrays in a structure that belongs to whoever made it.
PyTree = Any


class Step(NamedTuple):
    """What an environment says after an action."""

    obs: PyTree
    reward: Array
    terminated: Array  # the value ends here
    truncated: Array  # only the episode ends here
    metrics: dict[str, Array]


class Transition(NamedTuple):
    """One step as a learner sees it; a rollout stacks these time-major, (T, B, ...)."""

    obs: PyTree
    action: PyTree
    reward: Array
    next_obs: PyTree  # the observation before any reset
    terminated: Array
    truncated: Array
    mask: Array  # False: padding, or the fake row of a next-step autoreset
    aux: PyTree  # what the algorithm wants back, for example log_prob


class View(NamedTuple):
    """What an agent acts on: observations (B, ...), what it remembers and, for search, environment states."""

    obs: PyTree
    env_state: PyTree = None  # None on host environments
    memory: PyTree = None  # of the episode so far, (B, ...); None: the agent remembers nothing


class Acted(NamedTuple):
    """What an agent does at a view: actions (B, ...), what it wants back, and what it will remember."""

    action: PyTree
    aux: PyTree = None  # for its update, for example log_prob
    memory: PyTree = None  # shaped like the view's


class Streams(NamedTuple):
    """The random streams of a run, each seeded by the seed contract."""

    act: Array
    env: Array  # (B,), one stream per environment
    shuffle: Array


class PerEnv(NamedTuple):
    """Marks a part of a learner that has one entry per environment, (B, ...)."""

    value: PyTree


class TrainState(NamedTuple):
    """All that a run needs to go on; saved whole, so that resuming is exact."""

    learner: PyTree
    actors: PyTree
    key: Streams
    curriculum: PyTree = None  # where the trial stands in it; None: there is none


class Env(Protocol):
    """One instance: pure, no autoreset, the key an argument; batching is the caller's vmap."""

    @property
    def observation_space(self) -> ObservationSpace: ...
    @property
    def action_space(self) -> Space: ...
    def reset(self, key: Array) -> tuple[PyTree, PyTree]: ...
    def step(self, state: PyTree, action: PyTree, key: Array) -> tuple[PyTree, Step]: ...


class Agent(Protocol):
    """Pure functions over batches; `noise` draws a whole rollout's randomness in one call.

    In training it gets the learner, for noise that goes on from rollout to rollout; else None.
    `explore` and `exploit` take a learner, or what `policy` makes of one. `memory` is what an agent
    remembers when an episode begins, for so many environments: zeros, or None where it has no memory.
    Whoever steps the environments carries it on, and begins anew after both endings.
    """

    def init(self, key: Array) -> PyTree: ...
    def memory(self, num_envs: int) -> PyTree: ...
    def noise(self, learner: PyTree | None, key: Array, shape: tuple[int, ...]) -> PyTree: ...
    def explore(self, learner: PyTree, view: View, noise: PyTree) -> Acted: ...
    def exploit(self, learner: PyTree, view: View) -> Acted: ...
    def policy(self, learner: PyTree) -> PyTree: ...
    def update(
        self, learner: PyTree, rollout: Transition, key: Array
    ) -> tuple[PyTree, dict[str, Array]]: ...


class HostStep(NamedTuple):
    """What a pool of host environments says after a row of actions: NumPy arrays (N, ...)."""

    obs: PyTree  # to act on next; of the next episode where one ended
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: PyTree  # before any reset
    # False where the row is no real step: a next-step autoreset's fake one, or, if it also says truncated,
    # one that was lost with the process that should have made it; `obs` then begins a new episode.
    mask: np.ndarray


class HostEnv(Protocol):
    """Many environments stepped on the host together; resets itself, whatever its autoreset mode."""

    observation_space: ObservationSpace
    action_space: Space
    num_envs: int

    def reset(self, seeds: Sequence[int]) -> PyTree: ...
    def send(self, actions: np.ndarray) -> None: ...  # may return before the step is done
    def receive(self) -> HostStep: ...  # the step of the actions sent last
    def step(self, actions: np.ndarray) -> HostStep: ...  # the one and then the other
    def render(self) -> np.ndarray | None: ...  # a picture of the first one, where it draws any
    def close(self) -> None: ...
