"""What the training loop drives: a stage, one training over lanes that advance together.

A lane is a trial. Reinforcement learning is one stage whose lanes are all trials of a run; a language
model's pipeline is several stages of one lane each. The loop knows nothing of what is learnt: it advances
the lanes, evaluates, saves and stops them by the stage's schedule. States are trees of arrays and typed
PRNG keys; a lane's state, saved whole, is all that it needs to go on exactly where it was.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from proxima.core.types import PyTree
from proxima.train.convergence import Convergence

Row = dict[str, float]  # metrics by name, area first: loss/policy, eval/return_mean


class Chart(NamedTuple):
    """Lines over one axis, of one lane; whoever draws it takes the charts of one title together."""

    title: str
    x: list[float]
    lines: Mapping[str, list[float]]  # by name, each as long as x; the chart is about the first
    x_is_time: bool = False  # x is in seconds since 1970


class Preview(NamedTuple):
    """What onlookers may see of a lane's evaluation while it trains; nothing else depends on it."""

    charts: Sequence[Chart] = ()
    # Texts with their tokens' figures: {prompt, after: {text, ended, tokens: [{action, …}], …}}.
    samples: Sequence[Mapping[str, Any]] = ()


class Score(NamedTuple):
    """What an evaluation says of one lane."""

    value: float  # higher is better; the best checkpoint is the one with the highest
    episodes: int  # or prompts: how many it is a mean of
    figures: Row  # what is recorded of it, named eval/…
    preview: Preview | None = None


class Alarm(NamedTuple):
    """A warning: what kind, in words with what to do, and since which step."""

    kind: str
    text: str
    step: int


class Schedule(NamedTuple):
    """When a stage is evaluated, saved and ended; steps are those of `Stage.unit`."""

    updates_per_chunk: int
    max_steps: int | None  # of each lane
    max_episodes: int | None = None
    evaluate_every: int = 1
    evaluate_by: Literal["episodes", "steps"] = "steps"  # what `evaluate_every` counts
    evaluate_first: bool = False  # once before the first update too
    save_every: int = 10  # chunks
    stop_when_converged: bool = True
    stop_on_alarm: bool = False
    closing: Literal["last", "best"] = "last"  # which checkpoint is judged when the stage is over


class Stage(NamedTuple):
    """A training as functions over its lanes; states are batched in whatever way the stage likes."""

    trials: tuple[int, ...]  # the lanes, by the number of their trial
    unit: str  # what a step is: "steps" of an environment, or "updates"
    steps_per_update: int
    schedule: Schedule
    init: Callable[[], PyTree]
    split: Callable[[PyTree], list[PyTree]]  # states → each lane's own, on the host
    join: Callable[[Sequence[PyTree]], PyTree]  # the inverse: laid out on the devices
    # states, active (lanes,), updates, updates done before → states, a row of metrics per lane. The old
    # states are given up. A lane whose loss or gradient is not finite comes back with its last good state.
    advance: Callable[[PyTree, np.ndarray, int, int], tuple[PyTree, list[Row]]]
    evaluate: Callable[[PyTree], list[Score]]  # on what nothing is trained on; changes nothing
    figures: Mapping[str, str]  # metrics that a person wants to see while it runs, and their names
    prepare: Callable[[PyTree], PyTree] = lambda states: states  # compiles ahead
    # at saves: what cannot be saved restarts
    reseed: Callable[[PyTree], PyTree] = lambda states: states
    exact_anywhere: bool = True  # False: exact resume only from states just returned by `reseed`
    # What `Score.value` is the value of, and whether more of it is better (1) or less (−1).
    best_by: tuple[str, float] = ("eval/return_mean", 1.0)
    layout: Mapping[str, int] = {}  # how lanes lie on devices; another one may change the last bits
    # The memory of convergence after a chunk's metrics, and after an evaluation; with the step of each.
    converge_training: Callable[[Convergence, Row, int], Convergence] = lambda old, *_: old
    converge_evaluation: Callable[[Convergence, Score, int], Convergence] = lambda old, *_: old
    # The evaluations of a lane so far → the alarms that began to sound at the last one.
    alarms: Callable[[Sequence[Row]], Sequence[Alarm]] = lambda history: ()
    notices: Callable[[], list[str]] = list  # sentences for the user since the last call


def is_watched(metric: str) -> bool:
    """Whether a metric that is not finite means that the lane has broken down."""
    return metric.startswith("loss/") or metric == "train/grad_norm"
