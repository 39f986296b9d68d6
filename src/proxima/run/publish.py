"""Handing a run to its tracker: figures, files, checkpoints, policies; the best one to the registry."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from proxima.run.clock import timed
from proxima.run.record import STAGE, Run, stage_names
from proxima.run.report import NAME as REPORT
from proxima.run.results import Summary, TrialResult
from proxima.track.tracker import Status, TrackingOutcome

USUAL = ("plots", "results.json")  # what the tracker keeps of a trial in any case


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


def best_converged(trials: Sequence[TrialResult]) -> int | None:
    """The converged trial with the best greedy return, then the best sampled one; None if none has."""

    def rank(trial: TrialResult) -> tuple[float, ...]:
        policies = (trial.evaluation, trial.sampled)
        return tuple(
            -np.inf if e is None or e.return_mean is None else e.return_mean for e in policies
        )

    converged = [trial for trial in trials if trial.converged]
    return max(converged, key=rank).trial if converged else None
