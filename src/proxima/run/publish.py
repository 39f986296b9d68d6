"""Handing a run to its tracker: figures, files, checkpoints, policies; the best one to the registry."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

from proxima.run.clock import timed
from proxima.run.record import STAGE, Run, stage_names
from proxima.run.report import NAME as REPORT
from proxima.run.results import Number, Summary, TrialResult
from proxima.scenario import to_stored
from proxima.track.registry import describe_exported
from proxima.track.served_policy import ABOUT
from proxima.track.tracker import Candidate, Status, TrackingOutcome
from proxima.train.checkpoint import BEST, LAST, judged

GREEDY = "final/greedy_return"
USUAL = ("plots", "results.json")  # what the tracker keeps of a trial in any case


def hand_to_tracker(run: Run, summary: Summary) -> None:
    """Figures, files, the judged checkpoints and policies of every trial; the best policy to the registry."""
    tracker, files = run.tracker, run.files
    names = stage_names(run.prepared)
    # A domain of the user's own may have no such setting.
    wanted = to_stored(run.scenario).get("evaluation", {}).get("checkpoint", LAST)
    for trial in summary.trials:
        last = list(trial.stages)[-1]
        child = run.child(names[-1] if last == "train" else last, trial.trial)
        final = _final(trial) | dict(run.prepared.final_metrics(trial))
        tracker.log_metrics(child, _last_step([trial]), final)
        _hand_files(run, child, files.trial(trial.trial), (*USUAL, *run.prepared.artifacts))
        for stage in names:
            folder, child = run.folder(stage, trial.trial), run.child(stage, trial.trial)
            _hand_files(run, child, folder, ("plots", STAGE) if stage else ())
            if (folder / "checkpoints").is_dir():
                kind = judged(folder, wanted).kind
                _hand_files(run, child, folder, (f"checkpoints/{kind}",))
    if run.scenario.tracking.enabled and run.scenario.tracking.register:
        _register(run, summary)
    if any(files.plots.iterdir()):
        tracker.log_artifacts(None, files.plots, "plots")
    for path in (files.root / REPORT, files.scenario, files.summary):
        tracker.log_artifacts(None, path, None)
    tracker.log_parent_metrics(_last_step(summary.trials), _over_all(summary))


def _register(run: Run, summary: Summary) -> None:
    """The best policy to the registry: of those that reached the target or, where there is none, of all."""
    folders = {trial.trial: run.files.trial(trial.trial) / "policy" for trial in summary.trials}
    about = {k: describe_exported(path) for k, path in folders.items() if (path / ABOUT).is_file()}
    figure = run.domain.curve(run.scenario)[1].removeprefix("eval/")
    scores = {
        k: validation_score(summary.trials[k], policy["checkpoint"]["kind"], figure)
        for k, policy in about.items()
    }
    best = chosen_trial(summary, scores)
    if best is not None and best.trial in about:
        folder, score = folders[best.trial].absolute(), scores[best.trial]
        description, tags = introduced(summary, best, about[best.trial], score)
        run.tracker.register(best.trial, Candidate(str(folder), description, tags, score))


def validation_score(trial: TrialResult, kind: str, figure: str) -> Number:
    """What the evaluations during training say of a trial's exported checkpoint; never of the closing one."""
    return trial.best_return if kind == BEST else list(trial.stages.values())[-1].last.get(figure)


def chosen_trial(summary: Summary, scores: Mapping[int, Number]) -> TrialResult | None:
    """The trial whose policy is registered; None where none deserves it."""
    if summary.target_reward is not None:
        return _best_converged(summary.trials)
    whole = [trial for trial in summary.trials if trial.stopped != "nan"]
    scored = [(score, trial) for trial in whole if (score := scores.get(trial.trial)) is not None]
    return max(scored, key=itemgetter(0), default=(None, None))[1]


def introduced(
    summary: Summary, trial: TrialResult, about: Mapping[str, Any], score: Number
) -> tuple[str, dict[str, str]]:
    """A registered policy in words, and its tags: what it is, where it comes from, why it was chosen."""
    final = _final(trial)
    kind, step = about["checkpoint"]["kind"], about["checkpoint"]["step"]
    validated = "" if score is None else f" (mean return {score:,.4g})"
    if summary.target_reward is not None:
        why = f"reached the target of {summary.target_reward:g}, the best of {summary.converged} that did"
    else:
        why = f"no target was set; of {len(summary.trials)} the best in evaluations in training{validated}"
    greedy = final.get(GREEDY)
    closing = "" if greedy is None else f" Closing evaluation: mean greedy return {greedy:,.4g}."
    description = (
        f"{about['algorithm']} on {about['env']}, trial {trial.trial} of run {summary.run_id}, {kind} "
        f"checkpoint, step {step:,}: {why}.{closing} The policy is {about['policy']}."
    )
    tags = {
        "proxima.selected_by": "validation" if summary.target_reward is None else "target",
        "proxima.run_id": summary.run_id,
        "proxima.trial": str(trial.trial),
        "proxima.checkpoint": f"{kind}, step {step}",
    }
    return description, tags | ({} if greedy is None else {GREEDY: str(greedy)})


def _hand_files(run: Run, child: int, folder: Path, names: Iterable[str]) -> None:
    """Those of the files and directories that exist to a tracked run, a directory under its name."""
    for name in names:
        if (path := (folder / name).resolve()).exists():
            run.tracker.log_artifacts(child, path, None if path.is_file() else name)


def _final(trial: TrialResult) -> dict[str, float]:
    """The returns of the closing evaluations and the scores, as the tracker has them."""
    policies = {"greedy": trial.evaluation, "sampled": trial.sampled, "random": trial.random}
    returns = {f"{name}_return": e.return_mean for name, e in policies.items() if e is not None}
    levels = {f"level_{k}_return": e.return_mean for k, e in enumerate(trial.levels, 1)}
    return _named(returns | dict(trial.scores) | levels)


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
        return final.get(GREEDY, -inf), final.get("final/sampled_return", -inf)

    return max((trial for trial in trials if trial.converged), key=rank, default=None)
