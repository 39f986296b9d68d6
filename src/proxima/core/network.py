"""What a kind of net brings: its settings, how it is made of them, and which spaces it fits.

The file of a net ends with its `Network`; `network.kind` in a scenario names it. A user's own comes in by the
same door: `network: {kind: "my_package:NETWORK"}` (`nets/network.py`).
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from jax import Array

from proxima.core.distributions import Distribution
from proxima.core.faults import Fault
from proxima.core.spaces import ObservationSpace, Space
from proxima.core.types import PyTree

WIDEST = 1_000_000  # numbers side by side in a net; two such layers are more than a machine holds


class PolicyAndValue(Protocol):
    """What a learner needs of a net, over any leading axes.

    A net with memory computes both from what it has `seen` in place of the observation (`Remembering`).
    """

    @property
    def critic(self) -> PyTree: ...  # what only the value needs; None in an exported policy
    def policy(self, obs: PyTree) -> Distribution: ...
    def value(self, obs: PyTree) -> Array: ...
    def __call__(self, obs: PyTree) -> tuple[Distribution, Array]: ...


class Remembering(PolicyAndValue, Protocol):
    """What a learner needs besides of a net with memory."""

    # memory and observations (B, ...) → what is seen now, and the memory after it
    def remember(self, memory: PyTree, obs: PyTree) -> tuple[PyTree, PyTree]: ...
    # memory (B, ...), observations (T, B, ...), where an episode ends (T, B) → what is seen (T, B, ...)
    def unroll(self, memory: PyTree, obs: PyTree, ended: Array) -> PyTree: ...


class Network(NamedTuple):
    """A kind of net."""

    config: type  # a strict frozen dataclass whose field `kind` is the net's name
    make: Callable[[Array, Any, ObservationSpace, Space], PolicyAndValue]  # key, config, spaces
    # config, spaces, name of the environment: ProximaError, in words, where the net does not fit them
    check_spaces: Callable[[Any, ObservationSpace, Space, str], None] = lambda *_: None
    # config, observations: whether policy and value are computed from one torso
    shares_torso: Callable[[Any, ObservationSpace], bool] = lambda config, space: False
    # config, number of environments → what is remembered when an episode begins: zeros; None: no memory
    memory: Callable[[Any, int], PyTree] = lambda config, num_envs: None
    # config → whether its products are so small that one core computes them faster than two
    small: Callable[[Any], bool] = lambda config: False
    raw_observations: bool = False  # it takes observations as they are, never normalised
    # of a scenario whose network section is this config: settings that contradict each other
    checks: Callable[[Any], Iterator[Fault]] = lambda scenario: iter(())


class NetworkSpec(NamedTuple):
    """A kind of net and its settings; hashable, and equal for equal settings, so that nothing recompiles."""

    kind: Network
    config: Any

    @property
    def name(self) -> str:
        return str(self.config.kind)

    def shares_torso(self, observation_space: ObservationSpace) -> bool:
        """Whether policy and value are computed from one torso, so that both cost little more than one."""
        return self.kind.shares_torso(self.config, observation_space)

    @property
    def remembers(self) -> bool:
        """Whether it is a net with memory, a `Remembering` one."""
        return self.memory(1) is not None

    @property
    def small(self) -> bool:
        """Whether its products are so small that one core computes them faster than two."""
        return self.kind.small(self.config)

    def memory(self, num_envs: int) -> PyTree:
        """What so many environments remember when an episode begins, None without a memory."""
        return self.kind.memory(self.config, num_envs)

    def make(
        self, key: Array, observation_space: ObservationSpace, action_space: Space
    ) -> PolicyAndValue:
        """A net with fresh weights."""
        return self.kind.make(key, self.config, observation_space, action_space)
