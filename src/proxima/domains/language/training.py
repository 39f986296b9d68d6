"""One training of a model, and how the loop drives it: a stage with a single lane, update by update.

A language model's update takes long enough for the host to look at each.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from proxima.core.types import PyTree
from proxima.train.checkpoint import CheckpointConfig
from proxima.train.convergence import Convergence
from proxima.train.stage import Alarm, Row, Schedule, Score, Stage


class Training(NamedTuple):
    """One training of a model: a state, and what an update makes of it.

    A state is a tree of arrays and typed PRNG keys; saved whole, it is all that training needs to go on.
    """

    updates: int  # in its budget
    init: Callable[[], PyTree]
    # state, number of the update (0 is the first) → new state, metrics; the old state is given up
    update: Callable[[PyTree, int], tuple[PyTree, dict[str, float]]]
    # held-out figures by name, area first (eval/…); changes nothing. Called before the first update too.
    evaluate: Callable[[PyTree], dict[str, float]]
    evaluate_every: int  # updates between two evaluations; one is made at the end in any case


class Measure(NamedTuple):
    """How an evaluation of a training is read."""

    figure: str  # what decides which state is best
    sign: float  # 1: more is better; −1: less
    shown: Mapping[str, str]  # metrics that a person wants to see while it runs, and their names


class Ending(NamedTuple):
    """What may end a training before its budget."""

    patience: int | None = None  # evaluations without a better one after which it has converged
    stop_when_converged: bool = False
    stop_on_alarm: bool = False
    alarms: Callable[[Sequence[Row]], Sequence[Alarm]] = lambda history: ()


NOTHING_ENDS_IT = Ending()


def stage_of(
    training: Training,
    trial: int,
    measure: Measure,
    checkpoint: CheckpointConfig,
    closing: Literal["last", "best"],
    ending: Ending = NOTHING_ENDS_IT,
) -> Stage:
    """The training of one trial as the loop drives it."""

    def advance(
        state: PyTree, active: np.ndarray, updates: int, done: int
    ) -> tuple[PyTree, list[Row]]:
        state, metrics = training.update(state, done)  # a chunk is one update
        return state, [metrics]

    def evaluate(state: PyTree) -> list[Score]:
        figures = training.evaluate(state)
        return [Score(measure.sign * figures[measure.figure], 1, figures)]

    def converge(memory: Convergence, score: Score, step: int) -> Convergence:
        if ending.patience is None:
            return memory
        return observe_patience(memory, score.value, step, ending.patience)

    return Stage(
        trials=(trial,),
        unit="updates",
        steps_per_update=1,
        schedule=Schedule(
            updates_per_chunk=1,
            max_steps=training.updates,
            evaluate_every=training.evaluate_every,
            evaluate_first=True,
            save_every=checkpoint.frequency,
            stop_when_converged=ending.stop_when_converged,
            stop_on_alarm=ending.stop_on_alarm,
            closing=closing,
        ),
        init=training.init,
        split=lambda state: [state],
        join=lambda lanes: on_devices(lanes[0]),
        advance=advance,
        evaluate=evaluate,
        figures=measure.shown,
        converge_evaluation=converge,
        alarms=ending.alarms,
    )


def observe_patience(memory: Convergence, value: float, step: int, patience: int) -> Convergence:
    """The memory after an evaluation: converged when the last `patience` ones brought nothing better."""
    if memory.best is None or value > memory.best:
        return Convergence(best=value)
    waited = memory.waited + 1
    if waited < patience:
        return memory._replace(waited=waited, converged=False, reached_at_step=None)
    reached = memory.reached_at_step if memory.converged else step
    return memory._replace(waited=waited, converged=True, reached_at_step=reached)


def on_devices(state: PyTree) -> PyTree:
    """A restored state as JAX holds it; keys are theirs already."""
    return jax.tree.map(
        lambda leaf: leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf), state
    )
