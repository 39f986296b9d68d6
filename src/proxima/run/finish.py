"""The end of a run: each stage judged when it has trained, then policies, pictures, results, page, tracker.

    stage ended ─► judge ─► export policies ─► draw a chosen few
    run ended   ─► trials' results ─► summary ─► one picture over all ─► page ─► tracker ─► files, once

Everything is written in its place and whole, so a finish that was killed goes on where it was.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from proxima.domains.domain import Planned, Trainable, Trained, Verdict
from proxima.report import comparison, plots
from proxima.report.chosen import chosen_trials
from proxima.report.style import save
from proxima.report.trials import draw_table, trial_rows
from proxima.run import results
from proxima.run.clock import time_summary, timed
from proxima.run.files import read_rows
from proxima.run.paint import Painter
from proxima.run.publish import finish_tracking, hand_to_tracker
from proxima.run.record import STAGE, Ended, Run, stage_names
from proxima.run.report import write_report
from proxima.run.results import (
    Episodes,
    Outcome,
    Registered,
    StageResult,
    Summary,
)
from proxima.run.summarize import summarize, trial_result
from proxima.track.tracker import RunIds, TrackingOutcome
from proxima.train.memory import MEGABYTE, peak_bytes

MANY_LANES = 3  # whose pictures take longer than a process takes to start


class Finished(NamedTuple):
    """A stage that has been judged: a result per lane, and what its domain says of all together."""

    results: list[StageResult]
    details: Any


def is_done(run: Run, planned: Planned) -> bool:
    """Whether the stage need not be trained or judged again."""
    return planned.kept and all(
        (run.folder(planned.name, trial) / STAGE).exists() for trial in planned.trials
    )


def read_stage(run: Run, planned: Planned) -> Finished:
    """The results of a stage that was kept."""
    paths = [run.folder(planned.name, trial) / STAGE for trial in planned.trials]
    details = run.domain.details
    return Finished([results.read(path, StageResult, details) for path in paths], None)


def finish_stage(run: Run, planned: Planned, trainable: Trainable, ended: Ended) -> Finished:
    """Judge the stage's lanes, export their policies, draw a chosen few."""
    trained = ended.trained
    phases = _phases(run, trainable, ended)
    with timed(run.clock, "finish"):
        verdict = _judge_and_draw(run, trainable, trained)
        finished = [
            _stage_result(run, planned, ended, lane, outcome, phases)
            for lane, outcome in enumerate(verdict.outcomes)
        ]
    for result in finished if planned.kept else ():
        results.write(run.folder(planned.name, result.trial) / STAGE, result)
    return Finished(finished, verdict.details)


def _judge_and_draw(run: Run, trainable: Trainable, trained: Trained) -> Verdict:
    """What the lanes are worth; pictures of some are drawn while the policies of all are exported."""
    with Painter(beside=len(trained.lanes) >= MANY_LANES) as paint:
        run.display.working("judging", 0, 1)
        verdict = trainable.judge(trained)
        painted = trained._replace(paint=paint)
        for lane in _chosen(run, verdict.outcomes):
            trainable.draw(painted, lane, verdict.outcomes[lane])
        run.display.working("exporting policies", 0, 1)
        trainable.export(trained)
        paint.finish(partial(run.display.working, "drawing"))
    return verdict


def _chosen(run: Run, outcomes: Sequence[Outcome]) -> list[int]:
    """The lanes whose pictures are drawn: all on request, else first, median, best and worst."""
    if run.scenario.plots == "all":
        return list(range(len(outcomes)))
    means = [None if o.evaluation is None else o.evaluation.return_mean for o in outcomes]
    return chosen_trials(means)


def _phases(run: Run, trainable: Trainable, ended: Ended) -> dict[str, float] | None:
    """The parts of an update at the end of a stage, to the tracker too; None where nobody asked."""
    if not run.scenario.telemetry.phases:
        return None
    books = ended.trained.books
    longest = int(np.argmax([book.steps for book in books]))
    with timed(run.clock, "profile"):
        rows = ended.trained.rows(longest)
        phases = trainable.profile(ended.states, rows, books[longest].updates)
    if phases is not None:
        named = {f"time/update_{part}": seconds for part, seconds in phases.items()}
        run.tracker.log_parent_metrics(books[longest].steps, named)
    return phases


def _stage_result(
    run: Run,
    planned: Planned,
    ended: Ended,
    lane: int,
    outcome: Outcome,
    phases: Mapping[str, float] | None,
) -> StageResult:
    book, trial = ended.trained.books[lane], planned.trials[lane]
    rows = ended.trained.rows(lane)
    evaluated = [row for row in rows if any(name.startswith("eval/") for name in row)]
    return StageResult(
        stage=planned.name,
        trial=trial,
        seed=run.scenario.seed + trial,
        stopped=book.stopped or "budget",
        steps=book.steps,
        updates=book.updates,
        episodes=book.episodes,
        converged=book.convergence.converged,
        converged_at_step=book.convergence.reached_at_step if book.convergence.converged else None,
        nan_at_step=book.nan_at_step,
        best=book.best,
        compile_seconds=ended.compile_seconds,
        training_seconds=ended.training_seconds,
        evaluate_seconds=sum(row.get("time/evaluate", 0.0) for row in rows),
        phases=phases,
        first=_figures(evaluated[0]) if evaluated else {},
        last=_figures(evaluated[-1]) if evaluated else {},
        outcome=outcome,
    )


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """The held-out figures of a row, without their area."""
    return {
        name.removeprefix("eval/"): value for name, value in row.items() if name.startswith("eval/")
    }


def finish_run(
    run: Run, stages: Mapping[str, list[StageResult]], verdicts: Sequence[Any]
) -> Summary:
    """All that is written once every stage has ended; the summary. `stages`: by name, of every trial."""
    run.notes.change(status="finishing")
    with timed(run.clock, "finish"):
        trials = [trial_result(run, trial, stages) for trial in range(run.scenario.trials)]
        summary = _with_ids(run, summarize(run, trials, verdicts), run.tracker.ids())
        run.display.working("drawing all trials", 0, 1)
        draw_all(run, summary)
        run.display.working("writing results", 0, 1)
        _write(run, summary)
        hand_to_tracker(run, summary)
    outcome = finish_tracking(run, summary)
    ended = _tracked(run, summary, outcome)
    if ended.mlflow_run_id != summary.mlflow_run_id:  # its tracked run was not known before
        _write(run, ended)
    results.write(run.files.summary, ended)
    run.notes.change(
        status="finished",
        time=dict(run.clock.seconds),
        mlflow_run_id=outcome.run_id,
        mlflow_children=tuple(outcome.child_run_ids),
        mlflow_uri=outcome.uri,
    )
    run.display.close()
    return ended


def _write(run: Run, summary: Summary) -> None:
    """Results, summary and page."""
    for trial in summary.trials:
        results.write(run.files.trial(trial.trial) / "results.json", trial)
    results.write(run.files.summary, summary)
    run.notes.change(mlflow_run_id=summary.mlflow_run_id)
    write_report(run.files)


def draw_all(run: Run, summary: Summary) -> None:
    """One picture over all trials of what they learnt, of what they earn, and a table of them."""
    judged = [trial for trial in summary.trials if trial.evaluation is not None]
    if not judged:
        return
    stage, metric = run.domain.curve
    curves = [
        plots.series(read_rows(run.folder(stage, trial.trial) / "metrics.jsonl"), metric)
        for trial in summary.trials
    ]
    title, random = summary.scenario, judged[0].random
    figure = comparison.learning_figure(curves, title, summary.target_reward)
    save(figure, run.files.plots / "learning_curves.png")
    figure = comparison.returns_figure(
        [f"trial {trial.trial}" for trial in judged],
        [_returns(trial.evaluation) for trial in judged],
        None if random is None else _returns(random),
        title,
    )
    save(figure, run.files.plots / "final_returns.png")
    draw_table(run.files.plots / "trials.png", trial_rows(judged), title)


def _returns(episodes: Episodes | None) -> list[float]:
    """The returns of episodes, NaN where one was not finite."""
    returns = () if episodes is None else episodes.returns
    return [np.nan if value is None else value for value in returns]


def _with_ids(run: Run, summary: Summary, ids: RunIds | None) -> Summary:
    """The summary with the tracker's names of the run and of its trials, as far as they are known."""
    if ids is None:
        return summary
    per_trial = len(stage_names(run.prepared))
    trials = tuple(
        # its last stage speaks for it
        dataclasses.replace(trial, mlflow_run_id=ids.children[per_trial * (trial.trial + 1) - 1])
        for trial in summary.trials
    )
    return dataclasses.replace(summary, trials=trials, mlflow_run_id=ids.parent)


def _tracked(run: Run, summary: Summary, outcome: TrackingOutcome) -> Summary:
    """The summary with what became of tracking, and with all the time that passed."""
    if outcome.run_id is not None:
        summary = _with_ids(run, summary, RunIds(outcome.run_id, outcome.child_run_ids))
    return dataclasses.replace(
        summary,
        time=time_summary(run.clock),
        memory_peak_mb=peak_bytes() / MEGABYTE,
        mlflow_uri=outcome.uri,
        registered=tuple(Registered(**model._asdict()) for model in outcome.registered),
        tracking_error=outcome.error,
    )
