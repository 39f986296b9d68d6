"""The loop of a pipeline's stage: update, record, evaluate, save, repeat.

Where `loop.py` drives all trials of an agent in compiled chunks, this drives one stage of one trial, update
by update: a language model's update takes long enough for the host to look at each.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from proxima.core.errors import ProximaError
from proxima.core.stage import Stage
from proxima.core.types import PyTree


class StageReport(NamedTuple):
    """What an observer hears after an update, and once before the first."""

    updates: int  # done so far
    metrics: dict[str, float]  # of this update, and of the evaluation if there was one
    evaluated: bool
    ended: str | None  # why the stage is over, in words; None: it goes on
    save: bool  # a checkpoint is due
    state: PyTree  # to be read now: the next update gives it up


class StageObserver(NamedTuple):
    """Who listens; `report` may end the stage by returning words that say why."""

    report: Callable[[StageReport], str | None]
    interrupted: Callable[[], bool]


def train_stage(
    stage: Stage, state: PyTree, done: int, save_every: int, observer: StageObserver
) -> tuple[PyTree, int, str | None]:
    """Updates until the budget is used or somebody ends it; (state, updates, why it ended).

    None for why: it was interrupted. The state after an interruption is one to resume from.
    """
    ended = _first_look(stage, state, observer) if done == 0 else None
    while ended is None and done < stage.updates:
        if observer.interrupted():
            return state, done, None
        started = time.perf_counter()
        state, metrics = stage.update(state, done)
        done += 1
        _check(metrics, done)
        trained = time.perf_counter()
        ended = stage.finished(metrics)
        if ended is None and done == stage.updates:
            ended = "budget"
        evaluated = ended is not None or done % stage.evaluate_every == 0
        if evaluated:
            metrics |= stage.evaluate(state)
        metrics |= {
            "time/train": trained - started,
            "time/evaluate": time.perf_counter() - trained,
        }
        save = ended is not None or done % save_every == 0
        asked = observer.report(StageReport(done, metrics, evaluated, ended, save, state))
        if ended is None and asked is not None:
            ended = asked
            observer.report(StageReport(done, {}, False, ended, True, state))
    return state, done, ended or "budget"


def _first_look(stage: Stage, state: PyTree, observer: StageObserver) -> str | None:
    started = time.perf_counter()
    metrics = stage.evaluate(state)
    metrics["time/evaluate"] = time.perf_counter() - started
    return observer.report(StageReport(0, metrics, True, None, False, state))


def _check(metrics: dict[str, float], done: int) -> None:
    """A loss or gradient that is no number ends the stage before it is saved over a good state."""
    wrong = [
        name
        for name, value in metrics.items()
        if name.startswith(("loss/", "train/grad_norm")) and not math.isfinite(value)
    ]
    if wrong:
        raise ProximaError(
            f"{wrong[0]} is no longer a number after update {done}; the last saved state is good: lower "
            "the stage's learning_rate or max_grad_norm and start anew, or resume to see it again"
        )


def on_devices(state: PyTree) -> PyTree:
    """A restored state as JAX holds it; keys are theirs already."""

    def place(leaf: Any) -> Any:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf if is_key else jnp.asarray(leaf)

    return jax.tree.map(place, state)
