"""What a run came to: its trials' results, and the intervals over them."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proxima.run.clock import time_summary
from proxima.run.files import read_rows
from proxima.run.record import Run, stage_names
from proxima.run.report import NAME as REPORT
from proxima.run.results import (
    Aggregate,
    Change,
    Episodes,
    Outcome,
    StageResult,
    Summary,
    TrialResult,
    aggregate_of,
)
from proxima.train.memory import MEGABYTE, peak_bytes


def trial_result(run: Run, trial: int, stages: Mapping[str, list[StageResult]]) -> TrialResult:
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
        domain=run.scenario.domain,
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


def summarize(run: Run, trials: Sequence[TrialResult], verdicts: Sequence[Any]) -> Summary:
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
        domain=run.scenario.domain,
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
                ends = [None if each.stopped == "nan" else each.last.get(name) for each in reached]
                before = aggregate_of([each.first.get(name) for each in reached])
                change = Change(before=before, after=aggregate_of(ends))
                changes[f"{stage}/{name}"] = change
    return changes
