"""What a run came to: its trials' results, and the intervals over them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from proxima.run.clock import time_summary
from proxima.run.files import read_rows
from proxima.run.record import Run, stage_names
from proxima.run.report import NAME as REPORT
from proxima.run.results import (
    Aggregate,
    Change,
    Episodes,
    Number,
    Outcome,
    StageResult,
    Summary,
    TrialResult,
    aggregate_of,
)
from proxima.train.memory import MEGABYTE, peak_bytes


def trial_result(run: Run, trial: int, stages: Mapping[str, list[StageResult]]) -> TrialResult:
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


def summarize(run: Run, trials: Sequence[TrialResult], verdicts: Sequence[Any]) -> Summary:
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
        "report": files.root / REPORT,
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
