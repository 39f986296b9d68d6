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
from proxima.report import comparison, levels
from proxima.report.chosen import chosen_trials
from proxima.report.style import save
from proxima.report.trials import draw_table, trial_rows
from proxima.run import results
from proxima.run.clock import time_summary, timed
from proxima.run.files import read_rows
from proxima.run.paint import Painter
from proxima.run.publish import finish_tracking, hand_to_tracker
from proxima.run.record import STAGE, Run, stage_names
from proxima.run.report import NAME, read_curves, write_report
from proxima.run.results import (
    Aggregate,
    Change,
    Episodes,
    LevelSummary,
    Number,
    Outcome,
    Registered,
    StageResult,
    Summary,
    TrialResult,
    aggregate_of,
)
from proxima.run.train import Ended
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
    phases = _phases(run, trainable, ended)
    with timed(run.clock, "finish"):
        verdict = _judge_and_draw(run, trainable, ended.trained)
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
        outcomes = verdict.outcomes
        means = [None if o.evaluation is None else o.evaluation.return_mean for o in outcomes]
        draws_all = run.scenario.plots == "all"
        for lane in range(len(outcomes)) if draws_all else chosen_trials(means):
            trainable.draw(trained._replace(paint=paint), lane, outcomes[lane])
        run.display.working("exporting policies", 0, 1)
        trainable.export(trained)
        paint.finish(partial(run.display.working, "drawing"))
    return verdict


def _phases(run: Run, trainable: Trainable, ended: Ended) -> dict[str, float] | None:
    """The parts of an update at the end of a stage, to the tracker too; None where nobody asked."""
    if not run.scenario.telemetry.phases:
        return None
    books = ended.trained.books
    longest = int(np.argmax([book.steps for book in books]))
    run.display.working("measuring the parts of an update", 0, 1)
    with timed(run.clock, "profile"):
        rows = ended.trained.rows(longest)
        phases = trainable.profile(ended.states(), rows, books[longest].updates)
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
    figures = [figures for row in rows if (figures := _figures(row))] or [{}]
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
        compile_seconds=ended.compile_seconds[lane],
        training_seconds=ended.training_seconds[lane],
        evaluate_seconds=sum(row.get("time/evaluate", 0.0) for row in rows),
        phases=phases,
        first=figures[0],
        last=figures[-1],
        outcome=outcome,
    )


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """The held-out figures of a row, without their area; none where nothing was evaluated."""
    prefix = "eval/"
    return {name[len(prefix) :]: row[name] for name in row if name.startswith(prefix)}


def finish_run(
    run: Run, stages: Mapping[str, list[StageResult]], verdicts: Sequence[Any]
) -> Summary:
    """All that is written once every stage has ended; the summary. `stages`: by name, of every trial."""
    run.notes.change(status="finishing")
    with timed(run.clock, "finish"):
        trials = [_trial_result(run, trial, stages) for trial in range(run.scenario.trials)]
        summary = _with_ids(run, _summarize(run, trials, verdicts), run.tracker.ids())
        run.display.working("drawing all trials", 0, 1)
        _draw_all(run, summary)
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


def _trial_result(run: Run, trial: int, stages: Mapping[str, list[StageResult]]) -> TrialResult:
    """What a trial is worth is what its last stage says."""
    own = [stage for of_all in stages.values() for stage in of_all if stage.trial == trial]
    last = own[-1]
    metrics = read_rows(run.folder(last.stage, trial) / "metrics.jsonl")
    steps, episodes = run.prepared.counts(last, metrics)
    details = [stage.outcome.details for stage in own[:-1]] + [None]  # the last's are the trial's
    same = ("seed", "updates", "converged", "converged_at_step", "stopped", "nan_at_step", "phases")
    return TrialResult(
        scenario=run.scenario.name,
        domain=run.scenario.domain,
        algorithm=run.prepared.algorithm,
        run_id=run.files.run_id,
        trial=trial,
        environment_steps=steps,
        episodes=episodes,
        compile_seconds=sum(stage.compile_seconds for stage in own),
        training_seconds=sum(stage.training_seconds for stage in own),
        steps_per_second=steps / max(last.training_seconds, 1e-9),
        best_return=last.best,
        stages={
            stage.stage or "train": dataclasses.replace(stage, outcome=Outcome(details=kept))
            for stage, kept in zip(own, details, strict=True)
        },
        time=time_summary(run.clock),
        **{name: last[name] for name in same},
        **vars(last.outcome),
    )


def _summarize(run: Run, trials: Sequence[TrialResult], verdicts: Sequence[Any]) -> Summary:
    """The trials, and the intervals over them."""
    added = run.prepared.summarize(trials, verdicts)
    references = run.prepared.references()
    baselines = _over_trials("baselines", trials)
    baselines |= {name: aggregate_of([rule.return_mean]) for name, rule in references.items()}
    files = run.files
    paths = {
        "run": files.root,
        "plots": files.plots,
        "summary": files.summary,
        "report": files.root / NAME,
    }
    return Summary(
        scenario=run.scenario.name,
        domain=run.scenario.domain,
        algorithm=trials[0].algorithm,
        run_id=files.run_id,
        metric=added.metric,
        target_reward=added.target,
        converged=sum(trial.converged for trial in trials),
        environment_steps=sum(trial.environment_steps for trial in trials),
        trials=tuple(trials),
        aggregate=_of_episodes(trials, "evaluation"),
        sampled=_of_episodes(trials, "sampled"),
        baselines=baselines,
        references=references,
        scores=_over_trials("scores", trials),
        figures=_changes(run, trials),
        alarms=added.alarms,
        details=added.details,
        paths={name: str(path) for name, path in paths.items()} | dict(added.paths),
        time=time_summary(run.clock),
        memory_peak_mb=peak_bytes() / MEGABYTE,
        levels=_levels(trials),
    )


def _levels(trials: Sequence[TrialResult]) -> tuple[LevelSummary, ...]:
    """Every level of a curriculum, over the trials."""
    return tuple(
        LevelSummary(
            parameters=level.parameters,
            beyond=level.beyond,
            returns=_aggregate([trial.levels[index].return_mean for trial in trials], trials),
            random=_aggregate([trial.levels[index].random for trial in trials], trials),
        )
        for index, level in enumerate(trials[0].levels)
    )


def _aggregate(values: Sequence[Number], of: Sequence[TrialResult | StageResult]) -> Aggregate:
    """A figure over trials; those that broke down count as failed."""
    pairs = zip(values, of, strict=True)
    return aggregate_of([None if result.stopped == "nan" else value for value, result in pairs])


def _over_trials(field: str, trials: Sequence[TrialResult]) -> dict[str, Aggregate]:
    """Every figure of a field of the trials, over the trials."""
    names = dict.fromkeys(name for trial in trials for name in trial[field])
    return {
        name: _aggregate([trial[field].get(name) for trial in trials], trials) for name in names
    }


def _of_episodes(trials: Sequence[TrialResult], policy: str) -> Aggregate | None:
    """Mean returns of a policy over trials; None where no trial has any."""
    episodes: list[Episodes | None] = [trial[policy] for trial in trials]
    if not any(episodes):
        return None
    return _aggregate([None if e is None else e.return_mean for e in episodes], trials)


def _changes(run: Run, trials: Sequence[TrialResult]) -> dict[str, Change]:
    """Every held-out figure of every stage, before and after, over the trials that came so far."""
    changes = {}
    for stage in (name or "train" for name in stage_names(run.prepared)):
        reached = [trial.stages[stage] for trial in trials if stage in trial.stages]
        for name in dict.fromkeys(name for result in reached for name in result.last):
            if not name.endswith("_error"):
                before = aggregate_of([result.first.get(name) for result in reached])
                after = _aggregate([result.last.get(name) for result in reached], reached)
                changes[f"{stage}/{name}"] = Change(before=before, after=after)
    return changes


def _write(run: Run, summary: Summary) -> None:
    """Results, summary and page."""
    for trial in summary.trials:
        results.write(run.files.trial(trial.trial) / "results.json", trial)
    results.write(run.files.summary, summary)
    run.notes.change(mlflow_run_id=summary.mlflow_run_id)
    write_report(run.files)


def _draw_all(run: Run, summary: Summary) -> None:
    """One picture over all trials of what they learnt, of what they earn, and a table of them."""
    judged = [trial for trial in summary.trials if trial.evaluation is not None]
    if not judged:
        return
    folder, title, random = run.files.plots, summary.scenario, judged[0].random
    curves = read_curves(run.files, run.domain.curve(run.scenario), summary.trials)
    figure = comparison.learning_figure(curves, title, summary.target_reward)
    save(figure, folder / "learning_curves.png")
    figure = comparison.returns_figure(
        [f"trial {trial.trial}" for trial in judged],
        [_returns(trial.evaluation) for trial in judged],
        None if random is None else _returns(random),
        title,
    )
    save(figure, folder / "final_returns.png")
    draw_table(folder / "trials.png", trial_rows(judged), title)
    if summary.levels:
        curves = read_curves(run.files, ("", levels.METRIC), summary.trials)
        trained = sum(not level.beyond for level in summary.levels)
        save(levels.levels_figure(curves, trained, title), folder / "curriculum.png")
        save(levels.returns_figure(summary.levels, title), folder / "returns_by_level.png")


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
