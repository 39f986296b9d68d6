"""Previews are made of lanes in turn, as far as the time that they may take goes, and change nothing."""

import numpy as np

from proxima.train.previews import GRACE_SECONDS, SHARE, with_previews
from proxima.train.stage import Preview, Schedule, Score, Stage


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def watched(clock, seconds, trials=(4, 5, 6)):
    """A stage whose previews take so many seconds each, and the trials that were previewed."""
    made = []

    def make(trial, policy):
        clock.now += seconds
        made.append((trial, policy))
        return Preview(samples=[{"prompt": str(trial)}])

    stage = Stage(
        trials=trials,
        unit="steps",
        steps_per_update=1,
        schedule=Schedule(1, 10),
        init=dict,
        split=list,
        join=list,
        advance=lambda states, active, updates, done: (states, []),
        evaluate=lambda states: [Score(float(state), 1, {"eval/x": 1.0}) for state in states],
        figures={},
    )
    return with_previews(stage, lambda states: [10 * state for state in states], make, clock), made


def test_every_lane_has_one_where_there_is_time():
    stage, made = watched(Clock(), 0.0)
    scores = stage.evaluate(np.arange(3))
    assert made == [(4, 0), (5, 10), (6, 20)]
    assert [score.preview.samples[0]["prompt"] for score in scores] == ["4", "5", "6"]
    assert [score._replace(preview=None) for score in scores] == [
        Score(float(lane), 1, {"eval/x": 1.0}) for lane in range(3)
    ]


def test_what_takes_long_is_made_in_turn_and_seldom():
    clock, seconds = Clock(), GRACE_SECONDS
    stage, made = watched(clock, seconds)
    evaluated = []
    for _ in range(1000):
        scores = stage.evaluate(np.arange(3))
        evaluated += [lane for lane, score in enumerate(scores) if score.preview is not None]
        clock.now += 1.0
    assert len(made) * seconds <= GRACE_SECONDS + seconds + SHARE * clock.now
    assert [trial for trial, _ in made[:6]] == [4, 5, 6, 4, 5, 6]
    assert evaluated == [trial - 4 for trial, _ in made]


def test_compiling_ahead_costs_no_allowance():
    clock = Clock()
    stage, made = watched(clock, GRACE_SECONDS)
    states = np.arange(3)
    assert stage.prepare(states) is states and len(made) == 1
    assert [score.preview is not None for score in stage.evaluate(states)] == [True, True, False]
