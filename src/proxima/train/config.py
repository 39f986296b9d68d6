"""The sections of a scenario that say how long agents train and how they are measured."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Interval

MOST_STEPS = 10**12  # names of checkpoints have twelve digits
MOST_THREADS = 1_024  # XLA does not survive a hundred thousand


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The budget, and how often the host hears from the program."""

    max_steps: Annotated[int, Interval(ge=1, lt=MOST_STEPS)] | None = None
    """Environment steps per trial; null is bounded by max_episodes alone."""
    max_episodes: Annotated[int, Interval(ge=1, lt=MOST_STEPS)] | None = 1000
    """Episodes per trial; null is bounded by max_steps alone."""
    updates_per_chunk: Annotated[int, Ge(1)] | None = None
    """Updates between two reports to the host; null gives about 50 reports in a run."""
    trials_per_block: Annotated[int, Ge(1)] | None = None
    """Trials that train side by side in one program; null: all of them, or on a cluster a part of them."""
    threads: Annotated[int, Interval(ge=1, le=MOST_THREADS)] = 1
    """CPU threads per device inside one operation; more than 1 pays for large nets only."""
    policy_lag: Literal[0, 1] = 0
    """On host environments, 1: a rollout is collected by the policy of one update earlier, while that update
    runs; 0: environments and learner take turns."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """How often and how thoroughly the greedy policy is measured."""

    eval_frequency: Annotated[int, Ge(1)] = 50
    """Training episodes between two evaluations, looked at between chunks."""
    eval_episodes: Annotated[int, Ge(1)] = 10
    """Episodes of an evaluation during training."""
    final_episodes: Annotated[int, Ge(1)] = 100
    """Episodes of the closing evaluation: greedy, sampled and random policy."""
    checkpoint: Literal["last", "best"] = "last"
    """Whose policy is evaluated at the end and exported: the last one, or the best during training."""
    film: bool = True
    """Draw a GIF of the trained policy where the environment can be drawn."""
