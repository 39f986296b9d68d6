"""What an algorithm brings: its settings, how an agent is made of them, and what is drawn of its learning.

Each file in `algorithms/` ends with its `Algorithm`; `build.py` finds it by name. A user's own comes in by
the same door: `algorithm: {name: "my_package:ALGORITHM"}`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from proxima.core.faults import Fault
from proxima.core.network import NetworkSpec
from proxima.core.spaces import ObservationSpace, Space
from proxima.core.types import Agent, Env

Acting = Literal["act", "search"]  # what a rollout's time goes to besides environments


class Problem(NamedTuple):
    """What an agent is made for: the spaces, the budget, and how its batch lies over devices."""

    env_name: str
    backend: str
    observation_space: ObservationSpace
    action_space: Space
    num_envs: int
    network: NetworkSpec
    total_updates: int | None  # in the step budget; None: there is none
    axis: str | None = None  # mesh axis the batch is spread over
    env: Env | None = None  # the compiled environment; None on the host
    foresees: bool = False  # env states hold what is to come: search may teach by them, not play

    def without_env(self) -> "Problem":
        """What shapes an agent's programs, hashable; another environment or budget compiles nothing."""
        return self._replace(env_name="", backend="", total_updates=None, env=None)


class Panel(NamedTuple):
    """A metric that is drawn beside the returns, and its title."""

    metric: str
    title: str


class Algorithm(NamedTuple):
    """An algorithm as the rest of the house sees it."""

    config: type  # a strict frozen dataclass whose field `name` is the algorithm's name
    make: Callable[[Any, Problem], Agent]
    rollout_steps: Callable[[Any, int], int]  # config, environments → steps of each per update
    checks: Callable[[Any], Iterator[Fault]]  # of a scenario whose algorithm section is this config
    panels: tuple[Panel, ...]
    # config → samples of a gradient step that several devices may share; 1: too few to share
    shared_samples: Callable[[Any], int] = lambda config: 1
    # config, environments → steps of one environment that a net with a memory learns from together
    sequence_steps: Callable[[Any, int], int] = lambda config, num_envs: 1
    # keys that a scenario gives, environments → settings that follow from these where it says nothing
    defaults: Callable[[Mapping[str, Any], int], Mapping[str, Any]] = lambda given, num_envs: {}
    learning_begins: Callable[[Any], int] = lambda config: 0  # environment steps before it
    acting: Acting = "act"
    remembers: bool = False  # it can train nets with memory
    # It may learn from a rollout by the policy of one update earlier: what it needs of acting is in `aux`,
    # and `noise` does not depend on the learner.
    lags: bool = False
    # config → its settings whose value changes over the budget
    over_budget: Callable[[Any], Sequence[str]] = lambda config: ()
