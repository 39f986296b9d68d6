"""Handing a run to its tracker: figures, files, checkpoints, policies; the best one to the registry."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path

from proxima.run.clock import timed
from proxima.run.record import STAGE, Run, stage_names
from proxima.run.report import NAME as REPORT
from proxima.run.results import Number, Summary, TrialResult
from proxima.track.tracker import Status, TrackingOutcome

USUAL = ("plots", "results.json")  # what the tracker keeps of a trial in any case


def hand_to_tracker(run: Run, summary: Summary) -> None:
    """Figures, files, checkpoints and policies of every trial; the best converged policy to the registry."""
    tracker, files = run.tracker, run.files
    names = stage_names(run.prepared)
    for trial in summary.trials:
        last = list(trial.stages)[-1]
        child = run.child(names[-1] if last == "train" else last, trial.trial)
        final = _final(trial) | dict(run.prepared.final_metrics(trial))
        tracker.log_metrics(child, _last_step([trial]), final)
        _hand_files(run, child, files.trial(trial.trial), (*USUAL, *run.prepared.artifacts))
        for stage in names:
            folder, child = run.folder(stage, trial.trial), run.child(stage, trial.trial)
            _hand_files(run, child, folder, ("plots", STAGE) if stage else ())
            _hand_files(run, child, folder, ("checkpoints/best", "checkpoints/last"))
    best = _best_converged(summary.trials)
    if best is not None and run.scenario.tracking.register:
        policy, metric = files.trial(best.trial) / "policy", "final/greedy_return"
        if policy.exists():
            registered = {name: value for name, value in _final(best).items() if name == metric}
            tracker.register(best.trial, policy, registered)
    if any(files.plots.iterdir()):
        tracker.log_artifacts(None, files.plots, "plots")
    for path in (files.root / REPORT, files.scenario, files.summary):
        tracker.log_artifacts(None, path, None)
    tracker.log_parent_metrics(_last_step(summary.trials), _over_all(summary))


def _hand_files(run: Run, child: int, folder: Path, names: Iterable[str]) -> None:
    """Those of the files and directories that exist to a tracked run, a directory under its name."""
    for name in names:
        if (path := (folder / name).resolve()).exists():
            run.tracker.log_artifacts(child, path, None if path.is_file() else name)


def _final(trial: TrialResult) -> dict[str, float]:
    """The returns of the closing evaluations and the scores, as the tracker has them."""
    policies = {"greedy": trial.evaluation, "sampled": trial.sampled, "random": trial.random}
    returns = {f"{name}_return": e.return_mean for name, e in policies.items() if e is not None}
    return _named(returns | dict(trial.scores))


def _over_all(summary: Summary) -> dict[str, float]:
    """The interval over trials, and the figures of the stages where there are several."""
    figures: dict[str, Number] = {} if summary.aggregate is None else asdict(summary.aggregate)
    for name, change in summary.figures.items():
        figures |= {f"{name}_before": change.before.iqm, f"{name}_after": change.after.iqm}
    return _named(figures)


def _named(figures: Mapping[str, Number]) -> dict[str, float]:
    return {f"final/{name}": value for name, value in figures.items() if value is not None}


def _last_step(trials: Sequence[TrialResult]) -> int:
    """The step at which metrics end: environment steps, or updates of the trials' last stages."""
    return max(list(trial.stages.values())[-1].steps for trial in trials)


def finish_tracking(run: Run, summary: Summary) -> TrackingOutcome:
    """Where the run's time went to the tracker, as the last word; waits until all is written."""
    spent = {f"time/run_{part}": seconds for part, seconds in run.clock.seconds.items()}
    run.tracker.log_parent_metrics(_last_step(summary.trials), spent)
    run.display.working("waiting for the tracker", 0, 1)
    children = run.scenario.trials * len(stage_names(run.prepared))
    ends: list[Status] = ["finished"] * children
    with timed(run.clock, "tracking"):
        return run.tracker.finish(ends, "finished")


def _best_converged(trials: Sequence[TrialResult]) -> TrialResult | None:
    """The converged trial with the best greedy return, then the best sampled one; None if none has."""

    def rank(trial: TrialResult) -> tuple[float, float]:
        final = _final(trial)
        return final.get("final/greedy_return", -inf), final.get("final/sampled_return", -inf)

    return max((trial for trial in trials if trial.converged), key=rank, default=None)
