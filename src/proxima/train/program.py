"""Training, evaluation and recording in environments: functions over all trials at once.

`compiled/program.py` and `host/program.py` make one; `reinforcement.py` makes it a stage of the loop.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from proxima.core.types import PyTree, TrainState

RECORDED_STEPS = 2_000  # of an episode, at most

Policy = Literal["greedy", "sampled", "random"]


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths of the evaluation episodes, (trials, episodes)."""

    returns: np.ndarray
    lengths: np.ndarray


class Recording(NamedTuple):
    """One greedy episode, for plots and films: observations (T, ...), actions (T, ...), rewards (T,)."""

    obs: PyTree  # an array, or a dict of named ones
    actions: np.ndarray
    rewards: np.ndarray
    frames: list[np.ndarray] | None = None  # rendered pictures, where a host environment makes them


class Lanes(NamedTuple):
    """The same training with settings that differ from lane to lane, for searches over settings.

    A lane trains one configuration with one seed. `settings` are those of the scenario at hand: their
    arrays are numbers, which lanes may have of their own; all the rest of them is the program. `own` is a
    tree like `settings` with such arrays for all lanes, lanes first, and None where all share the scenario's.
    """

    settings: PyTree
    with_algorithm: Callable[[Any], PyTree]  # another config of the algorithm → settings
    init: Callable[[PyTree, list[int]], TrainState]  # own, seeds → states
    # own, states, active (lanes,), updates → states, sums of metrics; as `Program.chunk`
    chunk: Callable[[PyTree, TrainState, np.ndarray, int], tuple[TrainState, dict[str, np.ndarray]]]
    # own, learners, episodes, seed of these episodes → greedy returns, in training and at the end
    evaluate: Callable[[PyTree, PyTree, int, int], Evaluation]
    examine: Callable[[PyTree, PyTree, int, int], Evaluation]
    env_varies: bool  # whether lanes may have environments of their own


class Program(NamedTuple):
    """Trials as functions; TrainStates and learners are batched, trials first."""

    init: Callable[[list[int]], TrainState]  # trial seeds → states
    shapes: Callable[[int], TrainState]  # number of trials → the shapes of such states
    lay_out: Callable[[TrainState], TrainState]  # restored states, on the devices
    # states, episodes of an evaluation; compiles ahead
    prepare: Callable[[TrainState, int], TrainState]
    # states, active (trials,), updates → states, sums of metrics per trial; the old states are given up.
    # A trial whose loss or gradient stopped being finite comes back as it went in.
    chunk: Callable[[TrainState, np.ndarray, int], tuple[TrainState, dict[str, np.ndarray]]]
    evaluate: Callable[[PyTree, Policy, int], Evaluation]  # learners, policy, episodes
    # The same for the closing evaluation: where data is divided, on the part kept for the end.
    examine: Callable[[PyTree, Policy, int], Evaluation]
    record: Callable[[PyTree], Recording]  # one learner, without the trial axis
    steps_per_update: int
    # At checkpoints: what cannot be saved starts afresh.
    reseed: Callable[[TrainState], TrainState] = lambda states: states
    # With a curriculum, the closing evaluation on one of its levels: learners, policy, episodes, level.
    examine_level: Callable[[PyTree, Policy, int, int], Evaluation] | None = None
    exact_anywhere: bool = True  # False: exact resume only from states just returned by `reseed`
    close: Callable[[], None] = lambda: None
    # states → seconds per update by part; None: every chunk says so itself, as time/env and the like.
    profile: Callable[[TrainState], dict[str, float]] | None = None
    # Sentences for the user that came up since the last call.
    notices: Callable[[], list[str]] = list
    lanes: Lanes | None = None
