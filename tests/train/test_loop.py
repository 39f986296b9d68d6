"""The one loop: how often it evaluates and saves, who stops when and why, and that it resumes alike."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proxima.train.books import Book, Progress, fresh_progress
from proxima.train.convergence import Convergence
from proxima.train.loop import Observer, train
from proxima.train.stage import Schedule, Score, Stage

STEPS = 2  # of an update
NEVER = 10**9


class Walk(NamedTuple):
    place: jax.Array  # (lanes,)
    key: jax.Array  # (lanes,)


@dataclasses.dataclass
class Heard:
    """What an observer was told; it may ask lanes to stop and interrupt."""

    asks: dict[int, dict[int, str]] = dataclasses.field(default_factory=dict)  # by chunk, by lane
    interrupt_after: int = NEVER
    reports: list = dataclasses.field(default_factory=list)
    saved: list = dataclasses.field(default_factory=list)  # besides those of reports

    def record(self, report):
        self.reports.append(report)
        return self.asks.get(report.progress.chunks, {})

    def observer(self) -> Observer:
        return Observer(
            self.record,
            lambda states, progress: self.saved.append(progress),
            lambda: bool(self.reports) and self.reports[-1].progress.chunks >= self.interrupt_after,
        )

    def at(self, what: str) -> list[int]:
        """The chunks after which there were evaluations, or saves."""
        due = {"evaluate": lambda report: report.scores is not None, "save": lambda r: r.save}
        return [report.progress.chunks for report in self.reports if due[what](report)]


def moved(state: Walk) -> Walk:
    """An update: the step comes from the state's own key."""
    keys = jax.vmap(jax.random.split)(state.key)
    return Walk(state.place + jax.vmap(jax.random.normal)(keys[:, 1]), keys[:, 0])


def walk(lanes: int = 1, breaks: dict[int, int] | None = None, **more) -> Stage:
    """Random walks, an episode an update; a lane of `breaks` has no loss in its update of that number."""
    fields = {name: more.pop(name) for name in list(more) if name in Schedule._fields}
    defaults = {"updates_per_chunk": 1, "max_steps": 10 * STEPS, "evaluate_every": 4 * STEPS}
    schedule = Schedule(**(defaults | {"save_every": 3} | fields))
    broken = breaks or {}

    def advance(states: Walk, active, updates: int, done: int):
        after = states
        for _ in range(updates):
            after = moved(after)
        stuck = np.array([done < broken.get(lane, -1) <= done + updates for lane in range(lanes)])
        kept = jnp.asarray(active & ~stuck)
        key = jax.random.key_data(after.key), jax.random.key_data(states.key)
        after = Walk(
            jnp.where(kept, after.place, states.place),
            jax.random.wrap_key_data(jnp.where(kept[:, None], *key)),
        )
        return after, [
            {"loss/walk": float("nan" if stuck[lane] else after.place[lane])}
            | {"episode/count": float(updates)}
            for lane in range(lanes)
        ]

    def evaluate(states: Walk) -> list[Score]:
        return [Score(float(at), 1, {"eval/place": float(at)}) for at in states.place]

    return Stage(
        trials=tuple(range(lanes)),
        unit="steps",
        steps_per_update=STEPS,
        schedule=schedule,
        init=lambda: Walk(jnp.zeros(lanes), jax.random.split(jax.random.key(3), lanes)),
        split=lambda states: [
            Walk(np.asarray(states.place[lane]), states.key[lane]) for lane in range(lanes)
        ],
        join=lambda each: Walk(
            jnp.stack([lane.place for lane in each]), jnp.stack([lane.key for lane in each])
        ),
        advance=advance,
        evaluate=evaluate,
        figures={},
        **more,
    )


def run(stage: Stage, heard: Heard, states=None, progress: Progress | None = None):
    states = stage.init() if states is None else states
    progress = progress or fresh_progress(len(stage.trials))
    return train(stage, states, progress, heard.observer())


def test_it_evaluates_first_and_last_and_as_often_as_asked():
    heard = Heard()
    states, progress = run(walk(evaluate_first=True), heard)
    assert [report.progress.chunks for report in heard.reports] == list(range(11))
    assert heard.at("evaluate") == [0, 4, 8, 10]
    assert heard.at("save") == [3, 6, 9, 10]
    first, *_, last = heard.reports
    assert first.rows == [{"time/evaluate": first.evaluate_seconds}]
    assert first.scores[0].value == 0.0 and not first.best, "what nobody saved is no best"
    assert last.scores[0].figures == {"eval/place": float(states.place[0])}
    (book,) = progress.books
    assert (book.steps, book.updates, book.episodes, book.stopped) == (20, 10, 10, "budget")


def test_without_a_first_evaluation_the_first_report_is_of_the_first_chunk():
    heard = Heard()
    run(walk(), heard)
    assert heard.reports[0].progress.chunks == 1 and heard.at("evaluate") == [4, 8, 10]
    assert heard.saved == [], "the last report was a save"


def test_evaluations_may_be_counted_in_episodes():
    heard = Heard()
    run(walk(evaluate_by="episodes", evaluate_every=3), heard)
    assert heard.at("evaluate") == [3, 6, 9, 10]


def test_rows_have_the_times_of_their_chunk():
    heard = Heard()
    run(walk(lanes=2, updates_per_chunk=4), heard)
    for report, steps in zip(heard.reports, (8, 8, 4), strict=True):
        for row in report.rows:
            assert row["time/steps_per_second"] == pytest.approx(steps / row["time/train"])
            assert row["time/evaluate"] == report.evaluate_seconds <= report.seconds


def test_the_step_budget_ends_in_a_shorter_chunk():
    heard = Heard()
    _, progress = run(walk(updates_per_chunk=4), heard)
    assert [report.progress.steps for report in heard.reports] == [8, 16, 20]
    assert progress.books[0].stopped == "budget"


def test_the_episode_budget_ends_it_too():
    heard = Heard()
    _, progress = run(walk(max_steps=None, max_episodes=6, updates_per_chunk=4), heard)
    assert progress.books[0].episodes == 8 and progress.books[0].stopped == "budget"
    assert heard.at("evaluate") == [1, 2] and heard.at("save") == [2]


@pytest.mark.parametrize("chunks", [1, 4, 9])
def test_an_interruption_leaves_a_state_from_which_it_ends_alike(chunks):
    stage = walk(lanes=2, evaluate_first=True)
    whole, expected = run(stage, Heard())
    states, progress = run(stage, Heard(interrupt_after=chunks))
    assert progress.chunks == chunks and progress.active.all()
    heard = Heard()
    resumed, progress = run(stage, heard, stage.join(stage.split(states)), progress)
    assert heard.reports[0].progress.chunks == chunks + 1, "no second look at the start"
    assert progress == expected
    np.testing.assert_array_equal(resumed.place, whole.place)


def test_a_loss_that_is_no_number_stops_its_lane_only():
    whole, _ = run(walk(lanes=3), Heard())
    heard = Heard()
    states, progress = run(walk(lanes=3, breaks={1: 4}), heard)
    assert [book.stopped for book in progress.books] == ["budget", "nan", "budget"]
    assert [book.nan_at_step for book in progress.books] == [None, 4 * STEPS, None]
    assert [book.steps for book in progress.books] == [20, 8, 20]
    np.testing.assert_array_equal(states.place[::2], whole.place[::2])
    before, _ = run(walk(lanes=3, max_steps=3 * STEPS), Heard())
    assert states.place[1] == before.place[1], "it keeps its last good state"
    broken = heard.reports[3]
    assert np.isnan(broken.rows[1]["loss/walk"]) and broken.progress.books[1].best is None
    assert 1 not in broken.best, "its evaluation counts for nothing"
    assert all(report.rows[1] is None for report in heard.reports[4:])
    assert all(report.scores[1] is None for report in heard.reports[4:] if report.scores)


def test_where_every_lane_breaks_down_it_ends_and_is_saved():
    heard = Heard()
    _, progress = run(walk(lanes=2, breaks={0: 2, 1: 2}), heard)
    assert progress.chunks == 2 and heard.at("save") == [2]
    assert heard.at("evaluate") == [], "there is nothing to look at"


def test_a_gradient_that_is_not_finite_counts_and_another_metric_does_not():
    def with_metric(name):
        stage = walk(max_steps=3 * STEPS)
        plain = stage.advance

        def advance(*arguments):
            states, rows = plain(*arguments)
            return states, [row | {name: float("inf")} for row in rows]

        return run(stage._replace(advance=advance), Heard())[1].books[0].stopped

    assert with_metric("train/grad_norm") == "nan"
    assert with_metric("train/explained_variance") == "budget"


@pytest.mark.parametrize("reason", ["alarm", "callback"])
def test_the_observer_may_stop_lanes(reason):
    heard = Heard(asks={2: {0: reason}, 4: {1: reason}})
    _, progress = run(walk(lanes=2), heard)
    assert [book.stopped for book in progress.books] == [reason, reason]
    assert [book.steps for book in progress.books] == [4, 8]
    assert heard.reports[2].rows[0] is None and heard.reports[2].rows[1] is not None
    (saved,) = heard.saved  # no save was due when the last one stopped
    assert saved == progress


def test_who_has_stopped_already_keeps_the_reason():
    heard = Heard(asks={10: {0: "callback"}})
    _, progress = run(walk(), heard)
    assert progress.books[0].stopped == "budget" and heard.saved == []


def test_who_is_stopped_where_it_is_saved_is_saved_as_stopped():
    heard = Heard(asks={3: {0: "callback"}})
    _, progress = run(walk(lanes=2), heard)
    assert heard.at("save") == [3, 6, 9, 10]
    (saved,) = heard.saved
    assert [book.stopped for book in saved.books] == ["callback", None] and saved.chunks == 3
    assert [book.steps for book in progress.books] == [6, 20]


def test_the_first_evaluation_may_stop_it():
    heard = Heard(asks={0: {0: "alarm"}})
    _, progress = run(walk(evaluate_first=True), heard)
    assert len(heard.reports) == 1 and progress.books == (Book(stopped="alarm"),)


def test_the_best_evaluation_of_each_lane_is_pointed_out():
    heard = Heard()
    _, progress = run(walk(lanes=3, evaluate_every=STEPS), heard)
    best = [-np.inf] * 3
    for report in heard.reports:
        better = [lane for lane, score in enumerate(report.scores) if score.value > best[lane]]
        assert report.best == better
        best = [max(old, score.value) for old, score in zip(best, report.scores, strict=True)]
    assert [book.best for book in progress.books] == best
    assert any(report.best == [] for report in heard.reports)


def reached(memory: Convergence, step: int) -> Convergence:
    return memory._replace(reached_at_step=step, converged=True)


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("source", ["converge_training", "converge_evaluation"])
def test_a_lane_that_converged_stops_unless_it_shall_go_on(source, stops):
    def converge(memory, seen, step):
        return reached(memory, step) if step == 8 else memory

    heard = Heard()
    stage = walk(stop_when_converged=stops, **{source: converge})
    (book,) = run(stage, heard)[1].books
    assert book.convergence.converged and book.convergence.reached_at_step == 8
    assert (book.stopped, book.steps) == (("converged", 8) if stops else ("budget", 20))
    assert heard.at("evaluate")[0] == 4, "one that converged is evaluated too"


def test_what_cannot_be_saved_starts_anew_at_every_save():
    seeded = []
    heard = Heard()
    run(walk(reseed=lambda states: seeded.append(1) or states._replace(place=-states.place)), heard)
    assert len(seeded) == len(heard.at("save")) == 4
    plain, _ = run(walk(), Heard())
    assert float(heard.reports[-1].states.place[0]) != float(plain.place[0])
