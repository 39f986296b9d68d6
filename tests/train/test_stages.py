"""The loop of a stage: how often it evaluates and saves, how it ends, and that a resumed one ends alike."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from proxima.core.stage import Stage
from proxima.train.stages import StageObserver, on_devices, train_stage

from proxima.core.errors import ProximaError


class Walk(NamedTuple):
    place: jax.Array
    key: jax.Array


def walk(updates=10, every=4, breaks_at=None, finished=lambda metrics: None) -> Stage:
    """A random walk: each update's step comes from the state's own key."""

    def update(state: Walk, number: int):
        key, step_key = jax.random.split(state.key)
        place = state.place + jax.random.normal(step_key)
        loss = float("nan") if number + 1 == breaks_at else float(place)
        return Walk(place, key), {"loss/walk": loss}

    return Stage(
        updates,
        lambda: Walk(jnp.zeros(()), jax.random.key(3)),
        update,
        lambda state: {"eval/place": float(state.place)},
        every,
        finished,
    )


def heard(stage, state=None, done=0, save_every=3, stop_after=None, asks=lambda report: None):
    reports = []

    def report(now):
        reports.append(now)
        return asks(now)

    def interrupted():
        return stop_after is not None and len(reports) > stop_after

    observer = StageObserver(report, interrupted)
    return *train_stage(stage, state or stage.init(), done, save_every, observer), reports


def test_it_evaluates_first_and_last_and_as_often_as_asked():
    state, done, ended, reports = heard(walk(updates=10, every=4))
    assert (done, ended) == (10, "budget")
    assert [each.updates for each in reports] == list(range(11))
    assert [each.updates for each in reports if each.evaluated] == [0, 4, 8, 10]
    assert [each.updates for each in reports if each.save] == [3, 6, 9, 10]
    assert reports[-1].metrics["eval/place"] == float(state.place)


def test_an_interruption_leaves_a_state_from_which_it_ends_alike():
    whole, *_ = heard(walk())
    state, done, ended, _ = heard(walk(), stop_after=4)
    assert (done, ended) == (4, None)
    stored = Walk(np.asarray(state.place), state.key)
    resumed, done, ended, reports = heard(walk(), on_devices(stored), done)
    assert (done, ended) == (10, "budget")
    assert float(resumed.place) == float(whole.place)
    assert reports[0].updates == 5  # no second look at the start


def test_a_loss_that_is_no_number_ends_it_before_it_is_reported():
    with pytest.raises(ProximaError, match="loss/walk is no longer a number after update 4"):
        heard(walk(breaks_at=4))


def test_the_stage_and_its_observer_may_end_it_early():
    _, done, ended, reports = heard(walk(finished=lambda metrics: "far enough"))
    assert (done, ended) == (1, "far enough")
    assert reports[-1].evaluated and reports[-1].save
    _, done, ended, reports = heard(
        walk(), asks=lambda now: "alarm" if now.evaluated and now.updates else None
    )
    assert (done, ended) == (4, "alarm")
    assert reports[-1].save and reports[-1].ended == "alarm"
