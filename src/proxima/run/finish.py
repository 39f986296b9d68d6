"""The end of a run: each stage judged when it has trained, then policies, pictures, results, page, tracker.

    stage ended ─► judge ─► export policies ─► draw a chosen few
    run ended   ─► trials' results ─► summary ─► one picture over all ─► page ─► tracker ─► files, once

Everything is written in its place and whole, so a finish that was killed goes on where it was.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxima.domains.domain import Planned, Trainable
from proxima.report import comparison, plots
from proxima.report.chosen import chosen_trials
from proxima.run import results
from proxima.run.clock import time_summary, timed
from proxima.run.files import read_rows
from proxima.run.record import Ended, Run, stage_names
from proxima.run.report import NAME as REPORT
from proxima.run.report import write_report
from proxima.run.results import (
    Aggregate,
    Change,
    Episodes,
    Outcome,
    Registered,
    StageResult,
    Summary,
    TrialResult,
    aggregate_of,
)
from proxima.track.tracker import RunIds, Status, TrackingOutcome
from proxima.train.memory import MEGABYTE, peak_bytes

STAGE = "stage.json"
USUAL = ("plots", "results.json")  # what the tracker keeps of a trial in any case


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
    kind = run.domain.details[0]
    return Finished([results.read(path, StageResult, kind) for path in paths], None)


def finish_stage(run: Run, planned: Planned, trainable: Trainable, ended: Ended) -> Finished:
    """Judge the stage's lanes, export their policies, draw a chosen few."""
    trained = ended.trained
    phases = _phases(run, trainable, ended)
    with timed(run.clock, "finish"):
        run.display.working("judging", 0, 1)
        verdict = trainable.judge(trained)
        run.display.working("exporting policies", 0, 1)
        trainable.export(trained)
        chosen = _chosen(run, verdict.outcomes)
        for done, lane in enumerate(chosen):
            run.display.working("drawing", done, len(chosen))
            trainable.draw(trained, lane, verdict.outcomes[lane])
        finished = [
            _stage_result(run, planned, ended, lane, outcome, phases)
            for lane, outcome in enumerate(verdict.outcomes)
        ]
    for result in finished if planned.kept else ():
        results.write(run.folder(planned.name, result.trial) / STAGE, result)
    return Finished(finished, verdict.details)


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
        trials = [_trial_result(run, trial, stages) for trial in range(run.scenario.trials)]
        summary = _with_ids(run, _summary(run, trials, verdicts), run.tracker.ids())
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


def _trial_result(run: Run, trial: int, stages: Mapping[str, list[StageResult]]) -> TrialResult:
    """What a trial is worth is what its last stage says."""
    mine = {name: each for name, of_all in stages.items() for each in of_all if each.trial == trial}
    last = list(mine.values())[-1]
    outcome, seconds = last.outcome, sum(each.training_seconds for each in mine.values())
    steps = run.prepared.counts(last, read_rows(_metrics(run, last)))
    light = {
        name or "train": dataclasses.replace(
            each, outcome=Outcome(details=None if each is last else each.outcome.details)
        )
        for name, each in mine.items()
    }
    return TrialResult(
        scenario=run.scenario.name,
        domain=run.domain.name,
        algorithm=run.prepared.algorithm,
        run_id=run.files.run_id,
        trial=trial,
        seed=last.seed,
        environment_steps=steps.steps,
        updates=last.updates,
        episodes=steps.episodes,
        compile_seconds=sum(each.compile_seconds for each in mine.values()),
        training_seconds=seconds,
        steps_per_second=steps.steps / max(last.training_seconds, 1e-9),
        converged=last.converged,
        converged_at_step=last.converged_at_step,
        stopped=last.stopped,
        nan_at_step=last.nan_at_step,
        best_return=last.best,
        phases=last.phases,
        evaluation=outcome.evaluation,
        sampled=outcome.sampled,
        random=outcome.random,
        reference=outcome.reference,
        baselines=outcome.baselines,
        scores=outcome.scores,
        details=outcome.details,
        stages=light,
        time=time_summary(run.clock),
    )


def _metrics(run: Run, stage: StageResult) -> Path:
    return run.folder(stage.stage, stage.trial) / "metrics.jsonl"


def _summary(run: Run, trials: Sequence[TrialResult], verdicts: Sequence[Any]) -> Summary:
    """The trials, and the intervals over them."""
    added = run.prepared.summarize(trials, verdicts)
    references = run.prepared.references()
    names = dict.fromkeys(name for trial in trials for name in trial.baselines)
    baselines = {
        name: over_trials([trial.baselines.get(name) for trial in trials], trials) for name in names
    }
    baselines |= {name: aggregate_of([each.return_mean]) for name, each in references.items()}
    paths = {
        "run": str(run.files.root),
        "plots": str(run.files.plots),
        "summary": str(run.files.summary),
        "report": str(run.files.root / REPORT),
    }
    return Summary(
        scenario=run.scenario.name,
        domain=run.domain.name,
        algorithm=trials[0].algorithm,
        run_id=run.files.run_id,
        metric=added.metric,
        target_reward=added.target,
        converged=sum(trial.converged for trial in trials),
        environment_steps=sum(trial.environment_steps for trial in trials),
        trials=tuple(trials),
        aggregate=_of_episodes(trials, "evaluation"),
        sampled=_of_episodes(trials, "sampled"),
        baselines=baselines,
        references=references,
        scores={
            name: over_trials([trial.scores.get(name) for trial in trials], trials)
            for name in trials[0].scores
        },
        figures=_changes(run, trials),
        alarms=added.alarms,
        details=added.details,
        paths=paths | dict(added.paths),
        time=time_summary(run.clock),
        memory_peak_mb=peak_bytes() / MEGABYTE,
    )


def over_trials(values: Sequence[float | None], trials: Sequence[TrialResult]) -> Aggregate:
    """A figure over trials; those that broke down count as failed."""
    usable = [
        np.nan if value is None or trial.stopped == "nan" else value
        for value, trial in zip(values, trials, strict=True)
    ]
    return aggregate_of(usable)


def _of_episodes(trials: Sequence[TrialResult], policy: str) -> Aggregate | None:
    """Mean returns of a policy over trials; None where no trial has any."""
    episodes: list[Episodes | None] = [trial[policy] for trial in trials]
    if not any(episodes):
        return None
    return over_trials([None if e is None else e.return_mean for e in episodes], trials)


def _changes(run: Run, trials: Sequence[TrialResult]) -> dict[str, Change]:
    """Every held-out figure of every stage, before and after, over the trials that came so far."""
    changes = {}
    for stage in (name or "train" for name in stage_names(run.prepared)):
        reached = [trial.stages[stage] for trial in trials if stage in trial.stages]
        names = dict.fromkeys(name for each in reached for name in each.last)
        for name in names:
            if not name.endswith("_error"):
                before, after = (
                    aggregate_of([np.nan if v is None else v for v in values])
                    for values in (
                        [each.first.get(name) for each in reached],
                        [each.last.get(name) for each in reached],
                    )
                )
                changes[f"{stage}/{name}"] = Change(before=before, after=after)
    return changes


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
    comparison.learning_curves(
        run.files.plots / "learning_curves.png", curves, title=title, target=summary.target_reward
    )
    comparison.final_returns(
        run.files.plots / "final_returns.png",
        [f"trial {trial.trial}" for trial in judged],
        [_returns(trial.evaluation) for trial in judged],
        random=None if random is None else _returns(random),
        title=title,
    )
    rows = comparison.trial_rows(judged)
    comparison.trials_table(run.files.plots / "trials.png", rows, title=title)


def _returns(episodes: Episodes | None) -> list[float]:
    """The returns of episodes, NaN where one was not finite."""
    returns = () if episodes is None else episodes.returns
    return [np.nan if value is None else value for value in returns]


def hand_to_tracker(run: Run, summary: Summary) -> None:
    """Figures, files, checkpoints and policies of every trial; the best converged policy to the registry."""
    tracker, files = run.tracker, run.files
    names = stage_names(run.prepared)
    for trial in summary.trials:
        last = list(trial.stages)[-1]
        child = run.child(names[-1] if last == "train" else last, trial.trial)
        final = final_metrics(trial) | dict(run.prepared.final_metrics(trial))
        tracker.log_metrics(child, _logged_step(trial), final)
        for name in (*USUAL, *run.prepared.artifacts):
            path = files.trial(trial.trial) / name
            if path.exists():
                tracker.log_artifacts(child, path, None if path.is_file() else name)
        for stage in names:
            _hand_stage(run, stage, trial.trial)
    best = best_converged(summary.trials)
    policy = None if best is None else files.trial(best) / "policy"
    if policy is not None and policy.exists() and run.scenario.tracking.register:
        greedy = summary.trials[best or 0].evaluation
        value = None if greedy is None else greedy.return_mean
        tracker.register(best or 0, policy, {} if value is None else {"final/greedy_return": value})
    if any(files.plots.iterdir()):
        tracker.log_artifacts(None, files.plots, "plots")
    for path in (files.root / REPORT, files.scenario, files.summary):
        tracker.log_artifacts(None, path, None)
    tracker.log_parent_metrics(_last_step(summary), _over_all(summary))


def _hand_stage(run: Run, stage: str, trial: int) -> None:
    """A stage's pictures, result and checkpoints to its tracked run."""
    folder, child = run.folder(stage, trial), run.child(stage, trial)
    for name in ("plots", STAGE) if stage else ():
        if (folder / name).exists():
            run.tracker.log_artifacts(child, folder / name, name if name == "plots" else None)
    for name in ("best", "last"):
        if (folder / "checkpoints" / name).exists():
            path = (folder / "checkpoints" / name).resolve()
            run.tracker.log_artifacts(child, path, f"checkpoints/{name}")


def final_metrics(trial: TrialResult) -> dict[str, float]:
    """The returns of the closing evaluations and the scores, as the tracker has them."""
    policies = {"greedy": trial.evaluation, "sampled": trial.sampled, "random": trial.random}
    named: dict[str, float | None] = {
        f"final/{policy}_return": None if episodes is None else episodes.return_mean
        for policy, episodes in policies.items()
    }
    named |= {f"final/{name}": value for name, value in trial.scores.items()}
    return {name: value for name, value in named.items() if value is not None}


def _over_all(summary: Summary) -> dict[str, float]:
    """The interval over trials, and the figures of the stages where there are several."""
    named: dict[str, float | None] = {}
    if summary.aggregate is not None:
        aggregate = dataclasses.asdict(summary.aggregate)
        named |= {f"final/{key}": value for key, value in aggregate.items()}
    for name, change in summary.figures.items():
        named |= {
            f"final/{name}_before": change.before.iqm,
            f"final/{name}_after": change.after.iqm,
        }
    return {name: value for name, value in named.items() if value is not None}


def _logged_step(trial: TrialResult) -> int:
    """The step at which a trial's metrics end: environment steps, or updates of its last stage."""
    return list(trial.stages.values())[-1].steps


def _last_step(summary: Summary) -> int:
    return max(_logged_step(trial) for trial in summary.trials)


def finish_tracking(run: Run, summary: Summary) -> TrackingOutcome:
    """Where the run's time went to the tracker, as the last word; waits until all is written."""
    spent = {f"time/run_{part}": seconds for part, seconds in run.clock.seconds.items()}
    run.tracker.log_parent_metrics(_last_step(summary), spent)
    run.display.working("waiting for the tracker", 0, 1)
    children = run.scenario.trials * len(stage_names(run.prepared))
    ends: list[Status] = ["finished"] * children
    with timed(run.clock, "tracking"):
        return run.tracker.finish(ends, "finished")


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


def best_converged(trials: Sequence[TrialResult]) -> int | None:
    """The converged trial with the best greedy return, then the best sampled one; None if none has."""

    def rank(trial: TrialResult) -> tuple[float, ...]:
        policies = (trial.evaluation, trial.sampled)
        return tuple(
            -np.inf if e is None or e.return_mean is None else e.return_mean for e in policies
        )

    converged = [trial for trial in trials if trial.converged]
    return max(converged, key=rank).trial if converged else None
